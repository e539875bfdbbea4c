/** Shards as the server writes them: ranges, such as `0-9,17`. */

/** How many there are: `0-9,17` → 11. */
export function count(ranges: string): number {
  return parts(ranges).reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

/** As it is shown, where a line may break. */
export function shown(ranges: string): string {
  return ranges.replaceAll(',', ', ');
}

function parts(ranges: string): [first: number, last: number][] {
  if (ranges === '') return [];
  return ranges.split(',').map((range) => {
    const [first, last] = range.split('-').map(Number) as [number, number | undefined];
    return [first, last ?? first];
  });
}

/** Names to which shards are pinned, and of which no node lives: until one does, these shards are as all others. */
export function pinnedToNobody(
  pinned: Record<string, string>,
  nodes: { name: string; state: string }[],
): [name: string, ranges: string][] {
  const living = new Set(nodes.filter(lives).map((node) => node.name));
  return Object.entries(pinned).filter(([name]) => !living.has(name));
}

export function lives({ state }: { state: string }): boolean {
  return state === 'serving' || state === 'draining';
}
