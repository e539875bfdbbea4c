/** Where tiles stand: any number of them on a surface, as near to square as fits, with as many entities in a tile as it takes to see it. */

export interface Grid {
  columns: number;
  rows: number;
  /** Side of a tile with its gap, in CSS pixels. */
  pitch: number;
  gap: number;
}

export interface Box {
  x: number;
  y: number;
  size: number;
}

/** A tile that can still be seen and pointed at. */
export const PITCH_MIN = 6;
/** One larger than this would look like a poster. */
export const PITCH_MAX = 96;

/** How many tiles of the smallest size a surface takes. */
export function tilesMax(width: number, height: number): number {
  return Math.max(1, Math.floor(width / PITCH_MIN) * Math.floor(height / PITCH_MIN));
}

/** The largest tiles with which `count` of them fit. */
export function fit(count: number, width: number, height: number): Grid {
  const wanted = Math.max(1, count);
  let pitch = Math.min(PITCH_MAX, Math.max(PITCH_MIN, Math.floor(Math.sqrt((width * height) / wanted))));
  while (pitch > PITCH_MIN && Math.floor(width / pitch) * Math.floor(height / pitch) < wanted) pitch--;
  const columns = Math.max(1, Math.floor(width / pitch));
  return { columns, rows: Math.ceil(wanted / columns), pitch, gap: gap(pitch) };
}

function gap(pitch: number): number {
  if (pitch >= 48) return 6;
  if (pitch >= 24) return 3;
  return pitch >= 12 ? 2 : 1;
}

export function box(grid: Grid, index: number): Box {
  const column = index % grid.columns;
  const row = Math.floor(index / grid.columns);
  return { x: column * grid.pitch, y: row * grid.pitch, size: grid.pitch - grid.gap };
}

/** The tile at a point, or undefined. */
export function hit(grid: Grid, count: number, x: number, y: number): number | undefined {
  const column = Math.floor(x / grid.pitch);
  const row = Math.floor(y / grid.pitch);
  if (x < 0 || y < 0 || column >= grid.columns) return undefined;
  const index = row * grid.columns + column;
  return index < count ? index : undefined;
}

export interface RowLabel {
  /** Of its first tile. */
  row: number;
  /** Its middle. */
  y: number;
}

/** Rows that are labelled, so that no label stands on another one. */
export function labelled(grid: Grid, height: number): RowLabel[] {
  const every = Math.max(1, Math.ceil(height / grid.pitch));
  const rows = Array.from({ length: Math.ceil(grid.rows / every) }, (_, place) => place * every);
  return rows.map((row) => ({ row, y: row * grid.pitch + (grid.pitch - grid.gap) / 2 }));
}

/** The tile an arrow key leads to from this one. */
export function step(grid: Grid, count: number, from: number, key: string): number | undefined {
  const moves: Record<string, number> = {
    ArrowLeft: from - 1,
    ArrowRight: from + 1,
    ArrowUp: from - grid.columns,
    ArrowDown: from + grid.columns,
    Home: 0,
    End: count - 1,
  };
  const to = moves[key];
  return to === undefined || to < 0 || to >= count ? undefined : to;
}
