/** How hot entities are: what they did lately, cooling with time. Only those that are warm are kept. */

/** What is left of the heat after a second. */
const COOLING = 0.72;
const COLD = 0.02;

/** An event between two looks stands for so many a second: the looks are seconds apart, and one event shall be seen. */
const SEEN_WEIGHT = 4;

export class Heat {
  private readonly warm = new Map<string, number>();
  private readonly seen = new Map<string, number>();
  /** Called when anything has become hotter, by who shows it. */
  changed: (() => void) | undefined;

  /** An entity that does so many things a second; 1 a second is seen, 1,000 glow. */
  touch(id: string, perSecond: number): void {
    const heat = Math.min(1, Math.log10(1 + Math.max(0, perSecond)) / 3);
    if (heat > (this.warm.get(id) ?? 0)) this.warm.set(id, heat);
  }

  /** An entity has so many events. It is hot by those that came since it was seen last; at first sight nothing is known of when they came. */
  see(id: string, events: number): void {
    const before = this.seen.get(id);
    if (before !== undefined && events > before) this.touch(id, (events - before) * SEEN_WEIGHT);
    if (before !== events) this.seen.set(id, events);
  }

  /** Lets all entities cool down by the seconds since the last call. */
  cool(seconds: number): void {
    const left = COOLING ** seconds;
    for (const [id, heat] of this.warm) {
      if (heat * left < COLD) this.warm.delete(id);
      else this.warm.set(id, heat * left);
    }
  }

  /** All that are warm. */
  all(): Iterable<[string, number]> {
    return this.warm;
  }

  /** From 0, cold, to 1, busy right now. */
  of(id: string): number {
    return this.warm.get(id) ?? 0;
  }

  get isCold(): boolean {
    return this.warm.size === 0;
  }
}
