import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { clock, second } from '../lib/format';
import type { Gap } from '../lib/series';
import { theme } from '../state/theme';

export interface Line {
  label: string;
  /** One value a second; null where nothing was measured. */
  values: (number | null)[];
  /** The first is drawn strongest. Lines differ by dashes, not by colour alone. */
  look?: 'strong' | 'soft' | 'dashed' | 'dotted';
}

interface Props {
  title: string;
  /** Seconds since 1970. */
  at: number[];
  lines: Line[];
  format: (value: number) => string;
  /** Which steps the axis may have. */
  steps: Steps;
  /** The whole width of time, in seconds: a young series starts at the right. */
  seconds: number;
  /** Where nothing was measured: marked, so that nobody takes it for silence. */
  gaps: readonly Gap[];
}

const HEIGHT = 144;
/** Plots of the same group show the same second under the pointer. */
const GROUP = uPlot.sync('console');
const DASHES: Record<NonNullable<Line['look']>, number[]> = { strong: [], soft: [], dashed: [5, 4], dotted: [2, 3] };

/** A plot of the last minutes with a legend that shows the latest values, or those under the pointer. */
export function Plot({ title, at, lines, format, steps, seconds, gaps }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [pointed, setPointed] = useState<number>();
  const labels = lines.map((line) => `${line.label}:${line.look ?? ''}`).join();
  const colours = theme.value;
  const latest = useRef({ format, seconds, gaps });
  latest.current = { format, seconds, gaps };

  // The data comes by setData; only what is drawn how makes a new plot
  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const made = new uPlot(
      options(element.clientWidth, { lines, steps }, latest, setPointed),
      data(at, lines),
      element,
    );
    plot.current = made;
    GROUP.sub(made);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      GROUP.unsub(made);
      made.destroy();
    };
  }, [labels, colours]);

  useEffect(() => plot.current?.setData(data(at, lines)), [at.at(-1), at.length, lines]);

  const place = pointed !== undefined && pointed < at.length ? pointed : at.length - 1;
  const read = (line: Line) => {
    const value = line.values[place];
    return value === null || value === undefined ? '–' : format(value);
  };
  const said = useMemo(() => lines.map((line) => `${line.label} ${read(line)}`).join(', '), [at.length, lines]);
  return (
    <figure class="plot">
      <figcaption class="plot-head">
        <span class="plot-title">{title}</span>
        <span class="plot-at small quiet tabular">
          {pointed !== undefined && at[place] ? second(at[place] * 1000) : ''}
        </span>
        <ul class="legend">
          {lines.map((line) => (
            <li key={line.label}>
              <svg class={`legend-line ${line.look ?? 'strong'}`} viewBox="0 0 16 4" aria-hidden="true">
                <path d="M0 2h16" />
              </svg>
              {line.label} <b class="tabular">{read(line)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div
        class="plot-area"
        ref={holder}
        role="img"
        aria-label={`${title}, the last ${Math.round(seconds / 60)} minutes. Now: ${said}`}
      />
    </figure>
  );
}

function data(at: number[], lines: Line[]): uPlot.AlignedData {
  return [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
}

interface Latest {
  current: { format: (value: number) => string; seconds: number; gaps: readonly Gap[] };
}

/** Steps between the ticks of an axis: round in the unit of what it shows, so that no label stands there twice. */
export type Steps = 'whole' | 'bytes' | 'share' | 'time';

const DECIMAL = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const STEPS: Record<Steps, number[]> = {
  whole: DECIMAL,
  bytes: Array.from({ length: 50 }, (_, power) => 2 ** power),
  share: [0.05, 0.1, 0.2, 0.25, 0.5, 1],
  // Milliseconds, of which a microsecond is the least that is shown.
  time: DECIMAL.map((step) => step / 1000),
};
/** Seconds between the ticks of time. */
const TIME_STEPS = [1, 2, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600];
/** The least that the top of an axis stands for. */
const TOPS: Record<Steps, number> = { whole: 4, bytes: 4, share: 0.2, time: 0.01 };

function options(
  width: number,
  { lines, steps }: { lines: Line[]; steps: Steps },
  latest: Latest,
  point: (index: number | undefined) => void,
): uPlot.Options {
  const colour = colours();
  const strokes = { strong: colour.accent, soft: colour.faint, dashed: colour.quiet, dotted: colour.quiet };
  const axis: uPlot.Axis = {
    stroke: colour.quiet,
    font: `11px ${colour.font}`,
    grid: { stroke: colour.line, width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT,
    padding: [8, 24, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: GROUP.key }, points: { size: 6 }, drag: { x: false, y: false }, y: false },
    hooks: {
      setCursor: [(made) => point(made.cursor.idx ?? undefined)],
      drawClear: [
        (made) => {
          for (const gap of latest.current.gaps) mark(made, gap, colour);
        },
      ],
    },
    scales: {
      x: { range: (_, __, max) => [(max ?? 0) - latest.current.seconds, max ?? 0] },
      y: { range: (_, __, max) => [0, Math.max(TOPS[steps], (max ?? 0) * 1.12)] },
    },
    axes: [
      {
        ...axis,
        space: () => (latest.current.seconds > 120 ? 44 : 58),
        size: 24,
        gap: 4,
        incrs: TIME_STEPS,
        grid: { show: false },
        values: (_, ticks, __, ___, step) => ticks.map((tick) => clock(tick * 1000).slice(0, step < 60 ? 8 : 5)),
      },
      {
        ...axis,
        size: 60,
        gap: 6,
        space: 32,
        incrs: STEPS[steps],
        values: (_, ticks) => ticks.map((tick) => latest.current.format(tick)),
      },
    ],
    series: [
      {},
      ...lines.map((line, place): uPlot.Series => {
        const look = line.look ?? 'strong';
        const fill = place === 0 && lines.length === 1 ? { fill: colour.soft } : {};
        return {
          label: line.label,
          stroke: strokes[look],
          width: look === 'strong' ? 1.75 : 1.25,
          dash: DASHES[look],
          points: { show: false },
          ...fill,
        };
      }),
    ],
  };
}

/** A gap as a band with an edge where it begins and where it ends. */
function mark({ ctx, bbox, valToPos }: uPlot, { from, to }: Gap, colour: ReturnType<typeof colours>): void {
  const left = Math.max(bbox.left, valToPos(from, 'x', true));
  const right = valToPos(to, 'x', true);
  if (right <= bbox.left) return;
  ctx.save();
  ctx.fillStyle = colour.sunk;
  ctx.fillRect(left, bbox.top, right - left, bbox.height);
  ctx.strokeStyle = colour.warn;
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  for (const edge of [left, right]) {
    ctx.moveTo(edge, bbox.top);
    ctx.lineTo(edge, bbox.top + bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}

/** Colours of the theme, for what is drawn on a canvas. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    accent: read('accent'),
    strong: read('accent-strong'),
    soft: read('accent-soft'),
    faint: read('accent-faint'),
    text: read('text'),
    quiet: read('quiet'),
    line: read('line'),
    lineStrong: read('line-strong'),
    surface: read('surface'),
    sunk: read('sunk'),
    warn: read('warn'),
    bad: read('bad'),
    badSoft: read('bad-soft'),
    warnSoft: read('warn-soft'),
    font: getComputedStyle(document.body).fontFamily,
  };
}
