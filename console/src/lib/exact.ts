/** JSON in which each number keeps its value: one that JavaScript's numbers do not hold keeps its digits. */

import type { Json } from './diff';

/** The digits of a number that JavaScript would change, such as 9007199254740993. */
export class Digits {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  /** About as much, for what only calculates. */
  valueOf(): number {
    return Number(this.text);
  }

  toJSON(): string {
    return MARK + this.text;
  }
}

/** Marks digits while they are a text; nobody can have written it before. */
const MARK = `digits ${Math.random()} `;
const MARKED = new RegExp(`"${MARK.replaceAll('.', '\\.')}([^"]+)"`, 'g');

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
/** A text, which is gone past, or a number. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
/** Without one of these no number can be changed. */
const LONG = /\d{16}|\d\.\d{15}|[eE][+-]?\d/;
/** A double is told from its neighbours by so many digits. */
const DIGITS_MAX = 17;

/** A number as it is written, or `undefined` if JSON has no such number. */
export function exact(text: string): number | Digits | undefined {
  if (!NUMBER.test(text)) return undefined;
  const value = Number(text);
  const isHeld = /^-?\d+$/.test(text)
    ? Number.isSafeInteger(value)
    : Number.isFinite(value) && text.replace(/[eE].*/, '').replace(/^[-0.]+|\D/g, '').length <= DIGITS_MAX;
  return isHeld ? value : new Digits(text);
}

/** Reads JSON; throws as `JSON.parse` does. */
export function parse(text: string): Json {
  const plain = JSON.parse(text) as Json;
  if (!LONG.test(text)) return plain;
  const marked = text.replace(TOKENS, (token) => {
    const number = token.startsWith('"') ? undefined : exact(token);
    return number instanceof Digits ? JSON.stringify(number) : token;
  });
  return JSON.parse(marked, (_, value) =>
    typeof value === 'string' && value.startsWith(MARK) ? new Digits(value.slice(MARK.length)) : value,
  ) as Json;
}

/** Writes JSON, with the digits as they were read. */
export function write(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).replace(MARKED, '$1');
}
