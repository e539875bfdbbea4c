/** Shards as the server writes them: ranges, such as `0-9,17`. */

/** How many there are: `0-9,17` → 11. */
export function count(ranges: string): number {
  return spans(ranges).reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

/** As it is shown, where a line may break. */
export function shown(ranges: string): string {
  return ranges.replaceAll(',', ', ');
}

/** The first and last of each range. */
export function spans(ranges: string): [first: number, last: number][] {
  if (ranges === '') return [];
  return ranges.split(',').map((range) => {
    const [first, last] = range.split('-').map(Number) as [number, number | undefined];
    return [first, last ?? first];
  });
}

/** Whether somebody has typed shards of a service that has so many: numbers and rising ranges. */
export function areShards(typed: string, all: number): boolean {
  if (!/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(typed)) return false;
  return spans(typed).every(([first, last]) => first <= last && last < all);
}

interface Owner {
  name: string;
  shards: string;
}

/** Shards that have another owner than before; nobody's name is empty. */
export interface Move {
  from: string;
  to: string;
  shards: number;
}

/** What has moved from one look to the next, most first. */
export function moves(before: Owner[], after: Owner[]): Move[] {
  const [was, is] = [ownerOfEach(before), ownerOfEach(after)];
  const found = new Map<string, Move>();
  for (const shard of new Set([...was.keys(), ...is.keys()])) {
    const [from, to] = [was.get(shard) ?? '', is.get(shard) ?? ''];
    if (from === to) continue;
    const key = JSON.stringify([from, to]);
    const move = found.get(key) ?? { from, to, shards: 0 };
    move.shards++;
    found.set(key, move);
  }
  return [...found.values()].sort((one, other) => other.shards - one.shards);
}

function ownerOfEach(owners: Owner[]): Map<number, string> {
  const of = new Map<number, string>();
  for (const { name, shards } of owners) {
    for (const [first, last] of spans(shards)) for (let shard = first; shard <= last; shard++) of.set(shard, name);
  }
  return of;
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
