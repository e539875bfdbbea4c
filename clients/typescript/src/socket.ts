// The WebSocket: docs/websocket.md of Throng.

import { parse, stringify } from './json.js'
import { Problem, type ProblemDetails, Unreachable, isFinal, retrying, unless } from './retry.js'
import type { Client, CommandOptions, Followed, Options, Service } from './throng.js'

/** What is followed: an entity, or without `id` all of a kind. */
export interface Follow {
  id?: string
  /** A cursor, or `"start"`. Without it an entity's events begin at its first, a kind's at the present. */
  after?: string | number
  /** So many events are on their way at most; 100 unless said. */
  credit?: number
  signal?: AbortSignal
}

interface Message {
  type: string
  id?: number
  body?: unknown
  problem?: ProblemDetails
  events?: unknown[]
  cursor?: string
}

/** Of a frame at most: the service takes 2 MiB and 10,000 messages. */
const FRAME_LETTERS = 500_000
const FRAME_MESSAGES = 1_000

/** Commands, queries and events over one connection. What is asked in one go leaves as one frame, and is answered together. */
export class Socket<S extends Service<S>> {
  #client: Client<S>
  #link: Promise<Link> | undefined
  #isClosed = false

  /** @internal */
  constructor(client: Client<S>) {
    this.#client = client
  }

  /** Runs a command; resolves with its reply. */
  command<K extends keyof S & string, C extends keyof S[K]['commands'] & string>(
    kind: K, id: string, command: C, body: S[K]['commands'][C] = {} as S[K]['commands'][C], options: CommandOptions = {},
  ): Promise<S[K]['reply']> {
    const { traceparent } = options
    const key = options.key === null ? undefined : (options.key ?? crypto.randomUUID())
    return this.#ask({ type: 'command', kind, entity: id, command, body, key, traceparent }, options, key !== undefined) as Promise<S[K]['reply']>
  }

  /** Asks a query; without a name, the view. It shows all commands sent before it. */
  query(kind: keyof S & string, id: string, query = 'view', args: object = {}, options: Options = {}): Promise<unknown> {
    return this.#ask({ type: 'query', kind, entity: id, query, arguments: args }, options, true)
  }

  /** What happens to an entity or to all of a kind, forever, over cuts of the connection. Leave the loop or abort `signal` to end it. */
  async *follow<K extends keyof S & string>(kind: K, { id: entity, after, credit = 100, signal }: Follow = {}): AsyncGenerator<Followed<S[K]['event']>, void, void> {
    let last = after
    while (true) {
      try {
        const link = await retrying({ timeout: Number.POSITIVE_INFINITY, signal }, true, (_, end) => unless(end, this.#open()))
        for await (const { events, cursor } of link.follow({ type: 'subscribe', kind, entity, after: last, credit }, signal)) {
          for (const [at, event] of events.entries()) {
            const seen = event as S[K]['event']
            // Of a kind, several events may have one cursor: that before them begins no later than after each but the last.
            const own = entity === undefined ? (at + 1 === events.length ? cursor : String(last ?? '')) : `${seen.seq}@${seen.position}`
            yield { ...seen, cursor: own }
          }
          last = cursor
        }
        return
      } catch (error) {
        signal?.throwIfAborted()
        if (this.#isClosed || (isFinal(error) && !(error instanceof Problem && error.code === 'slow-reader'))) throw error
      }
    }
  }

  /** Ends it; what waits for an answer fails. */
  close(): void {
    this.#isClosed = true
    this.#link?.then(link => link.close(), () => {})
  }

  #ask(message: object, options: Options, once: boolean): Promise<unknown> {
    return retrying(this.#client.timed(options), once, async (left, signal) => {
      const timeout = options.timeout === undefined ? undefined : Math.ceil(left)
      const link = await unless(signal, this.#open())
      return link.ask({ ...message, timeout_ms: timeout }, signal)
    })
  }

  #open(): Promise<Link> {
    if (this.#isClosed) return Promise.reject(new Error('The socket was closed.'))
    this.#link ??= this.#client.token().then(token => Link.open(`${this.#client.url.replace(/^http/, 'ws')}/api/ws`, token, () => {
      this.#link = undefined
    }))
    return this.#link
  }
}

/** One connection. */
class Link {
  #socket: WebSocket
  #next = 1
  #told = new Map<number, (message: Message) => void>()
  #batch: object[] = []

  static open(url: string, token: string | undefined, ended: () => void): Promise<Link> {
    return new Promise((resolve, reject) => {
      const protocols = token === undefined ? ['throng.v1'] : ['throng.v1', `throng.bearer.${base64url(token)}`]
      const socket = new WebSocket(url, protocols)
      const link = new Link(socket)
      socket.onmessage = ({ data }) => {
        const frame = parse(data as string) as Message | Message[]
        for (const message of Array.isArray(frame) ? frame : [frame]) {
          if (message.type === 'hello') resolve(link)
          else link.#told.get(message.id!)?.(message)
        }
      }
      const end = (why: string) => {
        ended()
        reject(new Unreachable(why))
        for (const told of [...link.#told.values()]) told({ type: 'cut' })
      }
      socket.onclose = ({ code, reason }) => end(`The socket was closed with ${code}${reason && `: ${reason}`}.`)
      // Some platforms say no more of a socket that did not open.
      socket.onerror = () => end(`${url} cannot be reached.`)
    })
  }

  private constructor(socket: WebSocket) {
    this.#socket = socket
  }

  ask(message: object, signal: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const id = this.#next++
      const end = () => done(() => reject(new DOMException('aborted', 'AbortError')))
      const done = (settle: () => void) => {
        this.#told.delete(id)
        signal.removeEventListener('abort', end)
        settle()
      }
      signal.addEventListener('abort', end, { once: true })
      this.#told.set(id, ({ type, body, problem }) => done(() => {
        if (type === 'reply') resolve(body)
        else reject(problem === undefined ? new Unreachable('The socket was cut.') : Problem.read(problem))
      }))
      this.#send({ ...message, id })
    })
  }

  async *follow(subscription: { credit: number; [field: string]: unknown }, signal: AbortSignal | undefined): AsyncGenerator<{ events: unknown[]; cursor: string }, void, void> {
    const id = this.#next++
    const waiting: Message[] = []
    let wake = () => {}
    let isOpen = true
    const end = () => wake()
    signal?.addEventListener('abort', end, { once: true })
    this.#told.set(id, message => {
      waiting.push(message)
      wake()
    })
    this.#send({ ...subscription, id })
    try {
      for (let taken = 0; ; ) {
        signal?.throwIfAborted()
        const message = waiting.shift()
        if (message === undefined) {
          await new Promise<void>(resolve => {
            wake = resolve
          })
        } else if (message.type === 'events') {
          yield { events: message.events!, cursor: message.cursor! }
          taken += message.events!.length
          if (taken >= subscription.credit / 2) {
            this.#send({ type: 'credit', id, credit: taken })
            taken = 0
          }
        } else if (message.problem !== undefined || message.type === 'cut') {
          isOpen = false
          throw message.problem === undefined ? new Unreachable('The socket was cut.') : Problem.read(message.problem)
        } else if (message.type === 'ended') {
          isOpen = false
          return
        }
      }
    } finally {
      signal?.removeEventListener('abort', end)
      this.#told.delete(id)
      if (isOpen) this.#send({ type: 'unsubscribe', id })
    }
  }

  close(): void {
    this.#socket.close(1000)
  }

  // What is asked in one go leaves as one frame.
  #send(message: object): void {
    this.#batch.push(message)
    if (this.#batch.length > 1) return
    queueMicrotask(() => {
      let frame: string[] = []
      let letters = 0
      for (const text of this.#batch.splice(0).map(stringify)) {
        if (letters + text.length > FRAME_LETTERS || frame.length === FRAME_MESSAGES) {
          this.#flush(frame)
          frame = []
          letters = 0
        }
        frame.push(text)
        letters += text.length
      }
      this.#flush(frame)
    })
  }

  #flush(frame: string[]): void {
    if (frame.length > 0 && this.#socket.readyState === WebSocket.OPEN) this.#socket.send(frame.length === 1 ? frame[0]! : `[${frame}]`)
  }
}

function base64url(text: string): string {
  const bytes = new TextEncoder().encode(text)
  return btoa(String.fromCharCode(...bytes)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}
