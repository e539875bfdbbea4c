/** What was done, said for a while in a corner and to screen readers; what has failed stays until somebody has read it. */

import { signal } from '@preact/signals';

export interface Toast {
  key: number;
  text: string;
  isBad: boolean;
}

const SHOWN_MS = 8_000;
const TOASTS_MAX = 4;

export const toasts = signal<Toast[]>([]);
let keys = 0;

export function say(text: string): void {
  const key = add(text, false);
  setTimeout(() => unsay(key), SHOWN_MS);
}

/** Says that something has failed. */
export function complain(text: string): void {
  add(text, true);
}

export function unsay(key: number): void {
  toasts.value = toasts.value.filter((toast) => toast.key !== key);
}

function add(text: string, isBad: boolean): number {
  const key = ++keys;
  toasts.value = [...toasts.value, { key, text, isBad }].slice(-TOASTS_MAX);
  return key;
}
