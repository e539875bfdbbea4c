import { useMemo } from 'preact/hooks';
import { overview as loadOverview } from '../api/calls';
import { connection } from '../api/client';
import type { Kind, Limits } from '../api/types';
import { commandLine } from '../lib/curl';
import { bytes, clock, micros, second, short, whole, zone } from '../lib/format';
import { link } from '../lib/route';
import { Card, Empty } from '../parts/basic';
import { Copyable } from '../parts/copy';
import { Icon } from '../parts/icon';
import { EntityLink } from '../parts/link';
import { useLoad } from '../parts/load';
import { type Line, Plot, type Steps } from '../parts/plot';
import { Table } from '../parts/table';
import { hot, limits, loops, reasons, series, tick } from '../state/points';
import { overview } from '../state/service';

const milliseconds = (value: number) => micros(value * 1000);
const percent = (value: number) => `${Math.round(value * 100)} %`;

interface Drawn {
  title: string;
  format: (value: number) => string;
  steps: Steps;
  lines: [name: string, label: string, look?: Line['look']][];
}

/** The plots, in the order of the questions one asks: how much, how fast, why not faster, who is refused, what it takes. */
function drawn(): Drawn[] {
  const busy = loops.value.map((loop): Drawn['lines'][number] => [
    `loops.${loop}`,
    `loop ${loop}`,
    loop === '0' ? 'strong' : 'soft',
  ]);
  return [
    {
      title: 'Throughput, per second',
      format: short,
      steps: 'whole',
      lines: [
        ['commands', 'commands'],
        ['queries', 'queries', 'soft'],
        ['messages', 'messages', 'dashed'],
      ],
    },
    {
      title: 'Latency',
      format: milliseconds,
      steps: 'time',
      lines: [
        ['latency_p99_ms', 'p99'],
        ['latency_p90_ms', 'p90', 'soft'],
        ['latency_p50_ms', 'p50', 'dashed'],
      ],
    },
    { title: 'Commands a commit', format: short, steps: 'whole', lines: [['batch', 'mean']] },
    {
      title: 'Time of a commit',
      format: milliseconds,
      steps: 'time',
      lines: [
        ['commit_p99_ms', 'p99'],
        ['commit_p50_ms', 'p50', 'dashed'],
      ],
    },
    {
      title: 'In flight',
      format: short,
      steps: 'whole',
      lines: [
        ['in_flight', 'in flight'],
        ['waiting_turn', 'waiting for a turn', 'soft'],
        ['outbox', 'outbox', 'dashed'],
      ],
    },
    { title: 'Refused, per second', format: short, steps: 'whole', lines: refused() },
    {
      title: 'Memory',
      format: bytes,
      steps: 'bytes',
      lines: [
        ['memory.process', 'process'],
        ['memory.entities', 'entities', 'soft'],
        ['memory.pending', 'awaiting a checkpoint', 'dashed'],
      ],
    },
    { title: 'Loops, busy', format: percent, steps: 'share', lines: busy.length > 0 ? busy : [['loops.0', 'loop 0']] },
    { title: 'Journal, bytes a second', format: bytes, steps: 'bytes', lines: [['commit_bytes', 'written']] },
    {
      title: 'Connections',
      format: whole,
      steps: 'whole',
      lines: [
        ['connections', 'HTTP'],
        ['websockets', 'WebSocket', 'dashed'],
      ],
    },
  ];
}

/** The reasons that have refused anybody, the entities' own "no" first. */
function refused(): Drawn['lines'] {
  const looks: Line['look'][] = ['soft', 'dashed', 'dotted'];
  const seen = reasons.value.filter((reason) =>
    series.column(`refusals.${reason}`).some((value) => value !== null && value > 0),
  );
  const others = seen
    .slice(0, 4)
    .map((reason, place): Drawn['lines'][number] => [
      `refusals.${reason}`,
      reason.replaceAll('_', ' '),
      looks[place % looks.length],
    ]);
  return [['refused', 'by entities'], ...others];
}

/** The plots before the hot entities: throughput and latency. */
const BEFORE_HOT = 2;

export function LiveScreen() {
  tick.value;
  const isEmpty = series.at.length === 0;
  const all = drawn();
  const [first, others] = [all.slice(0, BEFORE_HOT), all.slice(BEFORE_HOT)];
  return (
    <>
      <div class="head">
        <h1>Live</h1>
        <span class="quiet">
          The last {series.span() === 60 ? 'minute' : `${series.span() / 60} minutes`}, a point a second; times are{' '}
          {zone(new Date())}
        </span>
      </div>
      <div class="stack">
        <LimitsNow now={limits.value} />
        <Gaps />
        <Figures />
        {isEmpty ? (
          <Card>
            <Empty icon="live" title="The first second is on its way">
              <p>
                Throughput, latency, commits and memory are drawn here, a point a second, as soon as the service has
                measured one.
              </p>
            </Empty>
          </Card>
        ) : (
          <>
            <FirstCommand />
            <div class="plots">
              {first.map((one) => (
                <PlotCard key={one.title} drawn={one} />
              ))}
              <HotCard />
              {others.map((one) => (
                <PlotCard key={one.title} drawn={one} />
              ))}
            </div>
            <CallsCard />
          </>
        )}
      </div>
    </>
  );
}

function PlotCard({ drawn }: { drawn: Drawn }) {
  const names = drawn.lines.map(([name, label]) => `${name} ${label}`).join();
  // A new point is a new list of lines, and nothing else is
  const lines = useMemo(
    () =>
      drawn.lines.map(([name, label, look]): Line => ({ label, values: series.column(name), ...(look && { look }) })),
    [tick.value, names],
  );
  return (
    <section class="card plot-card">
      <Plot
        title={drawn.title}
        at={series.at}
        lines={lines}
        format={drawn.format}
        steps={drawn.steps}
        seconds={series.span()}
        gaps={series.gaps}
      />
    </section>
  );
}

export const HEADLINES: Record<string, string> = {
  idle: 'Idle',
  client: 'Room for more',
  loop: 'Limited by the CPU',
  sync: 'Limited by the disk',
  database: 'Limited by the database',
  store: 'Limited by the store',
  memory: 'Limited by memory',
  entity: 'Limited by one entity',
  disk_full: 'The disk is full',
  journal_down: 'The journal is away',
};
const WELL = new Set(['idle', 'client']);

/** One sentence: what limits the engine now. */
function LimitsNow({ now }: { now: Limits | null }) {
  if (!now) return null;
  const [kind, ...id] = (now.name ?? '').split('/');
  const isBad = now.code === 'disk_full' || now.code === 'journal_down';
  const isOld = connection.value === 'lost';
  const isWell = WELL.has(now.code) && !isOld;
  return (
    <section class={`card limits ${isBad ? 'bad' : ''}`} aria-label="What limits the engine now">
      <span class={`limits-mark ${isWell ? 'well' : ''}`}>
        <Icon name={isOld ? 'clock' : isBad ? 'stopped' : isWell ? 'good' : 'up'} />
      </span>
      <div>
        <p class="limits-head">
          {HEADLINES[now.code] ?? 'Limited'}
          {isOld && ', when it was last seen'}
        </p>
        <p class="quiet break">
          {now.sentence}
          {now.code === 'entity' && kind && id.length > 0 && (
            <>
              {' '}
              <EntityLink of={{ kind, id: id.join('/') }} />
            </>
          )}
        </p>
      </div>
    </section>
  );
}

/** Gaps that are named; the plots mark all. */
const GAPS_SHOWN = 3;

function Gaps() {
  if (series.gaps.length === 0) return null;
  return (
    <ul class="gaps small quiet tabular" aria-label="Gaps in the curves">
      {series.gaps.slice(-GAPS_SHOWN).map(({ from, to }) => (
        <li key={to}>
          No points from {second(from * 1000)} until {clock(to * 1000)}: the service was restarted, or not reached.
        </li>
      ))}
    </ul>
  );
}

/** The figures one looks at first. Each has a width of its own, so that none pushes another. */
function Figures() {
  const figures: [label: string, name: string, format: (value: number) => string][] = [
    ['Commands a second', 'commands', whole],
    ['Latency, p99', 'latency_p99_ms', milliseconds],
    ['Commands a commit', 'batch', short],
    ['A commit, p99', 'commit_p99_ms', milliseconds],
    ['In flight', 'in_flight', whole],
    ['Memory', 'memory.process', bytes],
  ];
  return (
    <dl class="figures">
      {figures.map(([label, name, format]) => {
        const value = series.last(name);
        return (
          <div class="figure" key={name}>
            <dt>{label}</dt>
            <dd>{value === undefined ? '–' : <Figure text={format(value)} />}</dd>
          </div>
        );
      })}
    </dl>
  );
}

/** The unit is smaller than the number. */
function Figure({ text }: { text: string }) {
  const [number, unit] = text.split(' ');
  return (
    <>
      {number}
      {unit && <span class="unit"> {unit}</span>}
    </>
  );
}

/** How to begin, while nothing has ever been asked. */
function FirstCommand() {
  const asked = ['commands', 'queries', 'messages'].some((name) =>
    series.column(name).some((value) => value !== null && value > 0),
  );
  const has = overview.value?.kinds.some((kind) => (kind.entities ?? 0) > 0);
  if (asked || has || !overview.value) return null;
  const kind = overview.value.kinds.find(
    (kind) => !kind.is_hidden && kind.commands.some((command) => command.is_public),
  );
  return (
    <Card>
      <Empty icon="command" title="Nothing has been asked yet" compact>
        <p>
          The curves rise with the first command.{' '}
          {kind ? (
            <>
              Send one from <a href={link('entity', [kind.name])}>a form for a new {kind.name}</a>, or from a shell:
            </>
          ) : (
            'Send the service a request.'
          )}
        </p>
        {kind && <Copyable text={example(kind)} />}
      </Empty>
    </Card>
  );
}

function example(kind: Kind): string {
  const command = kind.commands.find((command) => command.is_public);
  const root = { definitions: overview.value?.definitions ?? {} };
  const path = [kind.name, 'first', command?.name ?? ''];
  return commandLine(overview.value?.url ?? '', location.hostname, path, command?.schema ?? {}, root);
}

const HOT_SHOWN = 8;

const CALLS_EVERY_MS = 5_000;

/** The workers that call providers outside, and the way to their calls; nothing without one. */
function CallsCard() {
  const { value } = useLoad(loadOverview, [], overview.value?.calls?.length ? CALLS_EVERY_MS : undefined);
  const workers = value?.calls ?? [];
  if (workers.length === 0) return null;
  return (
    <Card title="Calls outside">
      <Table label="Calls outside">
        <thead>
          <tr>
            <th scope="col">Worker</th>
            <th scope="col" class="number">
              Open
            </th>
            <th scope="col" class="number">
              Under way
            </th>
            <th scope="col" class="number">
              Attempts, last minute
            </th>
            <th scope="col" class="number">
              Failed, last minute
            </th>
          </tr>
        </thead>
        <tbody>
          {workers.map((one) => (
            <tr key={one.kind}>
              <td>
                <a href={link('map', [one.kind])}>{one.worker}</a>
              </td>
              <td class="number">{whole(one.open)}</td>
              <td class="number">{whole(one.under_way)}</td>
              <td class="number">{whole(one.attempts_minute)}</td>
              <td class="number">{whole(one.failed_minute)}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </Card>
  );
}

function HotCard() {
  const most = hot.value.slice(0, HOT_SHOWN);
  const top = Math.max(1, ...most.map((one) => one.per_second));
  return (
    <section class="card plot-card">
      <div class="plot-head">
        <h2 class="plot-title">Hot entities</h2>
        <span class="small quiet">what they did a second</span>
      </div>
      {most.length === 0 ? (
        <p class="quiet hot-none">Nobody stands out. Entities that do most appear here while they do it.</p>
      ) : (
        <ol class="hot-list">
          {most.map((one) => (
            <li key={`${one.kind}/${one.id}`}>
              <EntityLink of={one} />
              <svg class="hot-bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
                <rect width={(100 * one.per_second) / top} height="4" />
              </svg>
              <span class="number">{whole(one.per_second)}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
