/** How much of a JSON value is shown at a time: states can have a megabyte, and a page must not. */

import { isMap, type Json } from './diff';
import { Digits, write as written } from './exact';

/** Members of one object or list that are shown before more are asked for. */
export const MEMBERS_PAGE = 100;
/** Characters of a text that are shown before all are asked for. */
export const TEXT_MAX = 400;
/** Nodes that open by themselves. */
const OPEN_MEMBERS_MAX = 24;

export type Kind = 'null' | 'boolean' | 'number' | 'text' | 'list' | 'map';

export function kindOf(value: Json): Kind {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'list';
  if (value instanceof Digits) return 'number';
  if (typeof value === 'object') return 'map';
  if (typeof value === 'string') return 'text';
  return typeof value === 'number' ? 'number' : 'boolean';
}

/** Names and values of what a list or map holds, `count` from the `first`. */
export function members(value: Json, first: number, count: number): [string, Json][] {
  if (Array.isArray(value)) {
    return value.slice(first, first + count).map((member, place) => [String(first + place), member]);
  }
  return isMap(value) ? Object.entries(value).slice(first, first + count) : [];
}

export function size(value: Json): number {
  if (Array.isArray(value)) return value.length;
  return isMap(value) ? Object.keys(value).length : 0;
}

/** Whether a node shows its members unasked: the outermost ones, and small ones below. */
export function opens(value: Json, depth: number): boolean {
  return size(value) <= OPEN_MEMBERS_MAX && depth < 2;
}

/** A value on one line, cut after `length` characters. */
export function line(value: Json | undefined, length: number): string {
  if (value === undefined) return '';
  const text = write(value, length);
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** As JSON, but no more of it than is needed: `JSON.stringify` of a megabyte for one line would be felt. */
function write(value: Json, room: number): string {
  const kind = kindOf(value);
  if (kind !== 'list' && kind !== 'map') return written(typeof value === 'string' ? value.slice(0, room + 1) : value);
  let text = kind === 'list' ? '[' : '{';
  let first = true;
  for (const [name, member] of members(value, 0, room)) {
    if (text.length > room) return text;
    text += `${first ? '' : ','}${kind === 'map' ? `${JSON.stringify(name)}:` : ''}${write(member, room - text.length)}`;
    first = false;
  }
  return text + (kind === 'list' ? ']' : '}');
}
