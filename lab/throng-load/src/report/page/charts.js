"use strict";
// Charts as SVG, drawn for the width there is and drawn again when it changes.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined) continue;
    if (key === "text") made.textContent = value; else made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) if (child) made.append(child);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function time(nanos) {
  const [value, unit] = nanos < 1e3 ? [nanos, "ns"] : nanos < 1e6 ? [nanos / 1e3, "µs"] : nanos < 1e9 ? [nanos / 1e6, "ms"] : [nanos / 1e9, "s"];
  return (value < 9.995 && nanos >= 1e3 ? value.toFixed(2) : value < 99.95 && nanos >= 1e3 ? value.toFixed(1) : Math.round(value)) + " " + unit;
}
function shortTime(nanos) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (nanos >= size) return +(nanos / size).toPrecision(3) + " " + unit;
  return Math.round(nanos) + " ns";
}
function number(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return +(value / 1e3).toPrecision(3) + " k";
  return size >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}
function whole(value) { return Math.round(value).toLocaleString("en"); }

/** Round values between two ends, about as many as wanted. */
function linearTicks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(+tick.toPrecision(12));
  return ticks;
}
function logTicks(low, high, wanted) {
  const ticks = [];
  const decades = Math.log10(high / low);
  const factors = decades > wanted ? [1] : decades > wanted / 2 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  return ticks;
}

/**
 * A chart. `series` have points [x, y] and are lines (or dots: `dots`), `bands` points [x, low, high].
 * `x` and `y` say label, format, log, ticks, and `y` an extent that several charts share; `marks` are horizontal lines at a value.
 */
function chart(title, { series = [], bands = [], x = {}, y = {}, height = 250, marks = [], note }) {
  const holder = element("div", { class: "chart" });
  const legend = element("div", { class: "legend" });
  for (const one of [...bands, ...series])
    if (one.name) legend.append(element("span", {}, Object.assign(element("i", { class: one.dots ? "dot" : undefined }), { style: `background:${one.color};opacity:${one.opacity || 1}` }), document.createTextNode(one.name)));
  const draw = () => {
    holder.replaceChildren();
    const width = Math.max(240, holder.clientWidth);
    const left = 58, right = 24, top = 10, bottom = x.label ? 40 : 28;
    const xs = [...series, ...bands].flatMap((one) => one.points.map((point) => point[0]));
    const positive = (value) => !y.log || value > 0;
    const ys = [...series.flatMap((one) => one.points.map((point) => point[1])), ...bands.flatMap((one) => one.points.flatMap((point) => point.slice(1))), ...marks.map((mark) => mark.value)].filter(positive);
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
    holder.append(svg);
    if (!xs.length || !ys.length) {
      svg.append(drawn("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to show"));
      return;
    }
    const extent = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
    let [xLow, xHigh] = extent(xs), [yLow, yHigh] = extent(ys);
    if (xLow === xHigh) { xLow -= x.log ? xLow / 2 : 0.5; xHigh += x.log ? xHigh : 0.5; }
    if (y.log) { yLow /= 1.2; yHigh *= 1.2; } else { yLow = Math.min(0, yLow); yHigh = yHigh > yLow ? yHigh + (yHigh - yLow) * 0.06 : yLow + 1; }
    if (y.extent) [yLow, yHigh] = y.extent;
    const scale = (axis, low, high, from, to) => axis.log
      ? (value) => from + (Math.log(Math.max(value, low * 1e-3) / low) / Math.log(high / low)) * (to - from)
      : (value) => from + ((value - low) / (high - low)) * (to - from);
    const px = scale(x, xLow, xHigh, left, width - right), py = scale(y, yLow, yHigh, height - bottom, top);
    const yTicks = y.log ? logTicks(yLow, yHigh, 6) : linearTicks(yLow, yHigh, 5);
    const wanted = Math.max(2, Math.floor((width - left) / 80));
    const xTicks = (x.ticks || (x.log ? logTicks(xLow, xHigh, wanted) : linearTicks(xLow, xHigh, wanted))).filter((tick) => tick >= xLow && tick <= xHigh);
    for (const tick of yTicks) {
      svg.append(drawn("line", { class: "gridline", x1: left, x2: width - right, y1: py(tick), y2: py(tick) }));
      svg.append(drawn("text", { x: left - 7, y: py(tick) + 4, "text-anchor": "end" }, (y.tick || y.format || number)(tick)));
    }
    let labelled = -Infinity;
    for (const tick of xTicks) {
      svg.append(drawn("line", { class: "axis", x1: px(tick), x2: px(tick), y1: height - bottom, y2: height - bottom + 4 }));
      const label = (x.format || number)(tick);
      const half = Math.max(22, label.length * 3.5 + 5);
      if (px(tick) - half < labelled) continue;
      labelled = px(tick) + half;
      svg.append(drawn("text", { x: px(tick), y: height - bottom + 19, "text-anchor": "middle" }, label));
    }
    svg.append(drawn("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
    if (x.label) svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, x.label));
    const clipped = (value) => py(y.log ? Math.max(value, yLow) : value);
    for (const band of bands) {
      const points = band.points.filter((point) => positive(point[2]));
      if (!points.length) continue;
      const upper = points.map(([at, , high]) => `${px(at).toFixed(1)},${clipped(high).toFixed(1)}`);
      const lower = points.map(([at, low]) => `${px(at).toFixed(1)},${clipped(low).toFixed(1)}`).reverse();
      svg.append(drawn("polygon", { points: [...upper, ...lower].join(" "), fill: band.color, opacity: band.opacity || 0.25 }));
    }
    for (const one of series) {
      const points = one.points.filter((point) => positive(point[1]));
      if (one.dots || points.length === 1) {
        const thin = Math.ceil(points.length / 4000);
        points.forEach(([at, value, tip], index) => {
          if (index % thin) return;
          const dot = drawn("circle", { cx: px(at), cy: py(value), r: one.radius || 2.2, fill: one.color, opacity: one.opacity || 0.75 });
          if (tip) dot.append(drawn("title", {}, tip));
          svg.append(dot);
        });
        if (one.dots && !one.line) continue;
      }
      svg.append(drawn("polyline", { points: points.map(([at, value]) => `${px(at).toFixed(1)},${py(value).toFixed(1)}`).join(" "), fill: "none", stroke: one.color, "stroke-width": one.width || 1.8, "stroke-linejoin": "round", "stroke-dasharray": one.dash || "none" }));
    }
    for (const mark of marks) {
      svg.append(drawn("line", { x1: left, x2: width - right, y1: py(mark.value), y2: py(mark.value), stroke: mark.color, "stroke-width": 1.5, "stroke-dasharray": "6 4" }));
      svg.append(drawn("text", { x: left + 6, y: py(mark.value) - 5 }, mark.name));
    }
    hover(holder, svg, { series, x, y, px, left, right: width - right, top, bottom: height - bottom, width });
  };
  holder.draw = () => { holder.drawnWidth = holder.clientWidth; draw(); };
  new ResizeObserver(() => { if (holder.clientWidth !== holder.drawnWidth) requestAnimationFrame(holder.draw); }).observe(holder);
  const card = element("section", { class: "card" }, element("h2", { text: title }), note ? element("div", { class: "soft small", text: note }) : null, legend, holder);
  return card;
}

/** A cross at the nearest x, with every line's value there. */
function hover(holder, svg, { series, x, y, px, left, right, top, bottom, width }) {
  const lines = series.filter((one) => one.name && (!one.dots || one.line) && one.points.length);
  if (!lines.length) return;
  const cross = drawn("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" });
  svg.append(cross);
  const tip = element("div", { class: "tip", hidden: "" });
  holder.append(tip);
  const leave = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    if (at < left || at > right) return leave();
    const nearest = (points) => points.reduce((best, point) => (Math.abs(px(point[0]) - at) < Math.abs(px(best[0]) - at) ? point : best));
    const place = nearest(lines[0].points)[0];
    cross.setAttribute("x1", px(place)); cross.setAttribute("x2", px(place)); cross.setAttribute("visibility", "visible");
    tip.replaceChildren(element("b", { text: (x.tip || x.format || number)(place) }));
    for (const one of lines) tip.append(element("div", { text: `${one.name}: ${(y.format || number)(nearest(one.points)[1])}` }));
    tip.hidden = false;
    const share = px(place) / width * box.width;
    tip.style.left = share > box.width / 2 ? "" : `${share + 12}px`;
    tip.style.right = share > box.width / 2 ? `${box.width - share + 12}px` : "";
    tip.style.top = "12px";
  });
}
