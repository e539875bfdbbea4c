/** Series of the last minutes, a value a second, in columns as plots want them. */

export const SECONDS_KEPT = 900;

const SPANS = [60, 120, 300, 600];

export class Series {
  /** Seconds since 1970, rising. */
  readonly at: number[] = [];
  private readonly columns = new Map<string, (number | null)[]>();

  constructor(readonly kept: number = SECONDS_KEPT) {}

  /** Adds what was measured in a second. One that is there already is replaced, one before the last is ignored. */
  add(at: number, values: Record<string, number | null | undefined>): void {
    const last = this.at.at(-1);
    if (last !== undefined && at < last) return;
    const replaces = at === last;
    if (!replaces) this.at.push(at);
    const place = this.at.length - 1;
    for (const name of Object.keys(values)) {
      if (!this.columns.has(name)) this.columns.set(name, new Array(place).fill(null));
    }
    for (const [name, column] of this.columns) {
      column[place] = values[name] ?? null;
    }
    this.trim();
  }

  column(name: string): (number | null)[] {
    return this.columns.get(name) ?? new Array(this.at.length).fill(null);
  }

  /** The newest value that is known; `undefined` while none is. */
  last(name: string): number | undefined {
    return this.columns.get(name)?.at(-1) ?? undefined;
  }

  /** Seconds to show: all there are, in steps, so that a young series is not a line at the edge. */
  span(): number {
    const age = (this.at.at(-1) ?? 0) - (this.at[0] ?? 0);
    return SPANS.find((span) => span >= age) ?? this.kept;
  }

  clear(): void {
    this.at.length = 0;
    this.columns.clear();
  }

  private trim(): void {
    const excess = this.at.length - this.kept;
    if (excess <= 0) return;
    this.at.splice(0, excess);
    for (const column of this.columns.values()) column.splice(0, excess);
  }
}
