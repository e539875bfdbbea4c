// eventsource.
import { EventSource } from 'eventsource'
import { answer, serve } from './driver.mjs'

const NAMES = ['opened', 'deposited']

const stream = ask => new Promise((resolve, reject) => {
  const source = new EventSource(ask.url)
  let seen = ''
  const leave = () => {
    source.close()
    resolve(answer(200, [], seen))
  }
  for (const name of NAMES) {
    source.addEventListener(name, event => {
      seen += `${name} ${event.data}\n`
      if (ask.until && seen.includes(ask.until)) leave()
    })
  }
  source.onerror = event => {
    if (seen && !ask.until) return leave()
    source.close()
    reject(new Error(`${event.code} ${event.message}`))
  }
})

serve({ stream })
