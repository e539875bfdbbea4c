/** Which events of a history are meant: by name, time and text. */

import type { Json } from './diff';
import { write } from './exact';

export interface Filter {
  /** The event's name, all of it. */
  name: string;
  /** Stands anywhere in the name or the payload. */
  text: string;
  /** Bounds in milliseconds since 1970; both belong to what is meant. */
  from: number | undefined;
  until: number | undefined;
}

export interface Filtered {
  name: string;
  at: string;
  payload: Json;
}

export function isEmpty({ name, text, from, until }: Filter): boolean {
  return name === '' && text === '' && from === undefined && until === undefined;
}

export function isMeant(event: Filtered, { name, text, from, until }: Filter): boolean {
  const at = Date.parse(event.at);
  if ((name !== '' && event.name !== name) || at < (from ?? -Infinity) || at > (until ?? Infinity)) return false;
  return text === '' || `${event.name} ${write(event.payload)}`.toLowerCase().includes(text.toLowerCase());
}

/** A place in a history: an event by its number, or a time. */
export type Goal = { seq: number } | { time: number };

/** `1042`, `09:12`, `09:12:44` of the day of `now`, or a date with a time, in the reader's zone unless it names one. */
export function goal(typed: string, now: Date): Goal | undefined {
  const text = typed.trim();
  if (/^\d+$/.test(text)) return { seq: Number(text) };
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/.exec(text);
  if (clock) {
    const [hours, minutes, seconds] = [1, 2, 3].map((part) => Number(clock[part] ?? 0)) as [number, number, number];
    if (hours > 23 || minutes > 59 || seconds > 59) return undefined;
    const at = new Date(now);
    at.setHours(hours, minutes, seconds, Number((clock[4] ?? '0').padEnd(3, '0')));
    return { time: at.getTime() };
  }
  if (!/^\d{4}-\d{2}-\d{2}/.test(text)) return undefined;
  // The page shows a time with spaces before its clock and its zone.
  const time = Date.parse(
    /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00` : text.replace(/ UTC$/, 'Z').replace(' ', 'T').replace(' ', ''),
  );
  return Number.isNaN(time) ? undefined : { time };
}

/** The first place from 1 to `last` that holds, if it holds for all behind it, too; `last + 1` if for none. */
export async function firstThat(last: number, holds: (place: number) => Promise<boolean>): Promise<number> {
  let [low, high] = [1, last + 1];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (await holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
