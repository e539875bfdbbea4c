/** Troubles that have the same reason, and what can be done about all of them. */

import type { Action, Trouble } from '../api/types';

export interface SameReason {
  type: string;
  /** The reason of the first item; others may differ in numbers. */
  reason: string;
  key: string;
  items: Trouble[];
  /** The actions that each item has. */
  actions: Action[];
}

/** Actions that an operator does to one entity at a time. */
const ONE_BY_ONE = new Set(['erase']);
/** Reasons that are of this length or longer are told apart by their beginnings. */
const KEY_MAX = 300;

/** A reason without the numbers in it: they differ between entities that suffer from the same. */
export function reasonKey(reason: string): string {
  return reason.replaceAll(/\d+/g, '#').slice(0, KEY_MAX);
}

/** Groups of at least two, the largest first. */
export function byReason(items: Trouble[]): SameReason[] {
  const groups = new Map<string, SameReason>();
  for (const item of items.filter((item) => item.kind !== null && item.id !== null)) {
    const labels = item.actions.map((action) => action.label).join(' ');
    const key = `${item.type} ${reasonKey(item.reason)} ${labels}`;
    const group = groups.get(key) ?? { type: item.type, reason: item.reason, key, items: [], actions: [] };
    group.items.push(item);
    groups.set(key, group);
  }
  return [...groups.values()]
    .filter((group) => group.items.length > 1)
    .map((group) => ({ ...group, actions: shared(group.items) }))
    .sort((one, other) => other.items.length - one.items.length);
}

function shared([first, ...others]: Trouble[]): Action[] {
  const has = (item: Trouble, name: string) => item.actions.some((action) => action.name === name);
  return (first?.actions ?? []).filter(
    ({ name }) => !ONE_BY_ONE.has(name) && others.every((other) => has(other, name)),
  );
}

/** Does something with each, a few at a time, until it is told to stop. */
export async function each<T>(all: T[], atOnce: number, isStopped: () => boolean, act: (one: T) => Promise<void>) {
  let next = 0;
  const worker = async () => {
    while (next < all.length && !isStopped()) {
      const one = all[next++] as T;
      await act(one);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
