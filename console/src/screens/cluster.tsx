import { useState } from 'preact/hooks';
import type { Cluster, ClusterNode } from '../api/types';
import { clock, micros, plural, short, whole } from '../lib/format';
import { areShards, count, lives, pinnedToNobody, shown } from '../lib/shards';
import { Absent } from '../parts/absent';
import { RoleButton } from '../parts/act_button';
import { Card, Empty, Note } from '../parts/basic';
import { useConfirm } from '../parts/confirm';
import { useLoad } from '../parts/load';
import { type Line, Plot } from '../parts/plot';
import { cluster, look, moved, throughput } from '../state/cluster';
import { lack } from '../state/role';
import { Nodes } from './cluster/nodes';
import { Strip } from './cluster/strip';

const RELOAD_MS = 2_000;

/** All nodes of a cluster as one system. */
export function ClusterScreen() {
  const { failure, reload } = useLoad(look, [], RELOAD_MS);
  const seen = cluster.value;
  return (
    <>
      <div class="head">
        <h1>Cluster</h1>
        <span class="quiet">All nodes of this service, as {nameOf(seen) ?? 'this one'} sees them</span>
      </div>
      {seen ? <Shown cluster={seen} reload={reload} /> : <Absent failure={failure} what="the nodes" />}
    </>
  );
}

const nameOf = (seen: Cluster | undefined) => seen?.nodes.find((node) => node.node === seen.node)?.name;

function Shown({ cluster, reload }: { cluster: Cluster; reload: () => void }) {
  return (
    <div class="stack">
      <Notes cluster={cluster} />
      <Figures cluster={cluster} />
      <Nodes cluster={cluster} reload={reload} />
      <div class="columns">
        <section class="card plot-card">
          <Throughput nodes={cluster.nodes} />
        </section>
        <Strip cluster={cluster} />
      </div>
      <div class="columns">
        <Pin cluster={cluster} reload={reload} />
        <Moves />
      </div>
    </div>
  );
}

function Notes({ cluster }: { cluster: Cluster }) {
  return (
    <>
      {cluster.two_primaries && <Note tone="bad">{cluster.two_primaries}</Note>}
      {cluster.unowned !== '' && <Note tone="warn">Nobody owns the shards {shown(cluster.unowned)} now.</Note>}
      {cluster.nodes.map(
        (node) =>
          node.apart && (
            <Note key={node.node} tone="warn">
              <b>{node.name}</b> owns nothing until others reach it: {node.apart}
            </Note>
          ),
      )}
      {pinnedToNobody(cluster.pinned, cluster.nodes).map(([name, ranges]) => (
        <Note key={name} tone="warn">
          {plural(count(ranges), 'shard')} ({shown(ranges)}) pinned to <b>{name}</b>, and no node of that name lives:
          until one does, they may be anywhere.
        </Note>
      ))}
    </>
  );
}

/** The sum over all nodes that have answered; `undefined` if none has. */
function sum(nodes: ClusterNode[], name: string): number | undefined {
  const known = nodes.map((node) => node.now?.series[name] ?? undefined).filter((value) => value !== undefined);
  return known.length === 0 ? undefined : known.reduce((one, other) => one + other, 0);
}

function Figures({ cluster: { nodes, node: me, shards, unowned } }: { cluster: Cluster }) {
  const living = nodes.filter(lives);
  const silent = living.filter((node) => !node.now);
  const slowest = living
    .filter((node) => typeof node.now?.series.latency_p99_ms === 'number')
    .sort((one, other) => latency(other) - latency(one))[0];
  const figures: [label: string, value: string, note?: string][] = [
    ['Nodes that serve', `${living.filter((node) => node.state === 'serving').length}`, `of ${living.length}`],
    ['Commands a second', figure(sum(living, 'commands'))],
    ['Queries a second', figure(sum(living, 'queries'))],
    ['Slowest p99', slowest ? micros(latency(slowest) * 1000) : '–', slowest?.name],
    ['In flight', figure(sum(living, 'in_flight'))],
    ['Shards with an owner', whole(shards - count(unowned)), `of ${whole(shards)}`],
  ];
  return (
    <>
      <dl class="figures">
        {figures.map(([label, value, note]) => (
          <div class="figure" key={label}>
            <dt>{label}</dt>
            <dd>
              {value}
              {note && <span class="unit"> {note}</span>}
            </dd>
          </div>
        ))}
      </dl>
      {silent.length > 0 && (
        <p class="small quiet">
          Without {silent.map((node) => node.name).join(', ')}:{' '}
          {silent.some((node) => node.node === me) ? 'nothing has been measured yet.' : 'it does not say what it does.'}
        </p>
      )}
    </>
  );
}

const figure = (value: number | undefined) => (value === undefined ? '–' : short(value));
const latency = (node: ClusterNode) => node.now?.series.latency_p99_ms ?? 0;

const LOOKS: NonNullable<Line['look']>[] = ['strong', 'dashed', 'soft', 'dotted'];

function Throughput({ nodes }: { nodes: ClusterNode[] }) {
  const names = [...new Set(nodes.filter(lives).map((node) => node.name))];
  const lines = names.map((name, place): Line => {
    const look = LOOKS[place % LOOKS.length] ?? 'strong';
    return { label: name, values: throughput.column(name), look };
  });
  return (
    <Plot
      title="Commands a second, by node"
      at={throughput.at}
      lines={lines}
      format={short}
      steps="whole"
      seconds={throughput.span()}
      gaps={[]}
    />
  );
}

/** Where shards are pinned to no node any more. */
const NOBODY = '';

function Pin({ cluster, reload }: { cluster: Cluster; reload: () => void }) {
  const { ask, dialog } = useConfirm(reload);
  const names = cluster.nodes.filter((node) => node.state === 'serving' && !node.wants_drain).map(({ name }) => name);
  const [typed, setTyped] = useState('');
  const [to, setTo] = useState<string>();
  const name = to ?? names[0] ?? NOBODY;
  const shards = typed.replaceAll(' ', '');
  const isWrong = shards !== '' && !areShards(shards, cluster.shards);
  const pin = (event: Event) => {
    event.preventDefault();
    if (lack('operator') !== undefined) return;
    const many = plural(count(shards), 'shard');
    const query = new URLSearchParams(name === NOBODY ? { shards } : { shards, to: name });
    const confirm =
      name === NOBODY
        ? 'They are pinned to no node any more, and are balanced as all others.'
        : `Their owners give them to ${name} at once. They stay there while it serves, also after a restart, until somebody takes the pin back.`;
    ask({
      action: {
        name: 'pin',
        label: name === NOBODY ? 'Unpin' : 'Pin',
        method: 'POST',
        path: `/admin/cluster/pin?${query}`,
        confirm,
        needs_reason: false,
        needs_role: 'operator',
      },
      of: { kind: null, id: null, what: `${many}: ${shown(shards)}` },
    });
  };
  return (
    <Card title="Pin shards">
      <form class="stack" onSubmit={pin}>
        <p class="quiet">
          Give a larger machine more, or the hottest entities a node of their own. An entity’s shard stands on its page.
        </p>
        <div class="field">
          <label for="shards">Shards</label>
          <input
            id="shards"
            class="input mono"
            value={typed}
            autocomplete="off"
            placeholder="0-99,150"
            aria-invalid={isWrong}
            aria-describedby="shards-note"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
          <span id="shards-note" class={isWrong ? 'wrong' : 'note'}>
            {isWrong ? 'These are none: write' : 'Write'} numbers and ranges from 0 to {cluster.shards - 1}, such as
            0-99,150.
          </span>
        </div>
        <div class="row">
          <label for="pin-to">To</label>
          <select id="pin-to" class="input" value={name} onChange={(event) => setTo(event.currentTarget.value)}>
            {names.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
            <option value={NOBODY}>none any more</option>
          </select>
          <RoleButton needs="operator" kind="primary" type="submit" isOff={shards === '' || isWrong}>
            {name === NOBODY ? 'Unpin …' : 'Pin …'}
          </RoleButton>
        </div>
      </form>
      {dialog}
    </Card>
  );
}

function Moves() {
  return (
    <Card title="Moves">
      {moved.value.length === 0 ? (
        <Empty icon="cluster" title="Nothing has moved" compact>
          <p>Shards that go from one node to another are named here as it happens, since this page was opened.</p>
        </Empty>
      ) : (
        <ul class="lines moves" aria-label="Moves">
          {moved.value.map(({ at, from, to, shards }, place) => (
            <li key={`${at}/${from}/${to}/${place}`}>
              <time class="tabular quiet">{clock(at)}</time> {plural(shards, 'shard')} from{' '}
              <b>{from === '' ? 'nobody' : from}</b> to <b>{to === '' ? 'nobody' : to}</b>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
