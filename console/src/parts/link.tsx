import type { Address } from '../api/types';
import { link } from '../lib/route';

/** An entity by its kind and id; leads to its page, at an event if one is meant. */
export function EntityLink({ of, at }: { of: Address; at?: number | null | undefined }) {
  return (
    <a class="entity-link break" href={link('entity', [of.kind, of.id], { at: at ?? undefined })}>
      <span class="quiet">{of.kind}/</span>
      {of.id}
    </a>
  );
}
