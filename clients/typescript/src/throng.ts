// A client of a service on Throng, without dependencies: `fetch` and `WebSocket` of the platform (a browser, Node 20.3 or newer, Deno, Bun).

import { parse, stringify } from './json.js'
import { Problem, Rejection, backOff, isFinal, retrying } from './retry.js'
import { Socket } from './socket.js'

export { parse, stringify } from './json.js'
export { Deadline, Problem, Rejection, Unreachable, type ProblemDetails } from './retry.js'
export { Socket, type Follow } from './socket.js'

/** A whole number of 64 bits: a `bigint` where a `number` would not be exact, beyond 2^53 - 1. */
export type Integer = number | bigint

/** An event as history shows it. */
export interface Event {
  seq: number
  name: string
  version: number
  at: string
  position: string
  payload: unknown
}

/** An event that is followed. `cursor` is where a later call goes on after it; `entity` is set by those who follow a whole kind. */
export type Followed<E> = E & { cursor: string; entity?: string }

/** The types of a kind of entities. `throng client typescript` writes them from a service's OpenAPI document. */
export interface Kind {
  commands: object
  queries: object
  reply: unknown
  rejection: unknown
  event: Event
}

/** The types of a service: its kinds by their names. */
export type Service<S> = { [K in keyof S]: Kind }

/** What a client that was told no types takes. */
// biome-ignore lint: anything goes where no types are given.
export type Untyped = Record<string, { commands: Record<string, any>; queries: Record<string, { arguments: any; answer: any }>; reply: any; rejection: any; event: Event & { payload: any } }>

type Name<T> = keyof T & string
type ArgumentsOf<Q> = Q extends { arguments: infer A } ? A : never
type AnswerOf<Q> = Q extends { answer: infer A } ? A : never

export interface Options {
  /** Milliseconds until it fails, with all its attempts; 30,000 unless said. The service is told of it if it is said. */
  timeout?: number
  /** Ends it at once: its reason is thrown. What was sent may take effect all the same. */
  signal?: AbortSignal
}

export interface CommandOptions extends Options {
  /**
   * Under one key a command takes effect once. A key is made unless one is given, and kept over all attempts. `null`: no key, for actors and
   * for routes without one; then nothing is sent again that may have taken effect.
   */
  key?: string | null
  /** W3C trace context. */
  traceparent?: string
}

export interface ClientOptions {
  /** Shown as `Authorization: Bearer`; a function is asked for each attempt. */
  token?: string | (() => string | Promise<string>)
  /** The default of `Options.timeout`. */
  timeout?: number
}

/** Milliseconds without a sign of life, after which a stream is opened anew; the service gives one each 15 s. */
const SILENCE = 45_000

/** A client of one service. It holds no connection of its own and needs no end. */
export class Client<S extends Service<S> = Untyped> {
  readonly url: string
  readonly options: ClientOptions

  constructor(url: string, options: ClientOptions = {}) {
    new URL(url)
    this.url = url.replace(/\/+$/, '')
    this.options = options
  }

  /** Runs a command; resolves with its reply. */
  command<K extends Name<S>, C extends Name<S[K]['commands']>>(
    kind: K, id: string, command: C, body: S[K]['commands'][C] = {} as S[K]['commands'][C], options: CommandOptions = {},
  ): Promise<S[K]['reply']> {
    return this.request('POST', `/api/${kind}/${part(id)}/${part(command)}`, body, options) as Promise<S[K]['reply']>
  }

  /** Asks a query; without a name, the view. */
  query<K extends Name<S>, Q extends Name<S[K]['queries']>>(
    kind: K, id: string, query?: Q, args?: ArgumentsOf<S[K]['queries'][Q]>, options: Options = {},
  ): Promise<AnswerOf<S[K]['queries'][Q]>> {
    const name = query === undefined || query === 'view' ? '' : `/${part(query)}`
    return this.request('GET', `/api/${kind}/${part(id)}${name}${search(args ?? {})}`, undefined, options) as Promise<AnswerOf<S[K]['queries'][Q]>>
  }

  /** A page of an entity's events, after a sequence number. */
  history<K extends Name<S>>(kind: K, id: string, page: { after?: number; limit?: number } = {}, options: Options = {}): Promise<{ events: S[K]['event'][]; next: number | null }> {
    return this.request('GET', `/api/${kind}/${part(id)}/events${search(page)}`, undefined, options) as Promise<{ events: S[K]['event'][]; next: number | null }>
  }

  /** A page of the entities of a kind, in the order of their ids. */
  list<K extends Name<S>>(kind: K, page: { after?: string; limit?: number } = {}, options: Options = {}): Promise<{ entities: { id: string; seq: number }[]; next: string | null }> {
    return this.request('GET', `/api/${kind}${search(page)}`, undefined, options) as Promise<{ entities: { id: string; seq: number }[]; next: string | null }>
  }

  /** Any route of the service: its answer as JSON. A `GET` has no body and no key. */
  request(method: string, path: string, body?: unknown, options: CommandOptions = {}): Promise<unknown> {
    const reads = method === 'GET'
    const key = reads || options.key === null ? undefined : (options.key ?? crypto.randomUUID())
    const headers: Record<string, string> = {}
    if (!reads) headers['content-type'] = 'application/json'
    if (key !== undefined) headers['idempotency-key'] = key
    if (options.traceparent !== undefined) headers.traceparent = options.traceparent
    const content = reads ? undefined : stringify(body ?? {})
    return retrying(this.timed(options), reads || key !== undefined, async (left, signal) => {
      if (options.timeout !== undefined) headers['request-timeout'] = `${Math.ceil(left)}ms`
      const response = await this.#fetch(method, path, headers, content, signal)
      return parse(await response.text())
    })
  }

  /**
   * What happens to an entity, after a cursor, the sequence number of an event, or from its first: forever, over restarts of the service,
   * each event once. Leave the loop or abort `signal` to end it.
   */
  async *events<K extends Name<S>>(kind: K, id: string, { after, signal }: { after?: string | number; signal?: AbortSignal } = {}): AsyncGenerator<Followed<S[K]['event']>, void, void> {
    let last = after === undefined ? undefined : String(after)
    const path = `/api/${kind}/${part(id)}/events`
    for (let inVain = 0; ; ) {
      const end = new AbortController()
      const both = signal === undefined ? end.signal : AbortSignal.any([signal, end.signal])
      try {
        const response = await retrying({ timeout: Number.POSITIVE_INFINITY, signal }, true, () => {
          const headers: Record<string, string> = { accept: 'text/event-stream' }
          if (last !== undefined) headers['last-event-id'] = last
          return this.#fetch('GET', path, headers, undefined, both)
        })
        for await (const { id: cursor, data } of messages(response.body!, () => end.abort())) {
          inVain = 0
          last = cursor
          yield { ...(parse(data) as S[K]['event']), cursor }
        }
      } catch (error) {
        signal?.throwIfAborted()
        if (isFinal(error)) throw error
      } finally {
        end.abort()
      }
      await backOff(inVain++, signal)
    }
  }

  /** The words of an entity's no, with their type: of what a command of this kind has thrown. `undefined`: it was no rejection. */
  rejection<K extends Name<S>>(_kind: K, error: unknown): S[K]['rejection'] | undefined {
    return error instanceof Rejection ? error.rejection : undefined
  }

  /** A WebSocket for many commands at a time, and for what happens to a whole kind. It opens with the first request, and again when it was cut. */
  socket(): Socket<S> {
    return new Socket<S>(this)
  }

  /** @internal */
  timed({ timeout, signal }: Options): { timeout: number; signal: AbortSignal | undefined } {
    return { timeout: timeout ?? this.options.timeout ?? 30_000, signal }
  }

  /** @internal */
  async token(): Promise<string | undefined> {
    const { token } = this.options
    return typeof token === 'function' ? token() : token
  }

  async #fetch(method: string, path: string, headers: Record<string, string>, body: string | undefined, signal: AbortSignal): Promise<Response> {
    const token = await this.token()
    if (token !== undefined) headers.authorization = `Bearer ${token}`
    const response = await fetch(this.url + path, { method, headers, signal, ...(body === undefined ? {} : { body }) })
    if (response.ok) return response
    throw Problem.of(response.status, await response.text(), response.headers.get('retry-after'))
  }
}

/** A part of a path. */
function part(text: string): string {
  if (text === '.' || text === '..') throw new TypeError(`"${text}" cannot be a part of a URL: ask it over a socket()`)
  return encodeURIComponent(text)
}

function search(fields: object): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null)
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text === '' ? '' : `?${text}`
}

/** The server-sent events of a body that have an id. A body that is silent too long has ended. */
async function* messages(body: ReadableStream<Uint8Array>, silent: () => void): AsyncGenerator<{ id: string; data: string }> {
  const reader = body.pipeThrough(new TextDecoderStream() as unknown as TransformStream<Uint8Array, string>).getReader()
  let rest = ''
  while (true) {
    const timer = setTimeout(silent, SILENCE)
    const { done, value } = await reader.read().finally(() => clearTimeout(timer))
    if (done) return
    const blocks = (rest + value).split('\n\n')
    rest = blocks.pop()!
    for (const block of blocks) {
      const field = (name: string) => block.split('\n').find(line => line.startsWith(`${name}: `))?.slice(name.length + 2)
      const [id, data] = [field('id'), field('data')]
      if (id !== undefined && data !== undefined) yield { id, data }
    }
  }
}
