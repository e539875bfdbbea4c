// What can go wrong, and what is sent again.

import { parse } from './json.js'

/** Problem details (RFC 9457). */
export interface ProblemDetails {
  type: string
  title: string
  status: number
  detail: string
  field?: string
  rejection?: unknown
  retry_after_s?: number
}

/** The service said no. Match on `code`. */
export class Problem extends Error {
  override readonly name: string = 'Problem'
  readonly problem: ProblemDetails
  /** The last part of its type: `unknown-entity`, or the code of an entity's rejection. */
  readonly code: string

  constructor(problem: ProblemDetails) {
    super(`${problem.title}: ${problem.detail}`)
    this.problem = problem
    this.code = problem.type.replace(/^.*\/problems\//, '')
  }

  /** Problem details as such, or a rejection. */
  static read(problem: ProblemDetails): Problem {
    return problem.rejection === undefined ? new Problem(problem) : new Rejection(problem)
  }

  /** What stands in an answer that is none. A proxy before the service says no in words of its own. */
  static of(status: number, text: string, retryAfter: string | null): Problem {
    let problem: Partial<ProblemDetails> = {}
    try {
      problem = (parse(text) ?? {}) as Partial<ProblemDetails>
    } catch {}
    if (typeof problem.type !== 'string') problem = { type: `status/${status}`, title: `Status ${status}`, detail: text.slice(0, 200) }
    const after = Number(retryAfter ?? Number.NaN)
    return Problem.read({ status, ...(after >= 0 ? { retry_after_s: after } : {}), ...problem } as ProblemDetails)
  }

  get status(): number {
    return this.problem.status
  }
}

/** An entity said no, in its own words; nothing was done. */
export class Rejection<R = unknown> extends Problem {
  override readonly name = 'Rejection'
  get rejection(): R {
    return this.problem.rejection as R
  }
}

/** There was no answer: the service cannot be reached, or the connection was cut. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

/** The time was over before an answer came. `cause` is what the last attempt met. */
export class Deadline extends Error {
  override readonly name = 'Deadline'
  /** An attempt may have taken effect, and it is not known. */
  readonly mayHaveHappened: boolean

  constructor(cause: unknown, mayHaveHappened: boolean) {
    const outcome = mayHaveHappened ? 'it may have taken effect' : 'nothing was done'
    super(`The time was over before there was an answer; ${outcome}.`, { cause })
    this.mayHaveHappened = mayHaveHappened
  }
}

/** The service did nothing, and may do it later. */
const NOTHING_DONE = new Set(['overloaded', 'unavailable', 'too-many-requests', 'storage-full', 'expired', 'request-timeout', 'status/429'])
/** Of answers without such a code: statuses of proxies behind which anything may have happened. */
const UNKNOWN = new Set([502, 503, 504])
const BACK_OFF_FIRST = 50
const BACK_OFF_MAX = 2_000

/** Asking again would get the same answer. */
export function isFinal(error: unknown): boolean {
  return error instanceof Problem ? !NOTHING_DONE.has(error.code) && !isUnknown(error) : !isUnreachable(error)
}

/** It may have taken effect. */
function isUnknown(error: unknown): boolean {
  return error instanceof Problem ? !NOTHING_DONE.has(error.code) && UNKNOWN.has(error.status) : true
}

/** `fetch` says so of whatever kept it from an answer; a body that ends early is no different. */
function isUnreachable(error: unknown): boolean {
  return error instanceof Unreachable || error instanceof TypeError || (error instanceof DOMException && error.name === 'AbortError')
}

/** Attempts until one is answered, the answer is final, or the time is over. `once`: one that may have happened can be sent again. */
export async function retrying<T>(
  { timeout, signal }: { timeout: number; signal: AbortSignal | undefined }, once: boolean, attempt: (left: number, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const end = performance.now() + timeout
  let mayHaveHappened = false
  for (let attempts = 0; ; attempts++) {
    signal?.throwIfAborted()
    const left = end - performance.now()
    const over = new AbortController()
    const timer = Number.isFinite(left) ? setTimeout(() => over.abort(), left) : undefined
    try {
      return await attempt(left, signal === undefined ? over.signal : AbortSignal.any([signal, over.signal]))
    } catch (error) {
      signal?.throwIfAborted()
      const ended = over.signal.aborted
      if (!ended && isFinal(error)) throw error
      mayHaveHappened ||= ended || isUnknown(error)
      const cause = error instanceof TypeError ? new Unreachable(String(error.cause ?? error.message), { cause: error }) : error
      if (mayHaveHappened && !once) throw ended ? new Deadline(cause, true) : cause
      const wait = pause(error, attempts)
      if (performance.now() + wait >= end) throw new Deadline(cause, mayHaveHappened)
      await sleep(wait, signal)
    } finally {
      clearTimeout(timer)
    }
  }
}

/** What the service asks for and a little more, so that its clients do not come at once; or twice as long each time. */
function pause(error: unknown, attempts: number): number {
  const after = error instanceof Problem ? error.problem.retry_after_s : undefined
  const some = Math.random()
  if (after !== undefined) return after * 1_000 + some * 100
  return Math.min(BACK_OFF_MAX, BACK_OFF_FIRST * 2 ** attempts) * (0.5 + some / 2)
}

/** Waits as after so many attempts in vain. */
export function backOff(attempts: number, signal: AbortSignal | undefined): Promise<void> {
  return sleep(pause(undefined, attempts), signal)
}

/** What a promise comes to, unless the signal aborts before. */
export function unless<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(new DOMException('aborted', 'AbortError'))
    signal.addEventListener('abort', end, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
  })
}

function sleep(wait: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end)
      resolve()
    }, wait)
    signal?.addEventListener('abort', end, { once: true })
  })
}
