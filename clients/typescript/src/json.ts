// JSON with whole numbers of any size: a `bigint` where a `number` would not be exact.

/** Texts, and numbers between them. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

/** Reads JSON. A whole number beyond 2^53 - 1 becomes a `bigint`. */
export function parse(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text)
  // No text of the service's begins with it.
  const mark = crypto.randomUUID()
  const marked = text.replace(TOKENS, token => (/^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${mark}${token}"` : token))
  return JSON.parse(marked, (_, value) => (typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value))
}

/** Writes JSON, with a `bigint` as the number it is. */
export function stringify(value: unknown): string {
  const mark = crypto.randomUUID()
  let some = false
  const text = JSON.stringify(value, (_, part) => {
    if (typeof part !== 'bigint') return part
    some = true
    return `${mark}${part}`
  })
  return some ? text.replace(new RegExp(`"${mark}(-?\\d+)"`, 'g'), '$1') : text
}
