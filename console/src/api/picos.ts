/** The routes of picos (docs/picos.md): those of pico-engine 1.x. Over a channel one sees what its policy allows. */

import { isMap, type Json } from '../lib/diff';
import type { Policy } from '../lib/policy';
import { entity } from './calls';
import { ask } from './client';

/** A place of a ruleset's source, from 1. */
export interface Place {
  line: number;
  column: number;
  message: string;
}

/** What a ruleset can be tried with. */
export interface Testing {
  queries: { name: string; args: string[] }[];
  events: { domain: string; name: string; attrs: string[] }[];
}

export interface Checked {
  sound: boolean;
  rid: string | null;
  errors: Place[];
  warnings: Place[];
  testing: Testing;
}

/** What would come of an event or a query. */
export interface TriedOut {
  error: string | null;
  log: Json[];
  rules: SelectedRule[];
  directives: Json[];
  changes: Json[];
  sends: string[];
  result: Json;
}

export interface Subscription {
  Id?: string;
  Tx?: string;
  Rx_role?: string | null;
  Tx_role?: string | null;
}

export interface Channel {
  id: string;
  tags: string[];
  eventPolicy: Policy;
  queryPolicy: Policy;
  familyChannelPicoID: string | null;
}

export interface Ruleset {
  rid: string;
  url: string;
  config: Json;
  meta?: { krl?: string; krlMeta?: { name?: string | null } | null } | null;
}

export interface Box {
  eci: string;
  parent: string | null;
  children: string[];
  name: string;
}

export interface Pico {
  eci: string;
  parent: string | null;
  children: string[];
  channels: Channel[];
  rulesets: Ruleset[];
}

/** A rule that an event selected. */
export interface SelectedRule {
  rid: string;
  rule: string;
  /** Counts the rounds in which it took its actions, and those in which its condition kept it from them; left out at 0. */
  fired?: number;
  not_fired?: number;
}

export interface LogEntry {
  seq: number;
  time: string;
  eid: string;
  domain: string;
  name: string;
  attrs: Json;
  changes: Json[];
  log: Json[];
  /** Left out by an older program. */
  rules?: SelectedRule[];
  error?: Json;
}

const UI = 'io.picolabs.pico-engine-ui';
const part = encodeURIComponent;
const over = (eci: string) => `/c/${part(eci)}`;

export const root = () => ask<{ version: string; eci: string }>('/api/ui-context');
export const box = (eci: string) => ask<Box>(`${over(eci)}/query/${UI}/box`);
export const pico = (eci: string) => ask<Pico>(`${over(eci)}/query/${UI}/pico`);
export const query = (eci: string, rid: string, name: string, args: Json) =>
  ask<Json>(`${over(eci)}/query/${part(rid)}/${part(name)}`, { method: 'POST', body: args });
export const event = (eci: string, domain: string, name: string, attrs: Json) =>
  ask<{ eid: string; directives: Json[] }>(`${over(eci)}/event-wait/${part(domain)}/${part(name)}`, {
    method: 'POST',
    body: attrs,
  });
export const log = (eci: string, after: number, limit: number) =>
  ask<{ events: LogEntry[]; next: number | null }>(`${over(eci)}/log`, { query: { after, limit } });
export const flush = (url: string) => ask<Json>('/api/flush', { query: { url } });
export const check = (source: string) => ask<Checked>('/api/krl', { method: 'POST', body: { source } });
export const format = (source: string) =>
  ask<{ source: string }>('/api/krl-format', { method: 'POST', body: { source } });
export const tryOut = (eci: string, source: string, what: object) =>
  ask<TriedOut>(`${over(eci)}/try`, { method: 'POST', body: { source, ...what } });
export const install = (eci: string, source: string) =>
  ask<{ url: string; rid: string; hash: string }>(`${over(eci)}/install`, { method: 'POST', body: { source } });
export const testing = (eci: string, rid: string) => ask<Testing>(`${over(eci)}/query/${part(rid)}/__testing`);
export const subscriptions = (eci: string) =>
  ask<Subscription[]>(`${over(eci)}/query/io.picolabs.subscription/established`);

/** The kind of the entities that picos are. */
export const KIND = 'pico';

/** The pico's id is what its channels begin with. */
export const idOf = (eci: string) => eci.slice(0, 16);

/** A name that tells a pico from others: most have none, and are all called the same then. */
export function nameOf({ name, eci, parent }: Box): string {
  if (name !== 'Pico') return name;
  return parent === null ? 'Root pico' : `Pico ${idOf(eci).slice(0, 8)}`;
}

export interface Variable {
  rid: string;
  name: string;
  value: Json;
}

/** The entity variables of a pico, and the event they are as of. */
export async function variables(eci: string, signal: AbortSignal): Promise<{ seq: number; variables: Variable[] }> {
  const { seq, state } = await entity(KIND, idOf(eci), undefined, signal);
  const found = isMap(state) && Array.isArray(state.variables) ? state.variables : [];
  return { seq, variables: found as unknown as Variable[] };
}
