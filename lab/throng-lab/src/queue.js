"use strict";
// The page of `throng-lab queue`: what each way reached at full speed, and what it costs at every level below.

const { title, figures } = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const COLORS = ["c1", "c2", "c3", "c4", "c5", "c6"].map((name) => `var(--${name})`);
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";

// More than six lines in a chart are no chart: ours by themselves, and the adaptive one beside each kind of rival.
const ways = [...new Set(figures.levels.map((row) => row.way))];
const ours = ways.filter((way) => way.startsWith("throng"));
const rivals = ways.filter((way) => !ours.includes(way));
const arrays = rivals.filter((way) => way.includes("Vec"));
const groups = {
  "ours": ours,
  "beside channels": [ours[0], ...rivals.filter((way) => !arrays.includes(way))],
  "beside channels of arrays": [ours[0], ...arrays],
};

function table(heading, columns, rows) {
  const cells = (row) => columns.map(([, pick]) => element("td", { text: pick(row) }));
  return element("section", { class: "card wide" },
    element("h2", { text: heading }),
    element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, columns.map(([name]) => element("th", { text: name })))),
      element("tbody", {}, rows.map((row) => element("tr", {}, cells(row)))))));
}

function levels(heading, pick, format, { log = true, of = Object.keys(groups) } = {}) {
  return of.map((group) => {
    const series = groups[group].map((way, place) => ({
      name: way,
      color: COLORS[place % COLORS.length],
      points: figures.levels.filter((row) => row.way === way).map((row) => [row.wanted_per_s, pick(row)]),
    }));
    const x = { log: true, format: number, label: "trades a second wanted" };
    return chart(`${heading}, ${group}`, { series, x, y: { log, format }, height: 260 });
  });
}

page.append(
  element("header", {}, element("h1", { text: title })),
  element("div", { class: "grid" },
    table("A surge: as fast as they can", [
      ["way", (row) => row.way],
      ["trades", (row) => whole(row.items)],
      ["M/s, a call each", (row) => row.millions_per_s.toFixed(1)],
      ["of ceiling", (row) => row.of_ceiling.toFixed(2)],
      ["M/s, one call", (row) => row.at_once_millions_per_s.toFixed(1)],
      ["of ceiling", (row) => row.at_once_of_ceiling.toFixed(2)],
      ["CPU ns each", (row) => row.cpu_nanos.toFixed(1)],
      ["peak MB", (row) => row.peak_megabytes.toFixed(1)],
    ], figures.surges),
    ...levels("From hand to hand at the median", (row) => row.p50_micros * 1e3, time),
    ...levels("From hand to hand, 99 of 100", (row) => row.p99_micros * 1e3, time),
    ...levels("CPU a trade", (row) => row.cpu_nanos, time),
    ...levels("Trades in a batch", (row) => row.batch_items, number, { of: ["ours"] }),
    ...levels("Kept of the rate wanted", (row) => row.reached_per_s / row.wanted_per_s, number, { log: false }),
  ),
);
