/** What was done, said for a while in a corner and to screen readers. */

import { signal } from '@preact/signals';

export interface Toast {
  key: number;
  text: string;
}

const SHOWN_MS = 8_000;
const TOASTS_MAX = 4;

export const toasts = signal<Toast[]>([]);
let keys = 0;

export function say(text: string): void {
  const key = ++keys;
  toasts.value = [...toasts.value, { key, text }].slice(-TOASTS_MAX);
  setTimeout(() => {
    toasts.value = toasts.value.filter((toast) => toast.key !== key);
  }, SHOWN_MS);
}
