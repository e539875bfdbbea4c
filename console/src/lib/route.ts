/** Where the page is, as the part of its address behind `#`: links to it can be shared. */

export type Screen = 'live' | 'map' | 'entity' | 'trouble' | 'journal' | 'cluster' | 'audit' | 'picos' | 'trace';

export const SCREENS: readonly Screen[] = [
  'live',
  'map',
  'entity',
  'trouble',
  'journal',
  'cluster',
  'audit',
  'picos',
  'trace',
];

export interface Route {
  screen: Screen;
  /** Decoded parts of the path behind the screen: kind and id of an entity. */
  path: string[];
  query: Map<string, string>;
}

/** `#/entity/section/C%20S%20142?at=7` → screen, path, query; whatever is not understood leads to the first screen. */
export function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [first, ...rest] = path.split('/');
  const screen = SCREENS.find((screen) => screen === first);
  const query = new Map(new URLSearchParams(search));
  return screen
    ? { screen, path: rest.filter((part) => part !== '').map(decode), query }
    : { screen: 'live', path: [], query };
}

export function link(
  screen: Screen,
  path: string[] = [],
  query: Record<string, string | number | undefined> = {},
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const behind = search.size > 0 ? `?${search}` : '';
  return `#/${[screen, ...path.map(encodeURIComponent)].join('/')}${behind}`;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
