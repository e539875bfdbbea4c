/** The nodes of the cluster, as they were seen last, and what was seen of them since the page was opened. */

import { signal } from '@preact/signals';
import * as calls from '../api/calls';
import type { Cluster } from '../api/types';
import { Series } from '../lib/series';
import { type Move, moves } from '../lib/shards';

export interface SeenMove extends Move {
  at: number;
}

const MOVES_MAX = 50;

export const cluster = signal<Cluster | undefined>(undefined);
/** Moves of shards, the newest first. */
export const moved = signal<SeenMove[]>([]);
/** Commands a second: one column a node, by its name. */
export const throughput = new Series();

/** Asks all nodes. */
export async function look(): Promise<Cluster> {
  const found = await calls.clusterNodes();
  const before = cluster.value;
  if (before && before.cluster === found.cluster && before.version !== found.version) {
    const since = moves(before.nodes, found.nodes).map((move) => ({ ...move, at: Date.now() }));
    moved.value = [...since, ...moved.value].slice(0, MOVES_MAX);
  }
  const rates = found.nodes.map((node): [string, number | null] => [node.name, node.now?.series.commands ?? null]);
  throughput.add(Math.round(Date.now() / 1000), Object.fromEntries(rates));
  cluster.value = found;
  return found;
}
