/** Keys that work anywhere on the page, except where somebody types. */

import type { Screen } from './lib/route';
import { go } from './state/place';
import { next } from './state/theme';

const SCREEN_OF_KEY: Record<string, Screen> = {
  l: 'live',
  m: 'map',
  e: 'entity',
  t: 'trouble',
  j: 'journal',
  c: 'cluster',
  a: 'audit',
  p: 'picos',
};

/** How long the second key of two may take. */
const SECOND_KEY_MS = 1_500;

export const SHORTCUTS: { keys: string[]; does: string }[] = [
  { keys: ['g', 'l'], does: 'Live: what the engine does now' },
  { keys: ['g', 'm'], does: 'Map: all entities' },
  { keys: ['g', 'e'], does: 'Entity: the one looked at last' },
  { keys: ['g', 't'], does: 'Trouble: what needs somebody' },
  { keys: ['g', 'j'], does: 'Journal: where it is stored' },
  { keys: ['g', 'c'], does: 'Cluster: all nodes, where there are several' },
  { keys: ['g', 'a'], does: 'Audit: who did what in administration, and why' },
  { keys: ['g', 'p'], does: 'Picos, where they are served' },
  { keys: ['/'], does: 'Finds entities, kinds, screens and actions; Ctrl-K does it also while you type' },
  { keys: ['←', '→'], does: 'One event back or on, on the slider of an entity; between tabs and tiles' },
  { keys: ['d'], does: 'Light, dark, or as the system is' },
  { keys: ['?'], does: 'This list' },
  { keys: ['Esc'], does: 'Closes what is open' },
];

/** Listens until the returned function is called. */
export function listen(help: () => void, find: () => void): () => void {
  let armedUntil = 0;
  const pressed = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key === 'k' && !document.querySelector('dialog[open]')) {
      event.preventDefault();
      find();
    }
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      isTyping(event.target) ||
      document.querySelector('dialog[open]')
    )
      return;
    const screen = performance.now() < armedUntil ? SCREEN_OF_KEY[event.key] : undefined;
    armedUntil = 0;
    if (screen) {
      event.preventDefault();
      go(screen);
    } else if (event.key === 'g') {
      armedUntil = performance.now() + SECOND_KEY_MS;
    } else if (event.key === '/') {
      event.preventDefault();
      find();
    } else if (event.key === '?') {
      event.preventDefault();
      help();
    } else if (event.key === 'd') {
      next();
    }
  };
  addEventListener('keydown', pressed);
  return () => removeEventListener('keydown', pressed);
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && (target as HTMLInputElement).type !== 'range'))
  );
}
