/** What differs between two JSON values, member by member. */

import { Digits, write } from './exact';

export type Json = null | boolean | number | Digits | string | Json[] | { [name: string]: Json };

export interface Change {
  /** Names and indices from the root. */
  path: string[];
  what: 'added' | 'removed' | 'changed';
  before?: Json;
  after?: Json;
}

/** Differences shown at most; a state of a megabyte can have any number. */
export const CHANGES_MAX = 500;

/** What has changed from one value to the other, in the order of the second; at most `CHANGES_MAX`. */
export function diff(before: Json | undefined, after: Json | undefined): Change[] {
  const changes: Change[] = [];
  compare(before, after, [], changes);
  return changes;
}

function compare(before: Json | undefined, after: Json | undefined, path: string[], changes: Change[]): void {
  if (changes.length >= CHANGES_MAX || before === after || isSameDigits(before, after)) return;
  if (before === undefined) {
    changes.push({ path, what: 'added', after: after as Json });
  } else if (after === undefined) {
    changes.push({ path, what: 'removed', before });
  } else if (Array.isArray(before) && Array.isArray(after)) {
    compareLists(before, after, path, changes);
  } else if (isMap(before) && isMap(after)) {
    for (const name of new Set([...Object.keys(after), ...Object.keys(before)])) {
      compare(own(before, name), own(after, name), [...path, name], changes);
    }
  } else {
    changes.push({ path, what: 'changed', before, after });
  }
}

/** Lists are compared after what they begin and end with alike: one element put in is one addition, not a change of all behind it. */
function compareLists(before: Json[], after: Json[], path: string[], changes: Change[]): void {
  const same = (one: Json | undefined, other: Json | undefined) => written(one) === written(other);
  const shorter = Math.min(before.length, after.length);
  let head = 0;
  while (head < shorter && same(before[head], after[head])) head++;
  let tail = 0;
  while (tail < shorter - head && same(before[before.length - 1 - tail], after[after.length - 1 - tail])) tail++;
  const left = before.slice(head, before.length - tail);
  const right = after.slice(head, after.length - tail);
  for (let place = 0; place < Math.max(left.length, right.length); place++) {
    compare(left[place], right[place], [...path, String(head + place)], changes);
  }
}

export function isMap(value: Json | undefined): value is { [name: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Digits);
}

function written(value: Json | undefined): string | undefined {
  return value === undefined ? undefined : write(value);
}

function isSameDigits(one: Json | undefined, other: Json | undefined): boolean {
  return one instanceof Digits && other instanceof Digits && one.text === other.text;
}

/** A member of the value itself: `constructor` is no member of `{}`. */
function own(value: { [name: string]: Json }, name: string): Json | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}
