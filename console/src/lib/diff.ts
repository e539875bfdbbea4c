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
  if (isSet(left) && isSet(right)) {
    compareSets(left, right, [path, head], changes);
    return;
  }
  for (let place = 0; place < Math.max(left.length, right.length); place++) {
    compare(left[place], right[place], [...path, String(head + place)], changes);
  }
}

type Name = string | number;

/** A list of names or numbers, each there once: which are there is what counts. */
function isSet(list: Json[]): list is Name[] {
  return list.every((one) => typeof one === 'string' || typeof one === 'number') && new Set(list).size === list.length;
}

/** What was taken out of such a list and put into it. What has only moved in it is both. */
function compareSets(before: Name[], after: Name[], [path, head]: [string[], number], changes: Change[]): void {
  const stayed = new Set(inOrder(before, after));
  for (const [place, one] of before.entries()) {
    if (changes.length >= CHANGES_MAX) return;
    if (!stayed.has(one)) changes.push({ path: [...path, String(head + place)], what: 'removed', before: one });
  }
  for (const [place, one] of after.entries()) {
    if (changes.length >= CHANGES_MAX) return;
    if (!stayed.has(one)) changes.push({ path: [...path, String(head + place)], what: 'added', after: one });
  }
}

/** Those of both lists that stand in the same order in both, as many as can be: the longest run of rising places. */
function inOrder(before: Name[], after: Name[]): Name[] {
  const places = new Map(before.map((one, place) => [one, place]));
  const both = after.flatMap((one) => places.get(one) ?? []);
  const ends: number[] = [];
  const links: number[] = [];
  for (const [at, place] of both.entries()) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((both[ends[middle] ?? 0] ?? 0) < place) low = middle + 1;
      else high = middle;
    }
    links[at] = ends[low - 1] ?? -1;
    ends[low] = at;
  }
  const found: Name[] = [];
  for (let at = ends.at(-1) ?? -1; at >= 0; at = links[at] ?? -1) {
    const one = before[both[at] ?? -1];
    if (one !== undefined) found.push(one);
  }
  return found;
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
