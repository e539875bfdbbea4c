// undici: `use_undici.mjs 1` or `use_undici.mjs 2` (over TLS).
import { Agent, buildConnector, request, WebSocket } from 'undici'
import { answer, saying, serve } from './driver.mjs'

const allowH2 = process.argv[2] === '2'
const connect = { rejectUnauthorized: false }
const agent = new Agent({ allowH2, connect })
const send = (ask, url = ask.url, dispatcher = agent) =>
  request(url, { method: ask.method, headers: ask.headers, body: ask.body, dispatcher, headersTimeout: 60_000 })
const told = (found, body) => answer(found.statusCode, Object.entries(found.headers).map(([name, value]) => [name, [value].flat().join(', ')]), body)

const ask = async ask => {
  const found = await send(ask)
  return told(found, await found.body.text())
}

const together = async ask => {
  const found = await Promise.all(ask.urls.map(async url => {
    const one = await send(ask, url)
    return [one.statusCode, await one.body.text()]
  }))
  return { status: found.map(one => one[0]), body: found.map(one => one[1]) }
}

const stream = async ask => {
  const found = await send(ask)
  let seen = ''
  for await (const piece of found.body) {
    seen += piece
    if (ask.until && seen.includes(ask.until)) break
  }
  return told(found, seen)
}

// Ends the sending side once the request is written.
const half = async ask => {
  let socket
  const connector = buildConnector(connect)
  const own = new Agent({ connect: (options, callback) => connector({ ...options, allowHalfOpen: true }, (error, made) => { socket = made; callback(error, made) }) })
  const found = send(ask, ask.url, own)
  while (!socket?.bytesWritten) await new Promise(resolve => setImmediate(resolve))
  socket.end()
  const one = await found
  const outcome = told(one, await one.body.text())
  await own.destroy()
  return outcome
}

serve({ ask, together, stream, half, ...saying(WebSocket) })
