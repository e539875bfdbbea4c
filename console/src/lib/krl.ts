/** KRL in pieces that are painted: enough to read by, not a parser. */

export type Paint = 'comment' | 'text' | 'number' | 'word' | 'name' | 'plain';

export interface Piece {
  paint: Paint;
  text: string;
}

const WORDS = new Set(
  (
    'ruleset meta global rule select when where foreach setting pre if then else every choose sample fired notfired ' +
    'finally always else raise event attributes for on final log info warn error debug clear schedule at repeat last ' +
    'use module alias with shares provides configure using name description author logging key errors and or not ' +
    'before after between within any count max min sum avg push function defaction return returns noop inactive active is ' +
    'true false null like cmp eq neq'
  ).split(' '),
);

/** The tokens in the order in which they are tried; a text in chevrons may hold anything up to its end. */
const TOKENS =
  /(?<comment>\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|(?<text>"(?:\\[\s\S]|[^"\\])*(?:"|$)|<<[\s\S]*?(?:>>|$)|re#(?:\\.|[^#\\\n])*#?[gi]*)|(?<number>\b\d+(?:\.\d+)?\b)|(?<name>\b(?:ent|app|event|meta|ctx):[A-Za-z_$][\w$]*)|(?<word>[A-Za-z_$][\w$]*)/g;

/** All of the source, in its order. */
export function paint(source: string): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  const plain = (to: number) => {
    if (to > at) pieces.push({ paint: 'plain', text: source.slice(at, to) });
  };
  for (const found of source.matchAll(TOKENS)) {
    const groups = found.groups ?? {};
    const kind = (['comment', 'text', 'number', 'name', 'word'] as const).find((kind) => groups[kind] !== undefined);
    const [text] = found;
    if (kind === undefined || (kind === 'word' && !WORDS.has(text))) continue;
    plain(found.index);
    pieces.push({ paint: kind, text });
    at = found.index + text.length;
  }
  plain(source.length);
  return pieces;
}
