//! A test of the console of pico-engine 1.x on our routes, in headless Chromium.
//!
//! The console's files are not part of this project. `PICO_ENGINE_CONSOLE` names the directory `public` of its package. Without it, the test is
//! skipped with a notice. It needs `chromium` on the path or in `CHROMIUM`; `THRONG_NO_BROWSER=1` skips it, too.

use crate::service::{PATIENCE, Service, is_without_browser, open};
use axum::{Router, response::Html, routing};
use std::{env, fs, path::Path, sync::mpsc};

/// A script that acts as a user in each tab, and checks the page.
const SCRIPT: &str = r#"
const tell = text => fetch('/report', { method: 'POST', body: text })
onunhandledrejection = event => tell('ERROR ' + (event.reason?.stack ?? event.reason))
let page, frame, step = 'start'
setTimeout(() => tell(`ERROR at ${step}: ${page?.body?.textContent.slice(0, 1500)}`), 40000)
const until = async what => { let found; while (!(found = what())) await new Promise(go => setTimeout(go, 10)); return found }
const all = selector => [...page.querySelectorAll(selector)]
const has = text => page.body.textContent.includes(text)
const button = (text, of = 'button') => all(of).find(button => button.textContent.trim() === text)
// React overrides the element's setter, so only the prototype's setter makes it notice the change.
const type = (input, text) => {
  const prototype = input.tagName === 'TEXTAREA' ? frame.contentWindow.HTMLTextAreaElement : frame.contentWindow.HTMLInputElement
  Object.getOwnPropertyDescriptor(prototype.prototype, 'value').set.call(input, text)
  input.dispatchEvent(new frame.contentWindow.Event('input', { bubbles: true }))
}
const show = async path => {
  frame?.remove()
  frame = document.createElement('iframe')
  frame.src = path
  document.body.append(frame)
  await new Promise(loaded => frame.addEventListener('load', loaded))
  page = frame.contentDocument
}
const tab = async (eci, name, says) => {
  step = name
  await show(`/#/pico/${eci}/${name}`)
  await until(() => all('.pico.open').length && has(says))
}
const get = async path => (await fetch(path)).json()

async function run() {
  const { eci } = await get('/api/ui-context')
  step = 'canvas'
  await show('/')
  await until(() => all('.pico').length === 1)

  await tab(eci, 'about', 'UI ECI')
  const add = all('form')[1]
  type(add.querySelector('input[type=text]'), 'Bob')
  add.requestSubmit()
  await until(() => has('delete') && has('Bob'))
  const [bob] = (await get(`/c/${eci}/query/io.picolabs.pico-engine-ui/box`)).children

  await tab(bob, 'rulesets', 'io.picolabs.wrangler')
  all('input[type=checkbox]').forEach(box => box.click())
  await until(() => all('.pico.open').length && has('Compiler version'))
  type(page.getElementById('new-rs-url'), RULESET)
  await until(() => !button('Install').disabled)
  button('Install').click()
  await until(() => has('io.example.greeter@1.0'))

  await tab(bob, 'channels', 'New Channel')
  await until(() => has('engine'))
  type(page.getElementById('new-chann-tags'), 'one,two')
  type(page.getElementById('new-chann-event-policy'), 'allow greet:*\ndeny greet:never')
  await until(() => !button('Add').disabled)
  button('Add').click()
  const channel = await until(() => all('.form-check').find(check => check.textContent.includes('one')))
  channel.querySelector('input').click()
  await until(() => has('greet:never') || has('never'))
  channel.querySelector('button').click()
  await until(() => !all('.form-check').some(check => check.textContent.includes('one')))

  await tab(bob, 'testing', 'Results')
  const select = await until(() => all('select option').length > 1 && all('select')[0])
  const own = [...select.options].find(option => option.textContent.includes('self'))
  Object.getOwnPropertyDescriptor(frame.contentWindow.HTMLSelectElement.prototype, 'value').set.call(select, own.value)
  select.dispatchEvent(new frame.contentWindow.Event('change', { bubbles: true }))
  const check = await until(() => page.getElementById('rid-io.example.greeter'))
  check.click()
  await until(() => button('hello') && button('greet:hello'))
  const form = button('hello').closest('form')
  form.querySelector('input').value = 'Ann'
  form.requestSubmit()
  await until(() => has('Hello Ann'))
  button('greet:hello').closest('form').requestSubmit()
  await until(() => has('"said"'))

  await tab(bob, 'logging', 'Logging')
  await until(() => has('greet:hello'))
  all('input[type=checkbox]')[0].click()
  await until(() => all('pre').length)

  await tab(eci, 'subscriptions', 'New Subscription')
  const known = (await get(`/c/${bob}/query/io.picolabs.subscription/wellKnown_Rx`)).id
  const input = name => page.querySelector(`input[placeholder=${name}]`)
  input('wellKnown_Tx').value = known
  input('name').value = 'friends'
  input('Rx_role').value = 'a'
  input('Tx_role').value = 'b'
  button('Add').closest('form').requestSubmit()
  await until(() => has('Outbound'))
  await tab(bob, 'subscriptions', 'Inbound')
  all('input[type=checkbox]')[0].click()
  ;(await until(() => button('Accept'))).click()
  await until(() => has('Established'))
  await tab(eci, 'subscriptions', 'Established')
  all('input[type=checkbox]')[0].click()
  ;(await until(() => button('Delete'))).click()
  await until(() => !has('Established'))

  await tab(bob, 'rulesets', 'io.example.greeter')
  page.getElementById('id-rid-io.example.greeter').click()
  ;(await until(() => button('flush'))).click()
  await until(() => !button('uninstall').disabled)
  button('uninstall').click()
  await until(() => !has('io.example.greeter'))

  await tab(eci, 'about', 'delete')
  button('delete').click()
  await until(() => has('- no children -'))
  await tell('all six tabs work')
}
run()
"#;

const GREETER: &str = r#"ruleset io.example.greeter {
  meta { name "Greeter" version "1.0" shares hello }
  global { hello = function(name) { "Hello " + name } }
  rule hello { select when greet hello send_directive("said", {"hello": hello(event:attr("name"))}) }
}"#;

#[test]
fn all_six_tabs_of_the_original_console_work() {
    let Some(console) = env::var_os("PICO_ENGINE_CONSOLE") else {
        eprintln!("left out: PICO_ENGINE_CONSOLE does not say where the original's console is");
        return;
    };
    if is_without_browser() {
        return;
    }
    let home = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("rulesets")).unwrap();
    let ruleset = home.path().join("greeter.krl");
    fs::write(&ruleset, GREETER).unwrap();
    let script = SCRIPT.replace("RULESET", &format!("'file://{}'", ruleset.display()));
    let (tell, told) = mpsc::channel();
    let report = async move |body: String| drop(tell.send(body));
    let script = move || {
        let script = script.clone();
        async move { ([("content-type", "text/javascript")], script) }
    };
    let beside = Router::new()
        .route("/report", routing::post(report))
        .route("/test.js", routing::get(script))
        .route(
            "/test",
            routing::get(async || Html("<body><script src=/test.js></script>")),
        )
        .merge(picos::console::routes(console.as_ref()).unwrap());
    let service = Service::start(beside);
    let _browser = open(&format!("{}/test", service.url()));
    let said = told.recv_timeout(PATIENCE).expect("the page says what came of it");
    assert_eq!(said, "all six tabs work");
}
