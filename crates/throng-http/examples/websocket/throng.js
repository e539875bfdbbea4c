// A client of throng.v1 (docs/websocket.md) for browsers, and for Node with a global WebSocket.

// Integers that JavaScript's numbers do not hold (beyond 2^53) are BigInts here, and leave as they were given.
const exact = (() => {
  const mark = `integer ${Math.random()} `
  const marked = RegExp(`"${mark.replaceAll('.', '\\.')}(-?\\d+)"`, 'g')
  const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g
  const isLarge = token => /^-?[1-9]\d*$/.test(token) && !Number.isSafeInteger(Number(token))
  const read = (_, value) => typeof value === 'string' && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value
  return {
    parse: text => JSON.parse(text.replace(tokens, token => isLarge(token) ? `"${mark}${token}"` : token), read),
    write: value => JSON.stringify(value, (_, inner) => typeof inner === 'bigint' ? mark + inner : inner).replace(marked, '$1'),
  }
})()

class Throng {
  #socket; #next = 1; #waiting = new Map(); #following = new Map(); #batch = []; #over

  /// Opens a socket; resolves with the client once the service has said hello.
  static connect(url) {
    return new Promise((resolve, reject) => {
      const client = new Throng(new WebSocket(url, 'throng.v1'))
      client.#socket.onerror = () => reject(new Error(`${url} cannot be reached`))
      client.#socket.onmessage = ({ data }) => client.#told(exact.parse(data), resolve)
      client.#socket.onclose = ({ code, reason }) => {
        const error = new Error(`closed with ${code}: ${reason}`)
        client.#closed(error)
        reject(error)
      }
    })
  }

  constructor(socket) { this.#socket = socket }

  /// Runs a command. Options: key (idempotency), timeout_ms, traceparent.
  command(kind, entity, command, body = {}, options = {}) {
    return this.#ask({ type: 'command', kind, entity, command, body, ...options })
  }

  /// Asks a query; without a name, the view.
  query(kind, entity, query = 'view', args = {}) {
    return this.#ask({ type: 'query', kind, entity, query, arguments: args })
  }

  /// What happens to an entity, or without one to all of a kind, after a cursor: an async iterator, which grants credit as
  /// its events are taken, so that one who is slow is not flooded. An event's cursor begins no later than after the event: where
  /// several come together, that of all but the last is the one before, and some of them come again.
  async *follow({ kind, entity, after, credit = 100 }) {
    if (this.#over) throw this.#over
    const id = this.#next++
    const events = []
    let wake, ended = false, failure, cursor = after
    const told = message => {
      for (const [at, event] of (message.events ?? []).entries()) {
        events.push({ ...event, cursor: at + 1 === message.events.length ? message.cursor : cursor })
      }
      cursor = message.cursor ?? cursor
      if (message.type === 'ended' || message.type === 'problem') {
        ended = true
        failure = message.problem && Object.assign(new Error(message.problem.detail), { problem: message.problem })
      }
      wake?.()
    }
    this.#following.set(id, told)
    this.#send({ type: 'subscribe', id, kind, entity, after, credit })
    let taken = 0
    try {
      while (true) {
        while (events.length > 0) {
          yield events.shift()
          taken += 1
          if (taken >= credit / 2) {
            this.#send({ type: 'credit', id, credit: taken })
            taken = 0
          }
        }
        if (failure) throw failure
        if (ended) return
        await new Promise(resolve => { wake = resolve })
      }
    } finally {
      this.#following.delete(id)
      if (!ended) this.#send({ type: 'unsubscribe', id })
    }
  }

  close() { this.#socket.close(1000) }

  #ask(message) {
    if (this.#over) return Promise.reject(this.#over)
    const id = this.#next++
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#send({ ...message, id })
    })
  }

  // What is asked in one go leaves as one frame.
  #send(message) {
    if (this.#socket.readyState !== WebSocket.OPEN) return
    this.#batch.push(message)
    if (this.#batch.length > 1) return
    queueMicrotask(() => {
      const batch = this.#batch.splice(0)
      this.#socket.send(exact.write(batch.length === 1 ? batch[0] : batch))
    })
  }

  #told(frame, ready) {
    for (const message of Array.isArray(frame) ? frame : [frame]) {
      const waiting = this.#waiting.get(message.id)
      if (message.type === 'hello') {
        this.hello = message
        ready(this)
      } else if (waiting) {
        this.#waiting.delete(message.id)
        if (message.type === 'reply') waiting.resolve(message.body)
        else waiting.reject(Object.assign(new Error(message.problem.detail), { problem: message.problem }))
      } else this.#following.get(message.id)?.(message)
    }
  }

  #closed(error) {
    this.#over = error
    for (const { reject } of this.#waiting.values()) reject(error)
    for (const told of this.#following.values()) told({ type: 'ended', problem: { detail: error.message } })
    this.#waiting.clear()
  }
}
