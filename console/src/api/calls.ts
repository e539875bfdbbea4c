/** The server's routes, each as a function. */

import type { AuditEvent } from '../lib/audit';
import type { Json } from '../lib/diff';
import { ask, askText } from './client';
import type {
  ChildrenPage,
  Cluster,
  Entity,
  Group,
  History,
  Hot,
  Journal,
  JournalParts,
  MapKind,
  MapPage,
  Overview,
  SeriesPage,
  Troubles,
  WhatIf,
} from './types';

const part = encodeURIComponent;
const entityPath = (kind: string, id: string) => `/admin/entity/${part(kind)}/${part(id)}`;

export const overview = () => ask<Overview>('/admin/overview');
export const series = (since?: number) => ask<SeriesPage>('/admin/series', { query: { since } });
export const map = () => ask<{ kinds: MapKind[]; hot: Hot[] }>('/admin/map');
export const troubles = () => ask<Troubles>('/admin/trouble');
export const journal = () => ask<Journal>('/admin/journal');
export const clusterNodes = () => ask<Cluster>('/admin/cluster/nodes');
export const journalParts = (limit: number) => ask<JournalParts>('/admin/journal/parts', { query: { limit } });

export interface PageOf {
  prefix?: string | undefined;
  after?: string | undefined;
  limit?: number;
  signal?: AbortSignal;
}

export function entities(kind: string, { signal, ...query }: PageOf & { where?: string | undefined; holds?: string }) {
  return ask<MapPage>(`/admin/map/${part(kind)}`, { query, ...(signal && { signal }) });
}

export function groups(kind: string, prefix: string) {
  return ask<{ groups: Group[]; more: boolean }>(`/admin/map/${part(kind)}/groups`, { query: { prefix } });
}

export function children(kind: string, id: string, { signal, ...query }: PageOf) {
  return ask<ChildrenPage>(`${entityPath(kind, id)}/children`, { query, ...(signal && { signal }) });
}

export function hot(kind: string | undefined, limit: number) {
  return ask<{ hot: (Hot & { share: number })[]; per_second: number }>('/admin/hot', { query: { kind, limit } });
}

export function entity(kind: string, id: string, at?: number, signal?: AbortSignal) {
  return ask<Entity>(entityPath(kind, id), { query: { at }, ...(signal && { signal }) });
}

export function history(kind: string, id: string, query: { after?: number; before?: number; limit?: number }) {
  return ask<History>(`${entityPath(kind, id)}/history`, { query });
}

export function command(kind: string, id: string, body: { name: string; body: Json; internal: boolean }) {
  return ask<{ reply: Json; seq: number }>(`${entityPath(kind, id)}/command`, { method: 'POST', body });
}

export function whatIf(kind: string, id: string, at: number | undefined, body: { name: string; body: Json }) {
  return ask<WhatIf>(`${entityPath(kind, id)}/what-if`, { method: 'POST', query: { at }, body });
}

/** An entity that is quarantined or cannot be brought back. */
export interface StuckEntity {
  kind: string;
  id: string;
  state: 'quarantined' | 'retrying';
  reason: string;
  by: string | null;
}

/** More of them than `/admin/trouble` lists, without what can be done. */
export const stuck = () => ask<{ entities: StuckEntity[] }>('/admin/stuck');

/** What came of an action. Those on all dead messages of a cause say how many, and why not all if so. */
export interface Done {
  retried?: { outcome: string; reason?: string }[];
  done?: number;
  refused?: number;
  dead?: number;
  dropped?: number | string;
  stopped?: string | null;
  released?: boolean;
  /** Of a release: whether it could be loaded; null if that is not known. */
  loaded?: boolean | null;
  reason?: string | null;
}

/** Many dead messages take their time. */
const ACTION_PATIENCE_MS = 600_000;

/** An action of `/admin/trouble`: its path is sent as it is. */
export function act(path: string) {
  return ask<Done>(path, { method: 'POST', patienceMs: ACTION_PATIENCE_MS });
}

/** The events of the audit: the last ones, or those after or before one of them. */
export function audit(query: { after?: number; before?: number; limit: number }) {
  return ask<{ events: AuditEvent[]; next: number | null }>('/admin/audit', { query });
}

/** Dead messages with their content, or the events of the audit, one a line; the last line says how many. */
export async function exportLines(path: string): Promise<{ lines: string; exported: number }> {
  const lines = await askText(path, { patienceMs: ACTION_PATIENCE_MS });
  const end = /\{"exported":(\d+)\}\s*$/.exec(lines);
  if (!end) throw new Error('The export broke off. Try again.');
  return { lines, exported: Number(end[1]) };
}
