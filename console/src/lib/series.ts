/** Series of the last minutes, a value a second, in columns as plots want them. */

export const SECONDS_KEPT = 900;

const SPANS = [60, 120, 300, 600];
/** Between two points lies a gap from so many seconds on. A busy machine is late with some. */
const GAP_SECONDS = 5;

/** Starts of the server that are remembered: more do not stand in one plot. */
const STARTS_MAX = 16;

/** The server was away, or has begun anew: the last second before and the first one after. */
export interface Gap {
  from: number;
  to: number;
}

export class Series {
  /** Seconds since 1970, rising. */
  readonly at: number[] = [];
  private readonly columns = new Map<string, (number | null)[]>();
  private gaps_: Gap[] = [];
  private starts: number[] = [];

  constructor(readonly kept: number = SECONDS_KEPT) {}

  /** Adds what was measured in a second. One that is there already is replaced, one before the last is ignored. */
  add(at: number, values: Record<string, number | null | undefined>): void {
    const last = this.at.at(-1);
    if (last !== undefined && at < last) return;
    const isGap = (from: number) =>
      at - from >= GAP_SECONDS || this.starts.some((start) => from < start && start <= at);
    if (last !== undefined && at > last && isGap(last)) {
      this.gaps_.push({ from: last, to: at });
      this.put(Math.min(last + 1, at), {});
    }
    this.put(at, values);
    this.trim();
  }

  /** The server has begun at this second: what lies before is another one's. */
  begin(at: number): void {
    if (this.starts.at(-1) !== at) this.starts = [...this.starts, at].slice(-STARTS_MAX);
  }

  /** Forgets the points from a second on: they come anew. */
  cut(from: number): void {
    const open = this.gaps_.find((gap) => gap.to >= from);
    const place = this.at.findIndex((at) => at >= Math.min(from, (open?.from ?? from) + 1));
    if (place < 0) return;
    this.at.length = place;
    for (const column of this.columns.values()) column.length = place;
    this.gaps_ = this.gaps_.filter((gap) => gap.to < from);
  }

  /** The gaps among the points, in their order. */
  get gaps(): readonly Gap[] {
    return this.gaps_;
  }

  private put(at: number, values: Record<string, number | null | undefined>): void {
    if (at !== this.at.at(-1)) this.at.push(at);
    const place = this.at.length - 1;
    for (const name of Object.keys(values)) {
      if (!this.columns.has(name)) this.columns.set(name, new Array(place).fill(null));
    }
    for (const [name, column] of this.columns) {
      column[place] = values[name] ?? null;
    }
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

  private trim(): void {
    const first = (this.at.at(-1) ?? 0) - this.kept + 1;
    const old = this.at.findIndex((at) => at >= first);
    if (old <= 0) return;
    this.at.splice(0, old);
    for (const column of this.columns.values()) column.splice(0, old);
    this.gaps_ = this.gaps_.filter((gap) => gap.to >= first);
  }
}
