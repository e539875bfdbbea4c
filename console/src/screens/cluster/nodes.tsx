import type { Cluster, ClusterNode } from '../../api/types';
import { bytes, micros, plural, short, whole } from '../../lib/format';
import { lives } from '../../lib/shards';
import { ActButton } from '../../parts/act_button';
import { Badge, Card } from '../../parts/basic';
import { useConfirm } from '../../parts/confirm';
import { Table } from '../../parts/table';
import { HEADLINES } from '../live';

const milliseconds = (value: number) => micros(value * 1000);
const known = (value: number | null | undefined, format: (value: number) => string) =>
  value === null || value === undefined ? '–' : format(value);

/** Each node with what it does, how it is, and what can be done with it. */
export function Nodes({ cluster, reload }: { cluster: Cluster; reload: () => void }) {
  const { ask, dialog } = useConfirm(reload);
  return (
    <Card title="Nodes">
      <Table label="Nodes">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col" class="number">
              Shards
            </th>
            <th scope="col" class="number">
              Commands/s
            </th>
            <th scope="col" class="number">
              p99
            </th>
            <th scope="col" class="number">
              Busiest loop
            </th>
            <th scope="col" class="number">
              Memory
            </th>
            <th scope="col">Limits it</th>
            <th scope="col" class="number">
              Lease
            </th>
            <th scope="col">Actions</th>
          </tr>
        </thead>
        <tbody>
          {cluster.nodes.map((node) => (
            <tr key={node.node}>
              <td>
                <NodeName node={node} cluster={cluster} />
              </td>
              <td>
                <NodeState node={node} cluster={cluster} />
              </td>
              <td class="number">{whole(node.owns)}</td>
              <td class="number">{known(node.now?.series.commands, short)}</td>
              <td class="number nowrap">{known(node.now?.series.latency_p99_ms, milliseconds)}</td>
              <td class="number nowrap">{known(node.now?.busiest_loop, (share) => `${Math.round(share * 100)} %`)}</td>
              <td class="number nowrap">{known(node.now?.memory, bytes)}</td>
              <td>{limit(node)}</td>
              <td class="number">
                <Lease node={node} lease={cluster.lease_ms} />
              </td>
              <td>
                {node.actions?.map((action) => (
                  <ActButton
                    key={action.name}
                    action={action}
                    kind={action.name === 'drain' ? 'danger' : ''}
                    label={`${action.label}: ${node.name}`}
                    run={() => ask({ action, of: { kind: null, id: null, what: node.name } })}
                  />
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
      <p class="small quiet">
        Lease: how long ago a node said that it lives; one that is silent for {milliseconds(cluster.lease_ms * 1.25)} is
        taken for dead. {plural(cluster.changes, 'change')} of what this node serves, the last one in{' '}
        {milliseconds(cluster.last_change_ms)}; {whole(cluster.asked)} requests passed on to other nodes,{' '}
        {whole(cluster.unknown)} of unknown outcome.
      </p>
      {dialog}
    </Card>
  );
}

function NodeName({ node, cluster }: { node: ClusterNode; cluster: Cluster }) {
  const isThis = node.node === cluster.node;
  return (
    <div class="wide-cell">
      {node.console && !isThis ? <a href={`${node.console}#/live`}>{node.name}</a> : <b>{node.name}</b>}{' '}
      {isThis && <span class="quiet">this one</span>}
      <p class="small quiet break mono">{node.http}</p>
      <p class="small quiet break">
        {node.program}, to nodes <span class="mono">{node.peer}</span>
      </p>
    </div>
  );
}

function limit(node: ClusterNode): string {
  const code = node.now?.limits;
  if (!code || code === 'client') return code ? 'nothing' : '–';
  return code === 'idle' ? 'idle' : (HEADLINES[code]?.replace('Limited by ', '') ?? code);
}

/** A lease that is half over is a beat that did not come: they come six times a lease. */
function Lease({ node, lease }: { node: ClusterNode; lease: number }) {
  if (node.silent_ms === null) return <>–</>;
  const text = `${(node.silent_ms / 1000).toFixed(1)}\u00a0s\u00a0ago`;
  if (node.silent_ms < lease / 2) return <>{text}</>;
  return (
    <Badge tone="warn" icon="trouble">
      {text}
    </Badge>
  );
}

/** One that has left or was declared dead is gone for certain; one that has not, and has no session at the database, may be. */
function NodeState({ node, cluster }: { node: ClusterNode; cluster: Cluster }) {
  if (!lives(node) || !node.connected) {
    return (
      <Badge tone="bad" icon="trouble">
        {lives(node) ? 'gone?' : node.state}
      </Badge>
    );
  }
  const isReached = node.node === cluster.node || cluster.reaches.includes(node.node);
  const isWell = node.state === 'serving' && isReached;
  return (
    <Badge tone={isWell ? 'good' : 'warn'} icon={isWell ? 'good' : 'trouble'}>
      {isReached ? node.state : 'not reached'}
    </Badge>
  );
}
