// What the drivers of Node share; driver.py says what stands in a line.

import { createInterface } from 'node:readline'

const SHOWN = 4000

export const answer = (status, headers, body, bytes = Buffer.byteLength(body)) => ({
  status,
  header: headers.map(([name, value]) => `${name}: ${value}`),
  body: body.length <= SHOWN ? body : body.slice(0, SHOWN / 2) + body.slice(-SHOWN / 2),
  bytes,
})

const read = line => {
  const form = new URLSearchParams(line)
  return {
    do: form.get('do'),
    method: form.get('method'),
    url: form.get('url'),
    urls: form.getAll('url'),
    until: form.get('until'),
    message: form.get('message'),
    headers: Object.fromEntries(form.getAll('header').map(line => line.split(/: (.*)/s, 2))),
    body: form.has('body') ? Buffer.from(form.get('body'), 'base64') : undefined,
  }
}

export const serve = async operations => {
  for await (const line of createInterface({ input: process.stdin })) {
    const ask = read(line)
    let outcome
    try {
      outcome = operations[ask.do] ? await operations[ask.do](ask) : { error: `there is no ${ask.do}` }
    } catch (error) {
      outcome = { error: `${error.name}: ${error.message} ${error.cause?.message ?? ''}` }
    }
    const form = new URLSearchParams()
    for (const [name, value] of Object.entries(outcome)) for (const one of [value].flat()) form.append(name, one)
    console.log(`${form}`)
  }
  process.exit(0)
}

// The operations of whatever has the interface of `fetch`.
export const fetching = fetch => {
  const send = (ask, url = ask.url, signal = AbortSignal.timeout(60_000)) =>
    fetch(url, { method: ask.method, headers: ask.headers, body: ask.body, signal })
  const ask = async ask => {
    const found = await send(ask)
    return answer(found.status, [...found.headers], await found.text())
  }
  const together = async ask => {
    const found = await Promise.all(ask.urls.map(async url => {
      const one = await send(ask, url)
      return [one.status, await one.text()]
    }))
    return { status: found.map(one => one[0]), body: found.map(one => one[1]) }
  }
  const stream = async ask => {
    const control = new AbortController()
    const found = await send(ask, ask.url, control.signal)
    const decoder = new TextDecoder()
    let seen = ''
    for await (const piece of found.body) {
      seen += decoder.decode(piece, { stream: true })
      if (ask.until && seen.includes(ask.until)) break
    }
    control.abort()
    return answer(found.status, [...found.headers], seen)
  }
  return { ask, together, stream }
}

// The operation of whatever has the interface of `WebSocket`.
export const saying = WebSocket => {
  let socket
  const next = () => new Promise((resolve, reject) => {
    socket.onmessage = event => resolve(event.data)
    socket.onclose = event => reject(new Error(`closed with ${event.code}`))
    socket.onerror = event => reject(new Error(event.message || 'the socket failed'))
  })
  const say = async ask => {
    if (socket?.readyState !== 1) {
      socket = new WebSocket(ask.url)
      await next()
    }
    const said = next()
    socket.send(ask.message)
    const found = JSON.parse(await said)
    return answer(0, [], JSON.stringify(Array.isArray(found) ? found[0] : found))
  }
  return { say }
}
