/** Where the page is, and going elsewhere. */

import { signal } from '@preact/signals';
import { link, parse, type Route, type Screen } from '../lib/route';

export const route = signal<Route>(parse(location.hash));

addEventListener('hashchange', () => {
  route.value = parse(location.hash);
});

export function go(screen: Screen, path: string[] = [], query: Record<string, string | number | undefined> = {}): void {
  location.hash = link(screen, path, query);
}

/** Changes the query of the current screen without a new entry in the browser's history. */
export function set(query: Record<string, string | number | undefined>): void {
  const { screen, path, query: before } = route.value;
  const merged: Record<string, string | number | undefined> = { ...Object.fromEntries(before), ...query };
  history.replaceState(null, '', link(screen, path, merged));
  route.value = parse(location.hash);
}
