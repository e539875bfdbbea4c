// Chromium, without a window: `fetch` and `WebSocket` of a page of the service. `use_chromium.mjs URL`
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { createInterface } from 'node:readline'
import WebSocket from 'ws'
import { serve } from './driver.mjs'

const profile = mkdtempSync(`${tmpdir()}/matrix-`)
const browser = spawn('chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--ignore-certificate-errors', '--no-first-run',
  '--disable-background-networking', '--remote-debugging-port=0', `--user-data-dir=${profile}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'pipe'] })
process.on('exit', () => {
  browser.kill('SIGKILL')
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
})

const endpoint = await new Promise((resolve, reject) => {
  browser.on('exit', code => reject(new Error(`chromium ended with ${code}`)))
  createInterface({ input: browser.stderr }).on('line', line => line.startsWith('DevTools listening on ') && resolve(line.slice(22)))
})
const pages = await (await fetch(endpoint.replace(/^ws(.*?)\/devtools.*/, 'http$1/json'))).json()
const devtools = new WebSocket(pages.find(page => page.type === 'page').webSocketDebuggerUrl)
await new Promise(resolve => devtools.once('open', resolve))
let number = 0
const waiting = new Map()
devtools.on('message', data => {
  const said = JSON.parse(data)
  waiting.get(said.id)?.(said)
})
const call = (method, params) => new Promise(resolve => {
  waiting.set(++number, resolve)
  devtools.send(JSON.stringify({ id: number, method, params }))
})
const evaluate = async expression => {
  const { result } = await call('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })
  if (result.exceptionDetails) throw new Error(result.exceptionDetails.exception?.description ?? result.exceptionDetails.text)
  return result.result.value
}

// What the page has, beside the module that Node's drivers share: they are the same functions.
const source = (await import('node:fs')).readFileSync(new URL('driver.mjs', import.meta.url), 'utf8')
const shared = source.replace(/^import.*$/gm, '').replace(/export const/g, 'var').replaceAll('Buffer.byteLength(body)', 'new TextEncoder().encode(body).length')
await call('Page.navigate', { url: process.argv[2] })
while (await evaluate(`location.href === ${JSON.stringify(process.argv[2])} && document.readyState === 'complete'`) !== true);
await evaluate(`${shared}; var page = { ...fetching((url, options) => fetch(url, { ...options, cache: 'no-store' })), ...saying(WebSocket) }`)

const inside = name => ask => {
  const body = ask.body && `Uint8Array.from(atob('${ask.body.toString('base64')}'), one => one.charCodeAt(0))`
  return evaluate(`page.${name}({ ...${JSON.stringify({ ...ask, body: undefined })}, body: ${body} })`)
}
serve({ ask: inside('ask'), together: inside('together'), stream: inside('stream'), say: inside('say') })
