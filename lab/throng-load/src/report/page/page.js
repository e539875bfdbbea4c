"use strict";
// The page: tiles, findings, charts, tables, from the JSON in it.

const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const color = (name) => `var(--${name})`;
const SIDES = ["c1", "c2", "c3", "c4", "c5", "c6"].map(color);
const sideColor = (index) => SIDES[index % SIDES.length];
const sideDash = (index) => (index >= SIDES.length ? "5 3" : undefined);

function theme() {
  const wanted = location.hash.slice(1);
  const dark = wanted === "dark" || (wanted !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function heading() {
  const first = data.runs[0];
  const line = first ? `${new Date(first.started).toISOString().replace("T", " ").slice(0, 19)} UTC · ${first.machine.version} · ${first.machine.processor}, ${first.machine.cores} cores` : "";
  const button = element("button", { text: "Light / dark", type: "button" });
  button.addEventListener("click", () => { document.documentElement.dataset.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; });
  page.append(element("header", {}, element("div", {}, element("h1", { text: data.title }), element("div", { class: "soft small", text: line })), button));
}

function tiles(run) {
  const response = run.response.summary;
  const entries = [
    [whole(run.counters.successes), "successes"],
    [whole(run.counters.failures), `failures (${(run.failureShare * 100).toFixed(2)} %)`, run.counters.failures > 0],
    [number(run.throughput), run.wanted ? `requests/s of ${number(run.wanted)}` : "requests/s"],
    [`${+run.elapsed.toPrecision(4)} s`, `elapsed (${run.ended})`],
    [time(response.p50), run.open ? "median response" : "median latency"],
    [time(response.p99), "p99"],
    [time(response.max), "max"],
    [`${(run.cpuPerRequest / 1e3).toFixed(1)} µs`, "generator CPU a request"],
  ];
  page.append(element("div", { class: "tiles" }, entries.map(([value, name, bad]) => element("div", { class: "tile" }, element("b", { text: value, class: bad ? "bad" : undefined }), element("span", { text: name })))));
}

function notes() {
  const warnings = data.runs.flatMap((run) => run.warnings.map((warning) => (run.name ? `${run.name}: ` : "") + warning));
  if (data.sentences.length) page.append(element("div", { class: "findings" }, data.sentences.map((text) => element("p", { text }))));
  if (warnings.length) page.append(element("div", { class: "notes", role: "note" }, warnings.map((text) => element("p", { text: "⚠ " + text }))));
}

const seconds = { format: (at) => number(at) + " s", label: "time since start" };
const latency = { log: true, format: time, tick: shortTime };
const quantile = {
  log: true,
  ticks: [1, 2, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7],
  format: (inverse) => (inverse <= 1 ? "0 %" : +(100 - 100 / inverse).toPrecision(inverse < 10 ? 3 : 2 + Math.ceil(Math.log10(inverse))) + " %"),
  label: "percentile",
};

/** The seconds that were whole: the last one usually is not, and would look like a fall. */
function wholeSeconds(run) {
  const whole = data.rounds ? run.seconds : run.seconds.filter((second) => second.second + 1 <= run.elapsed + 0.05);
  return whole.length > 1 ? whole : run.seconds;
}
function over(run, pick) { return wholeSeconds(run).map((second) => [second.second + 0.5, pick(second)]); }
function busy(run) { return wholeSeconds(run).filter((second) => second.max_nanos > 0); }

/** Too short for a line through its seconds: shown by its requests instead. */
function brief(run) { return wholeSeconds(run).length < 3 && run.requests.length > 1; }
function dots(run) { return run.requests.map(([at, nanos, status]) => [at, nanos, `${time(nanos)}, status ${status || "none"}`]); }

function latencyOverTime(run) {
  const band = (low, high) => busy(run).map((second) => [second.second + 0.5, second[low], second[high]]);
  const line = (key) => busy(run).map((second) => [second.second + 0.5, second[key]]);
  const title = run.open ? "Response time over time" : "Latency over time";
  const slowest = { name: "slowest of each second", color: color("c2"), dots: true, opacity: run.outliers.length > 500 ? 0.35 : 0.75, radius: run.outliers.length > 500 ? 1.4 : 2.2, points: run.outliers.map(([at, nanos, status]) => [at, nanos, `${time(nanos)}, status ${status || "none"}`]) };
  if (brief(run)) return chart(title, { series: [{ name: run.every > 1 ? `one of ${run.every} requests` : "requests", color: color("c1"), dots: true, points: dots(run) }, slowest], x: seconds, y: latency, height: 300 });
  return chart(title, {
    bands: [
      { name: "p50–p90", color: color("c1"), opacity: 0.34, points: band("p50_nanos", "p90_nanos") },
      { name: "p90–p99", color: color("c1"), opacity: 0.2, points: band("p90_nanos", "p99_nanos") },
      { name: "p99–p99.9", color: color("c1"), opacity: 0.1, points: band("p99_nanos", "p999_nanos") },
    ],
    // The dots lie below the lines: in a long run they would hide them.
    series: [
      slowest,
      { name: "median", color: color("c1"), points: line("p50_nanos") },
      { name: "p99", color: color("c4"), width: 2.2, points: line("p99_nanos") },
    ],
    x: seconds, y: latency, height: 300,
  });
}

function percentileCurve(runs) {
  const series = runs.flatMap((run, index) => {
    const shown = [{ name: run.name || (run.open ? "response time" : "latency"), color: sideColor(index), dash: sideDash(index), points: run.response.curve }];
    if (run.open && runs.length === 1) shown.push({ name: "service time", color: color("c3"), dash: "5 3", points: run.service.curve });
    return shown;
  });
  return chart("Percentiles", { series, x: quantile, y: latency, note: runs.length === 1 && runs[0].open ? "Response time counts from the intended start: where it leaves service time, requests queued." : undefined });
}

/** Of a brief run: the requests that ended in each of equal parts of its time. */
function throughputOfParts(run) {
  const parts = Math.max(4, Math.min(24, Math.floor(run.requests.length / 16)));
  const ended = Array(parts).fill(0);
  for (const [at] of run.requests) ended[Math.min(parts - 1, Math.floor(at / run.elapsed * parts))] += run.every;
  return ended.map((count, part) => [(part + 0.5) * run.elapsed / parts, count * parts / run.elapsed]);
}

function throughput(runs) {
  if (runs.length === 1 && brief(runs[0])) return chart("Throughput", { series: [{ name: "requests/s", color: sideColor(0), points: throughputOfParts(runs[0]) }], x: seconds, y: {} });
  const series = runs.flatMap((run, index) => {
    const failures = { name: (run.name ? run.name + " " : "") + "failures/s", color: color("bad"), dash: index ? "5 3" : undefined, points: over(run, (second) => second.counters.failures) };
    return [{ name: (run.name ? run.name + " " : "") + "successes/s", color: sideColor(index), points: over(run, (second) => second.counters.successes) }, ...(run.counters.failures ? [failures] : [])];
  });
  return chart("Throughput and failures", { series, x: seconds, y: {} });
}

function errorsByKind(run) {
  const kinds = [...new Set(run.seconds.flatMap((second) => Object.keys(second.counters.errors)))];
  if (!kinds.length) return null;
  const palette = ["bad", "c2", "c4", "c6", "c5", "c3"];
  const series = kinds.map((kind, index) => ({ name: kind, color: color(palette[index % palette.length]), points: over(run, (second) => second.counters.errors[kind] || 0) }));
  return chart("Errors a second, by kind", { series, x: seconds, y: {} });
}

function connections(run) {
  if (brief(run)) return [];
  return [
    chart("Open connections", { series: [{ name: "connections", color: color("c6"), points: over(run, (second) => second.connections) }], x: seconds, y: {} }),
    chart("Bytes, kB a second", { series: [
      { name: "kB/s in", color: color("c3"), points: over(run, (second) => second.counters.bytes_in / 1e3) },
      { name: "kB/s out", color: color("c4"), points: over(run, (second) => second.counters.bytes_out / 1e3) },
    ], x: seconds, y: {} }),
  ];
}

function samples(run) {
  const units = new Map();
  for (const one of run.samples) units.set(one.unit, [...(units.get(one.unit) || []), one]);
  return [...units].map(([unit, list]) => chart(`Target${run.name ? " " + run.name : ""}${unit ? ": " + unit : ""}`, {
    series: list.map((one, index) => ({ name: one.name, color: color("c" + (index % 6 + 1)), dash: index >= 6 ? "5 3" : undefined, points: one.points })),
    x: seconds, y: {},
  }));
}

function overlaid(key, title) {
  return chart(title, {
    series: data.runs.map((run, index) => ({ name: run.name, color: sideColor(index), points: busy(run).map((second) => [second.second + 0.5, second[key]]) })),
    x: seconds, y: latency,
  });
}

function rounds(title, figure, y) {
  return chart(title, {
    series: data.rounds.map((list, index) => ({ name: data.runs[index].name, color: sideColor(index), dash: sideDash(index), dots: true, line: true, radius: 3.5, points: list.map((one, round) => [round + 1, one[figure]]) })),
    x: { label: "round", ticks: data.rounds[0].map((_, round) => round + 1), format: (round) => "" + round }, y,
    note: "Those of a round ran one after the other; who began rotated.",
  });
}

/** Figures side by side, with what each target's process spent where that is known. */
function sidesTable() {
  const measured = data.runs.some((run) => run.cost);
  const head = ["", "requests/s", "min", "mean", "median", "p95", "p99", "max", "failures", ...(measured ? ["CPU a request", "memory"] : [])];
  const rows = data.runs.map((run) => {
    const summary = run.response.summary;
    const cost = !measured ? [] : run.cost ? [time(run.cost.cpu_nanos_per_request), number(run.cost.memory_bytes / 1e6) + " MB"] : ["–", "–"];
    return [run.name, number(run.throughput), ...["min", "mean", "p50", "p95", "p99", "max"].map((key) => time(summary[key])), whole(run.counters.failures), ...cost];
  });
  return element("section", { class: "card wide" }, element("h2", { text: "Side by side" }), table(head, rows));
}

/** Requests of the last round by the time they ended, one chart a target, all on one scale. */
function requestsOverTime() {
  if (!data.rounds) return [];
  const shown = data.runs.map((run) => run.requests);
  const all = shown.flat().map((point) => point[1]).filter((nanos) => nanos > 0);
  if (!all.length) return [];
  const extent = all.reduce(([low, high], nanos) => [Math.min(low, nanos), Math.max(high, nanos)], [Infinity, 0]);
  return data.runs.map((run, index) => chart(`Latency over time, last round: ${run.name}`, {
    series: [{ color: sideColor(index), dots: true, points: dots(run).map(([at, ...rest]) => [at * 1e3, ...rest]) }],
    x: { format: (at) => number(at) + " ms", label: "time since the round's start" }, y: { ...latency, extent: [extent[0] / 1.2, extent[1] * 1.2] }, height: 210,
  }));
}

function capacityCurves() {
  const sorted = [...data.trials].sort((one, other) => one.rate - other.rate);
  const points = (pick) => sorted.map((trial) => [trial.rate, pick(trial)]);
  const x = { label: "rate asked for", format: number };
  return [
    chart("Latency over rate", {
      series: [
        { name: "p99", color: color("c1"), dots: true, line: true, radius: 3, points: points((trial) => trial.response.p99) },
        { name: "median", color: color("c3"), points: points((trial) => trial.response.p50) },
      ],
      marks: [{ value: data.promise.p99_nanos, name: `promise ${time(data.promise.p99_nanos)}`, color: color("bad") }],
      x, y: latency, height: 280,
    }),
    chart("Throughput over rate", { series: [{ name: "successes/s", color: color("c1"), dots: true, line: true, radius: 3, points: points((trial) => trial.throughput) }], x, y: {}, height: 280 }),
  ];
}

function table(head, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((text) => text === "" ? element("td", {}) : element("th", { text, scope: "col" })))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((text) => element("td", { text: String(text) })))))));
}

function latencyTable() {
  const head = ["", "count", "failures", "min", "mean", "median", "p90", "p95", "p99", "p99.9", "max"];
  const row = (name, count, failures, summary) => [name, whole(count), failures === null ? "" : whole(failures), ...["min", "mean", "p50", "p90", "p95", "p99", "p999", "max"].map((key) => time(summary[key]))];
  const rows = data.runs.flatMap((run) => {
    const name = (text) => (run.name ? `${run.name} ${text}` : text);
    const whole = [row(name(run.open ? "response time" : "latency"), run.response.summary.count, run.counters.failures, run.response.summary)];
    if (run.open) whole.push(row(name("service time"), run.service.summary.count, null, run.service.summary), row(name("sent late"), run.lateness.count, null, run.lateness), row(name("… by the generator"), run.ownDelay.count, null, run.ownDelay));
    return run.classes.length > 1 ? [...whole, ...run.classes.map((one) => row(name(one.name), one.response.count, one.counters.failures, one.response))] : whole;
  });
  return element("section", { class: "card wide" }, element("h2", { text: "Times" }), table(head, rows));
}

function facts(run) {
  const usage = run.generator;
  const { connections, ...settings } = run.settings;
  const entries = {
    target: run.target, ...settings, "connections at most": connections,
    "statuses": Object.entries(run.counters.statuses).map(([status, count]) => `${status}: ${whole(count)}`).join(", ") || "none",
    "errors": run.errors.map(([kind, count]) => `${kind}: ${whole(count)}`).join(", ") || "none",
    "answers that failed": run.classes.flatMap((one) => Object.entries(one.examples || {}).map(([status, body]) => `${one.name} ${status}: ${body}`)).join("\n") || "none",
    "connections opened": whole(run.opened),
    "generator": `${usage.threads} thread(s), ${(usage.cpu_nanos / 1e9).toFixed(2)} s CPU, busiest ${(usage.busiest_share * 100).toFixed(0)} % of a core, waited for a core ${(usage.run_delay_nanos / 1e9).toFixed(2)} s`,
    "machine": `${run.machine.processor}, ${run.machine.cores} cores, ${(run.machine.memory_bytes / 1e9).toFixed(1)} GB, ${run.machine.kernel}`,
    "version": run.machine.version,
  };
  const list = element("dl", {}, Object.entries(entries).map(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]));
  const card = element("section", { class: "card wide" }, element("h2", { text: run.name ? `Run ${run.name}` : "Run" }), list);
  if (run.plan) card.append(element("details", {}, element("summary", { text: "Plan" }), element("pre", { text: run.plan })));
  return card;
}

function wide(card) { if (card) card.classList.add("wide"); return card; }

theme();
heading();
notes();
if (data.kind !== "several" && data.runs.length) tiles(data.runs[0]);
const grid = element("div", { class: "grid" });
page.append(grid);
const cards = [];
if (data.kind === "capacity") {
  cards.push(...capacityCurves());
  const rows = [...data.trials].sort((one, other) => one.rate - other.rate).map((trial) => [number(trial.rate), number(trial.throughput), time(trial.response.p50), time(trial.response.p99), (trial.failure_share * 100).toFixed(2) + " %", trial.broken || "kept"]);
  cards.push(element("section", { class: "card wide" }, element("h2", { text: data.capacity ? `Highest rate that kept the promise: ${number(data.capacity)}` : "No rate kept the promise" }), table(["rate", "requests/s", "median", "p99", "failed", "promise"], rows)));
}
if (data.kind === "several") {
  cards.push(sidesTable());
  if (data.rounds) cards.push(rounds("Throughput by round", "throughput", {}), rounds("p99 by round", "p99_nanos", latency));
  const each = requestsOverTime();
  if (each.length % 2) wide(each.at(-1));
  cards.push(...each);
  cards.push(wide(percentileCurve(data.runs)), latencyTable());
  if (!data.rounds) cards.push(throughput(data.runs), overlaid("p99_nanos", "p99 over time"));
} else if (data.runs.length) {
  const run = data.runs[0];
  cards.push(wide(latencyOverTime(run)), percentileCurve(data.runs), throughput(data.runs), latencyTable(), ...samples(run), errorsByKind(run), ...connections(run));
  if (cards.filter(Boolean).length % 2) wide(cards.at(-1)); // latency and times are wide, all others pair up
}
if (data.kind === "several") for (const run of data.runs) cards.push(...samples(run));
for (const run of data.runs) cards.push(facts(run));
grid.append(...cards.filter(Boolean));
for (const holder of grid.querySelectorAll(".chart")) holder.draw();
