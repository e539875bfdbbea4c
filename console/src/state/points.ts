/** What the engine did in the last 15 minutes, a point a second, and what it does now. */

import { batch, signal } from '@preact/signals';
import type { Hot, Limits, Point, SeriesPage } from '../api/types';
import { Series } from '../lib/series';
import * as service from './service';

export const series = new Series();
/** Rises with each point: who draws the series reads it. */
export const tick = signal(0);
export const limits = signal<Limits | null>(null);
export const hot = signal<Hot[]>([]);
export const loops = signal<string[]>([]);
/** Why requests were refused in the points kept, one series a reason. */
export const reasons = signal<string[]>([]);

type Groups<T> = Record<'series' | 'refusals' | 'memory' | 'loops', Record<string, T>>;

/** Columns are named by their group, except those of the first. */
function flat<T>(of: Groups<T>): [name: string, value: T][] {
  const group = (name: 'refusals' | 'memory' | 'loops') =>
    Object.entries(of[name]).map(([member, value]): [string, T] => [`${name}.${member}`, value]);
  return [...Object.entries(of.series), ...group('refusals'), ...group('memory'), ...group('loops')];
}

/** Takes all points the server has. Those before them are kept: a server that has begun anew does not know them. */
export function takeAll(page: SeriesPage, startedAt: string | undefined): void {
  if (startedAt !== undefined) series.begin(Date.parse(startedAt) / 1000);
  series.cut(page.times[0] ?? Number.POSITIVE_INFINITY);
  takeMore(page);
}

/** Adds what has come since. */
export function takeMore(page: SeriesPage): void {
  const columns = flat(page);
  page.times.forEach((at, place) => {
    series.add(at, Object.fromEntries(columns.map(([name, column]) => [name, column[place] ?? null])));
  });
  if (page.times.length > 0) show(page);
}

export function takePoint(point: Point): void {
  series.add(point.at, Object.fromEntries(flat(point)));
  batch(() => {
    hot.value = point.hot;
    if (point.trouble !== null) service.troubles.value = point.trouble;
    show(point);
  });
}

function show(now: { limits: Limits | null; loops: object; refusals: object }): void {
  batch(() => {
    limits.value = now.limits;
    loops.value = same(loops.value, Object.keys(now.loops));
    reasons.value = same(reasons.value, Object.keys(now.refusals));
    tick.value++;
  });
}

/** The value there was, if the new one says the same: nothing is drawn anew then. */
function same(before: string[], now: string[]): string[] {
  return before.join() === now.join() ? before : now;
}
