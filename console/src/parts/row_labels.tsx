import { type Grid, labelled } from '../lib/grid';

/** From one label to the next, in pixels. */
const HEIGHT = 20;
const LETTERS = 13;

/** Where in the order of ids one is: the id with which a row of tiles begins, as dictionaries have it in their margins. */
export function RowLabels({ grid, ids }: { grid: Grid; ids: string[] }) {
  return (
    <svg class="tiles-labels" height={grid.rows * grid.pitch} aria-hidden="true">
      {labelled(grid, HEIGHT).map(({ row, y }) => {
        const id = ids[row * grid.columns] ?? '';
        return (
          <text key={row} x="0" y={Math.max(9, y)} dominant-baseline="central">
            {id.length > LETTERS ? `${id.slice(0, LETTERS - 1)}…` : id}
          </text>
        );
      })}
    </svg>
  );
}
