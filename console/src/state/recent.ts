/** The entities looked at lately, for as long as the tab is open. */

import type { Address } from '../api/types';

const KEY = 'throng-recent';
const KEPT = 12;

export function recent(): Address[] {
  try {
    const found: unknown = JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
    return Array.isArray(found) ? (found as Address[]) : [];
  } catch {
    return [];
  }
}

export function remember({ kind, id }: Address): void {
  const others = recent().filter((one) => one.kind !== kind || one.id !== id);
  sessionStorage.setItem(KEY, JSON.stringify([{ kind, id }, ...others].slice(0, KEPT)));
}
