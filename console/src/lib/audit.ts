/** The entries of the audit, made of its events, and which of them are meant. */

import type { Json } from './diff';

/** An event of the audit: an action was asked for, or has ended. */
export interface AuditEvent {
  seq: number;
  name: string;
  at: string;
  payload: Json;
}

interface Asked {
  number: number;
  by: string;
  role: string;
  /** The address of the connection. */
  at: string;
  action: string;
  fields: Record<string, string>;
  reason: string;
}

interface Ended {
  number: number;
  status: number;
  problem: string | null;
}

/** Who asked for what, when and why, and how it ended. */
export interface Entry extends Omit<Asked, 'at'> {
  /** When. */
  at: string;
  /** From where. */
  address: string;
  /** Null: it is under way, or the service ended before it did. */
  end: Ended | null;
}

export interface AuditFilter {
  by: string;
  action: string;
  /** A part of `kind/id`. */
  entity: string;
}

/** Entries of events that stand next to each other, the newest first. An end whose beginning is not among them is left out. */
export function entries(events: readonly AuditEvent[]): Entry[] {
  const ends = new Map<number, Ended>();
  for (const { name, payload } of events) {
    const ended = payload as unknown as Ended;
    if (name === 'ended') ends.set(ended.number, ended);
  }
  const asked = events.filter(({ name }) => name === 'asked');
  return asked.reverse().map(({ at, payload }) => {
    const { at: address, ...action } = payload as unknown as Asked;
    return { ...action, at, address, end: ends.get(action.number) ?? null };
  });
}

/** The entity an action was about, and the fields that tell more of it. */
export function subject({ fields }: Entry): { of: { kind: string; id: string } | undefined; rest: [string, string][] } {
  const { kind, id } = fields;
  const of = kind !== undefined && id !== undefined ? { kind, id } : undefined;
  const rest = Object.entries(fields).filter(([name]) => of === undefined || (name !== 'kind' && name !== 'id'));
  return { of, rest };
}

export function isMeant(entry: Entry, { by, action, entity }: AuditFilter): boolean {
  const { kind = '', id = '' } = entry.fields;
  const is = (wanted: string, found: string) => wanted === '' || wanted === found;
  return is(by, entry.by) && is(action, entry.action) && `${kind}/${id}`.toLowerCase().includes(entity.toLowerCase());
}
