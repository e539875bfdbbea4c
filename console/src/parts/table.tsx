import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Scroll } from './basic';

/** A table that scrolls where it is too wide. Where there is no room each row is a card, with the column's name before each value. */
export function Table({ label, children }: { label: string; children: ComponentChildren }) {
  const table = useRef<HTMLTableElement>(null);
  // Also for rows that come later
  useEffect(() => {
    const names = [...(table.current?.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent ?? '');
    for (const row of table.current?.tBodies[0]?.rows ?? []) {
      for (const [column, cell] of [...row.cells].entries()) cell.dataset.label = names[column] ?? '';
    }
  });
  return (
    <Scroll label={label}>
      <table class="stacks" ref={table}>
        {children}
      </table>
    </Scroll>
  );
}
