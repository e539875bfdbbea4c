// Runs the tests of pico-engine 1.x over HTTP, against pico-engine itself and against this engine, and compares what passes.
//
//     cargo build -p picos
//     ORIGINAL=DIR node lab/krl-differential/original-tests.js [FILE…]
//
// DIR is a built checkout of pico-engine. Its test files run unchanged: `ava` counts assertions here, and `startTestEngine` starts a program and
// is its client. Each test has an engine of its own, which listens on this machine only and ends with it. What tests ask of the engine's own
// process (its database, its log, modules in JavaScript, the time of an event) fails at both. The exit code is 1 if an assertion that the original
// passes fails here.
//
// PICOS is the program of this engine, `target/debug/picos` if it is not said; FILE a part of the names of the test files to run.
"use strict";
const assert = require("assert");
const { spawn } = require("child_process");
const fs = require("fs");
const Module = require("module");
const net = require("net");
const os = require("os");
const path = require("path");

const START_MS = 60_000;
const ANSWER_MS = 60_000;
const UI = "io.picolabs.pico-engine-ui";
const ALL = { allow: [{ domain: "*", name: "*" }], deny: [] };

const engineDir = path.join(path.resolve(process.env.ORIGINAL || "."), "packages", "pico-engine");
const rulesets = path.resolve(engineDir, "../../test-rulesets");
const picos = path.resolve(process.env.PICOS || path.join(__dirname, "../../target/debug/picos"));

/** How each engine is started, with this port and this empty directory. */
const PROGRAMS = {
  original: (port, home) => {
    const loopback =
      'const { Server } = require("net"); const { listen } = Server.prototype;' +
      'Server.prototype.listen = function (port, ...rest) { return listen.call(this, port, "127.0.0.1", ...rest); };';
    const env = { PORT: String(port), PICO_ENGINE_HOME: home, PICO_ENGINE_BASE_URL: `http://127.0.0.1:${port}` };
    return spawn(process.execPath, ["-e", `${loopback} require(${JSON.stringify(path.join(engineDir, "dist/cli.js"))})`], {
      env: { ...process.env, ...env },
      stdio: "ignore",
    });
  },
  picos: (port, home) =>
    spawn(picos, ["serve", "--data", home, "--listen", `127.0.0.1:${port}`], {
      env: { ...process.env, THRONG_PICOS_FILES: rulesets, THRONG_PICOS_HOST: `http://127.0.0.1:${port}` },
      stdio: "ignore",
    }),
};

/** An error in the engine's words. */
class Refused extends Error {
  toString() {
    return this.message;
  }
}

/** The original gives every event and query the header fields of its request. */
function withoutHeaders(value) {
  if (Array.isArray(value)) return value.map(withoutHeaders);
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).filter(([key]) => key !== "_headers");
  return Object.fromEntries(entries.map(([key, inner]) => [key, withoutHeaders(inner)]));
}

/** What a value is after it went through JSON, as each answer does. */
function plain(value) {
  return value === undefined ? null : JSON.parse(JSON.stringify(value));
}

function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer().on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** A running engine, with what the tests use of `pico-framework`. */
class Engine {
  static running = new Set();

  static async start(name) {
    const engine = new Engine();
    const port = await freePort();
    engine.home = fs.mkdtempSync(path.join(os.tmpdir(), "original-tests-"));
    engine.base = `http://127.0.0.1:${port}`;
    engine.child = PROGRAMS[name](port, path.join(engine.home, "data"));
    Engine.running.add(engine);
    let ended = null;
    engine.child.on("error", (error) => (ended = error.message)).on("exit", (code) => (ended = `it ended with ${code}`));
    const until = Date.now() + START_MS;
    for (;;) {
      try {
        engine.ui = (await engine.ask("/api/ui-context")).eci;
        break;
      } catch (error) {
        if (ended !== null || Date.now() > until) throw new Error(`${name} does not start: ${ended ?? error.message}`);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
    engine.rootPico = new Pico(engine, engine.ui, null);
    engine.picos = new Map();
    return engine;
  }

  async stop() {
    Engine.running.delete(this);
    if (this.child.exitCode === null && this.child.signalCode === null) {
      const ended = new Promise((resolve) => this.child.once("exit", resolve));
      this.child.kill("SIGKILL");
      await ended;
    }
    fs.rmSync(this.home, { recursive: true, force: true });
  }

  async ask(url, body) {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const headers = { "content-type": "application/json" };
    const sent = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
    const text = await (await fetch(this.base + url, { ...sent, signal })).text();
    const value = text === "" ? null : JSON.parse(text);
    if (value !== null && typeof value === "object" && typeof value.error === "string") throw new Refused(value.error);
    return withoutHeaders(value);
  }

  async eventWait({ eci, domain, name, data }) {
    const { eid, directives } = await this.ask(`/c/${eci}/event-wait/${domain}/${name}`, data.attrs);
    const responses = directives.map(({ name, options }) => ({ type: "directive", name, options }));
    return { eid, responses };
  }

  async query({ eci, rid, name, args = {} } = {}) {
    return this.ask(`/c/${eci}/query/${rid}/${name}`, args);
  }

  send(eci, name, attrs) {
    return this.eventWait({ eci, domain: "engine_ui", name, data: { attrs } });
  }

  getPico(eci) {
    const pico = this.picos.get(eci);
    if (pico instanceof Error) throw pico;
    return pico;
  }

  numberOfPicos() {
    return this.count;
  }

  /** The number of picos at and below this one, by its channel for the console. */
  async below(ui) {
    const { children } = await this.query({ eci: ui, rid: UI, name: "box" });
    let count = 1;
    for (const child of children) count += await this.below(child);
    return count;
  }
}

class Pico {
  constructor(engine, ui, parent) {
    Object.assign(this, { engine, ui, parent, ecis: [ui] });
    this.id = ui;
  }

  async newChannel({ tags }) {
    const queries = { allow: [{ rid: "*", name: "*" }], deny: [] };
    await this.engine.send(this.ui, "new_channel", { tags, eventPolicy: ALL, queryPolicy: queries });
    const { channels } = await this.engine.query({ eci: this.ui, rid: UI, name: "pico" });
    const made = channels.filter((channel) => channel.tags.join() === tags.join()).pop();
    this.ecis.push(made.id);
    this.engine.picos.set(made.id, this);
    return made;
  }

  async install({ url }) {
    await this.engine.send(this.ui, "install", { url });
  }

  async newPico({ rulesets }) {
    const children = async () => (await this.engine.query({ eci: this.ui, rid: UI, name: "box" })).children;
    const before = await children();
    await this.engine.send(this.ui, "new", { name: "child" });
    const ui = (await children()).find((child) => !before.includes(child));
    const child = new Pico(this.engine, ui, this);
    this.engine.picos.set(ui, child);
    for (const { rs } of rulesets) await child.install(rs);
    return ui;
  }

  async delPico(eci) {
    const { ecis } = this.engine.getPico(eci);
    await this.engine.send(this.ui, "del", { eci });
    for (const gone of ecis) {
      const asked = await this.engine.query({ eci: gone, rid: UI, name: "box" }).catch((error) => error);
      this.engine.picos.set(gone, asked);
    }
    this.engine.count = await this.engine.below(this.engine.ui);
  }
}

/** What tests import as `helpers/startTestEngine`. */
function helper(name) {
  const allowAllChannelConf = { tags: ["allow-all"] };
  const { cleanDirectives } = require(path.join(engineDir, "test/helpers/cleanDirectives"));
  const { toTestKrlURL } = require(path.join(engineDir, "test/helpers/toTestKrlURL"));

  async function startTestEngine(files = [], { modules } = {}) {
    if (modules) throw new Error("it gives the engine modules in JavaScript");
    const pf = await Engine.start(name);
    const pe = { pf, rsRegistry: { load: async (url) => ({ ruleset: { url } }) } };
    const installTestFile = (pico, file) => pico.install({ url: toTestKrlURL(file) });
    const { id: eci } = await pf.rootPico.newChannel(allowAllChannelConf);
    for (const file of files) await installTestFile(pf.rootPico, file);
    const mkSignal =
      (eci) =>
      async (domain, name, attrs = {}) =>
        cleanDirectives((await pf.eventWait({ eci, domain, name, data: { attrs } })).responses);
    const mkQuery =
      (rid) =>
      (name, args = {}) =>
        pf.query({ eci, rid, name, args });
    return { pe, eci, signal: mkSignal(eci), mkSignal, mkQuery, installTestFile };
  }
  return { allowAllChannelConf, startTestEngine };
}

/** Counts assertions as `ava` makes them; none of them ends a test. */
class Assertions {
  /** Why each assertion failed, on one line; null where it passed. */
  found = [];

  note(check) {
    try {
      check();
      this.found.push(null);
    } catch (error) {
      this.found.push(error.message.replace(/\s+/g, " "));
    }
  }

  deepEqual(found, expected) {
    this.note(() => assert.deepStrictEqual(plain(found), plain(expected)));
  }

  is(found, expected) {
    this.deepEqual(found, expected);
  }

  truthy(found) {
    this.note(() => assert.ok(found));
  }

  threw(error, { message } = {}) {
    this.note(() => {
      assert.ok(error instanceof Error, "it did not throw");
      if (message) assert.match(error.message, message);
    });
    return error;
  }

  throws(call, expected) {
    try {
      call();
    } catch (error) {
      return this.threw(error, expected);
    }
    return this.threw(undefined, expected);
  }

  async throwsAsync(call, expected) {
    const promise = typeof call === "function" ? call() : call;
    return this.threw(await promise.then(() => undefined, (error) => error), expected);
  }

  async notThrowsAsync(call) {
    const failed = await call.then(() => null, (error) => error);
    this.note(() => assert.strictEqual(failed, null));
  }
}

/** Runs a test file at an engine: what each of its assertions says, and why it broke off if it did. */
async function run(name, file) {
  const tests = [];
  const stubs = {
    ava: { default: (title, test) => tests.push(test) },
    startTestEngine: helper(name),
  };
  const load = Module._load;
  Module._load = function (request, ...rest) {
    return stubs[path.basename(request)] ?? load.call(this, request, ...rest);
  };
  try {
    delete require.cache[file];
    require(file);
  } finally {
    Module._load = load;
  }
  const assertions = new Assertions();
  let broken = null;
  for (const test of tests) {
    try {
      await test(assertions);
    } catch (error) {
      broken ??= String(error);
    }
    for (const engine of Engine.running) await engine.stop();
  }
  return { found: assertions.found, broken };
}

async function main(wanted) {
  if (!fs.existsSync(path.join(engineDir, "dist/cli.js"))) {
    throw new Error("ORIGINAL has to name a checkout of pico-engine 1.x that was built (npm install)");
  }
  require(require.resolve("ts-node", { paths: [engineDir] })).register({ transpileOnly: true, dir: engineDir });
  const test = path.join(engineDir, "test");
  const all = [test, path.join(test, "test-rulesets")].flatMap((dir) => fs.readdirSync(dir).map((name) => path.join(dir, name)));
  const files = all.filter((file) => file.endsWith(".ts") && fs.readFileSync(file, "utf8").includes("startTestEngine"));
  let [passed, both] = [0, 0];
  for (const file of files.filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))) {
    const label = path.relative(test, file);
    const original = await run("original", file);
    const here = await run("picos", file);
    original.found.forEach((why, index) => {
      if (why !== null) return console.log(`${label} #${index + 1} fails at the original: ${why}`);
      passed += 1;
      if (here.found[index] === null) both += 1;
      else console.log(`${label} #${index + 1} FAILS HERE: ${here.found[index] ?? `it was not reached: ${here.broken}`}`);
    });
    if (original.broken !== null) console.log(`${label} breaks off at the original: ${original.broken}`);
  }
  console.log(`${passed} assertions pass at the original, ${both} of them here`);
  process.exitCode = passed > 0 && both === passed ? 0 : 1;
}

main(process.argv.slice(2)).catch(async (error) => {
  console.error(error.message);
  for (const engine of Engine.running) await engine.stop();
  process.exitCode = 1;
});
