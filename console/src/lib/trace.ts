/** A timeline of one cause: from any of its events back to where it began, and from there to all that came of it, at every entity. */

import type { Address, EntityEvent } from '../api/types';

export interface Step {
  of: Address;
  event: EntityEvent;
  /** Messages between the first event and this one. */
  depth: number;
}

/** A message of which no event was found: it was refused, has changed nothing, or is on its way. */
export interface Loose {
  from: Address;
  to: Address;
  name: string;
  depth: number;
}

export interface Timeline {
  steps: Step[];
  loose: Loose[];
  /** There is more than is followed. */
  isCut: boolean;
}

/** How histories are read. */
export interface Reader {
  last(of: Address): Promise<number>;
  /** Events after this one. */
  page(of: Address, after: number, limit: number): Promise<EntityEvent[]>;
}

const STEPS_MAX = 100;
/** Messages from an event back to where it began. */
const BACK_MAX = 50;
/** Events that are looked at for the one that a message has caused. */
const LOOKED_AT_MAX = 300;
const PAGE = 100;
/** Events of one command. */
const COMMAND_MAX = 20;

export async function follow(of: Address, seq: number, read: Reader): Promise<Timeline> {
  const first = await begin(of, seq, read);
  const found: Timeline = { steps: [], loose: [], isCut: first.isCut };
  const seen = new Set<string>();
  let next: { of: Address; seq: number }[] = [first];
  for (let depth = 0; next.length > 0; depth++) {
    const later: typeof next = [];
    for (const one of next) {
      for (const event of await ofCommand(one.of, one.seq, read)) {
        const key = JSON.stringify([one.of.kind, one.of.id, event.seq]);
        if (seen.has(key)) continue;
        if (found.steps.length >= STEPS_MAX) return { ...found, isCut: true };
        seen.add(key);
        found.steps.push({ of: one.of, event, depth });
        for (const sent of event.sent ?? []) {
          const caused = await causedBy(sent, event.at, read);
          if (caused === undefined) found.loose.push({ from: one.of, to: sent.to, name: sent.name, depth: depth + 1 });
          else later.push({ of: sent.to, seq: caused });
        }
      }
    }
    next = later;
  }
  return found;
}

/** Where it began: the event whose cause is no other entity's. */
async function begin(of: Address, seq: number, read: Reader): Promise<{ of: Address; seq: number; isCut: boolean }> {
  let at = { of, seq };
  for (let back = 0; back < BACK_MAX; back++) {
    const [event] = await read.page(at.of, at.seq - 1, 1);
    const cause = event?.cause;
    if (!cause?.from || cause.from_seq === null) return { ...at, isCut: false };
    at = { of: cause.from, seq: cause.from_seq };
  }
  return { ...at, isCut: true };
}

/** This event and those after it that the same command has caused: what it sent stands at the last. */
async function ofCommand(of: Address, seq: number, read: Reader): Promise<EntityEvent[]> {
  const [first, ...rest] = await read.page(of, seq - 1, COMMAND_MAX);
  if (!first) return [];
  const cause = JSON.stringify(first.cause);
  const isOther = (event: EntityEvent) => event.position !== first.position || JSON.stringify(event.cause) !== cause;
  const end = (first.sent?.length ?? 0) > 0 ? 0 : rest.findIndex(isOther);
  return [first, ...(end < 0 ? rest : rest.slice(0, end))];
}

/** The number of the event that a message has caused, which came after it was sent. */
async function causedBy(sent: { to: Address; number: string }, at: string, read: Reader): Promise<number | undefined> {
  // Of a long history, the part after that time.
  let [low, high] = [0, await read.last(sent.to)];
  while (high - low > PAGE) {
    const middle = Math.floor((low + high) / 2);
    const [event] = await read.page(sent.to, middle, 1);
    if (event && event.at < at) low = middle + 1;
    else high = middle;
  }
  for (let after = low; after < low + LOOKED_AT_MAX; after += PAGE) {
    const events = await read.page(sent.to, after, PAGE);
    const found = events.find((event) => event.cause?.number === sent.number);
    if (found || events.length < PAGE) return found?.seq;
  }
  return undefined;
}
