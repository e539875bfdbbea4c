// Runs clients/cases.json, whose first lines say what a step is, against THRONG_URL. Arguments: a part of a case's name.

import { readFileSync } from 'node:fs'
import { Client, Deadline, Problem, Rejection, parse, stringify } from '../dist/throng.js'

const { THRONG_URL, THRONG_CONTROL } = process.env
const { cases } = parse(readFileSync(new URL('../../cases.json', import.meta.url), 'utf8'))
const PATIENCE = 60_000

async function control(demand) {
  const answer = await fetch(THRONG_CONTROL, { method: 'POST', body: stringify(demand) })
  return answer.json()
}

/** An outcome as the cases name it. */
async function outcome(promise) {
  try {
    return { reply: await promise }
  } catch (error) {
    if (error instanceof Rejection) return { problem: error.code, status: error.status, rejection: error.rejection }
    if (error instanceof Problem) return { problem: error.code, status: error.status }
    if (error instanceof Deadline) return { error: 'Deadline', may_have_happened: error.mayHaveHappened }
    if (error.name === 'AbortError') return { error: 'Cancelled' }
    return { error: error.name, message: error.message }
  }
}

/** Each part of `expected` is in `found`; lists are as long. */
function differs(found, expected, at = '') {
  if (typeof expected !== 'object' || expected === null) return found === expected ? undefined : `${at}: ${stringify(found ?? null)}, not ${stringify(expected)}`
  if (expected.integer !== undefined) return differs(String(found), expected.integer, at)
  if (typeof found !== 'object' || found === null) return `${at}: ${stringify(found ?? null)}, not ${stringify(expected)}`
  if (Array.isArray(expected) && found.length !== expected.length) return `${at}: ${found.length} of them, not ${expected.length}: ${stringify(found)}`
  return Object.entries(expected).map(([name, value]) => differs(found[name], value, `${at}.${name}`)).find(Boolean)
}

function check(found, expected) {
  const difference = expected === undefined ? undefined : differs(found, expected)
  if (difference !== undefined) throw new Error(difference)
}

async function run({ steps }, number) {
  let token = 0
  const client = new Client(THRONG_URL, { token: () => `token-${++token}` })
  const socket = client.socket()
  const running = new Map()
  const abort = new Map()
  const own = `case-${number}`

  const ask = (step, signal) => {
    const { kind = 'account', id = own, body, key, timeout, traceparent } = step
    const to = step.socket ? socket : client
    const options = Object.fromEntries(Object.entries({ key, timeout, traceparent, signal }).filter(([, value]) => value !== undefined))
    if (step.command !== undefined) return to.command(kind, id, step.command, body, options)
    if (step.query !== undefined) return to.query(kind, id, step.query, step.arguments, options)
    if (step.history !== undefined) return client.history(kind, id, step.history, options)
    if (step.list !== undefined) return client.list(kind, step.list, options)
    if (step.get !== undefined) return client.request('GET', step.get, undefined, options)
    if (step.batch !== undefined) return Promise.all(Array(step.times ?? 1).fill(step.batch).flat().map(call => outcome(to.command(kind, call.id ?? id, call.command, call.body, { signal }))))
    throw new Error(`a step of no kind: ${stringify(step)}`)
  }

  try {
    for (const step of steps) {
      const end = new AbortController()
      if (step.control !== undefined) check(await control(step.control), step.expect)
      else if (step.follow !== undefined) {
        const { kind = 'account', id = own, after } = step.follow
        const options = { signal: end.signal, ...(after === undefined ? {} : { after }) }
        abort.set(step.as, end)
        running.set(step.as, step.socket
          ? socket.follow(kind, { ...options, ...(step.of_kind ? {} : { id }), ...(step.credit ? { credit: step.credit } : {}) })
          : client.events(kind, id, options))
      } else if (step.take !== undefined) {
        const events = []
        while (events.length < step.count) {
          const { value, done } = await running.get(step.take).next()
          if (done) throw new Error(`${step.take} ended after ${events.length} events`)
          // Of those who follow a kind: the case's own.
          if ((value.entity ?? own) === own) events.push(value)
        }
        check(events.map(({ name }) => name), step.names)
        check(events.map(({ seq }) => seq), step.seqs)
        check(events, step.events)
      } else if (step.fails !== undefined && step.as !== undefined) running.set(step.as, outcome(running.get(step.fails).next()))
      else if (step.fails !== undefined) check(await outcome(running.get(step.fails).next()), step.expect)
      else if (step.leave !== undefined) await running.get(step.leave).return()
      else if (step.cancel !== undefined) abort.get(step.cancel).abort()
      else if (step.await !== undefined) check(await running.get(step.await), step.expect)
      else if (step.as !== undefined) {
        abort.set(step.as, end)
        running.set(step.as, outcome(ask(step, end.signal)))
      } else check(await outcome(ask(step, end.signal)), step.expect)
    }
  } finally {
    for (const end of abort.values()) end.abort()
    socket.close()
    await control({ do: 'start' })
    await control({ do: 'faults', faults: [] })
  }
}

let passed = 0
let failed = 0
for (const [number, one] of cases.entries()) {
  if (!one.name.includes(process.argv[2] ?? '')) continue
  const timeout = new Promise((_, reject) => setTimeout(() => reject(new Error('took too long')), PATIENCE).unref())
  try {
    await Promise.race([run(one, number), timeout])
    passed += 1
  } catch (error) {
    failed += 1
    console.log(`FAILED ${one.name}\n    ${error.message}`)
  }
}
console.log(`typescript: ${passed} passed, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
