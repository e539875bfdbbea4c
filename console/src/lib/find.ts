/** Finds words in texts, for the palette. */

/** Lower case, words apart. */
const words = (query: string) => query.toLowerCase().split(/\s+/).filter(Boolean);

/** True if a text holds every word of the query, wherever it stands. */
export function holds(text: string, query: string): boolean {
  const low = text.toLowerCase();
  return words(query).every((word) => low.includes(word));
}

/** `kind/id` and `kind id` name a kind and how an id begins; anything else is how an id of any kind begins. */
export function idPrefix(query: string, kinds: string[]): { kinds: string[]; prefix: string } {
  const typed = query.trim();
  const named = kinds.find((kind) => ['/', ' '].some((between) => typed.startsWith(kind + between)));
  return named === undefined
    ? { kinds, prefix: typed }
    : { kinds: [named], prefix: typed.slice(named.length + 1).trim() };
}
