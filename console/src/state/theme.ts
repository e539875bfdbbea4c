/** Light, dark, or as the system is; kept in the browser. */

import { computed, effect, signal } from '@preact/signals';

export type Choice = 'system' | 'light' | 'dark';

const KEY = 'throng-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');
const systemIsDark = signal(dark.matches);
dark.addEventListener('change', (event) => {
  systemIsDark.value = event.matches;
});

export const choice = signal<Choice>(stored());
/** What is shown. Whoever draws on a canvas draws anew when it changes. */
export const theme = computed<'light' | 'dark'>(() =>
  choice.value === 'system' ? (systemIsDark.value ? 'dark' : 'light') : choice.value,
);

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

export function next(): void {
  const order: Choice[] = ['system', 'light', 'dark'];
  choice.value = order[(order.indexOf(choice.value) + 1) % order.length] ?? 'system';
  localStorage.setItem(KEY, choice.value);
}

function stored(): Choice {
  const found = localStorage.getItem(KEY);
  return found === 'light' || found === 'dark' ? found : 'system';
}
