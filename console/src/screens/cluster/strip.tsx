import type { Cluster, ClusterNode } from '../../api/types';
import { plural, whole } from '../../lib/format';
import { count, lives, shown, spans } from '../../lib/shards';
import { Card } from '../../parts/basic';

/** All shards as a strip, one lane an owner: where a node has them, and which are pinned to it. */
export function Strip({ cluster }: { cluster: Cluster }) {
  const nodes = cluster.nodes.filter((node) => lives(node) || node.owns > 0);
  return (
    <Card title="Shards by owner" aside={<span class="small quiet">0 to {cluster.shards - 1}</span>}>
      <ul class="strip">
        {nodes.map((node) => (
          <Lane key={node.node} node={node} all={cluster.shards} pinned={cluster.pinned[node.name] ?? ''} />
        ))}
        {cluster.unowned !== '' && (
          <li class="lane">
            <span class="lane-name">nobody</span>
            <Cells all={cluster.shards} shards={cluster.unowned} pinned="" extra="bad" />
            <span class="number">{whole(count(cluster.unowned))}</span>
          </li>
        )}
      </ul>
      <p class="small quiet strip-legend">
        <svg class="strip-sample" viewBox="0 0 12 12" aria-hidden="true">
          <rect class="owned" width="12" height="9" />
        </svg>
        owned
        <svg class="strip-sample" viewBox="0 0 12 12" aria-hidden="true">
          <rect class="pinned" y="10" width="12" height="2" />
        </svg>
        pinned to it
      </p>
    </Card>
  );
}

function Lane({ node, all, pinned }: { node: ClusterNode; all: number; pinned: string }) {
  return (
    <li class="lane">
      <span class="lane-name break">{node.name}</span>
      <Cells all={all} shards={node.shards} pinned={lives(node) ? pinned : ''} />
      <span class="number">{whole(node.owns)}</span>
      <details class="lane-which small">
        <summary>Which</summary>
        <span class="mono break">{shown(node.shards) || 'none'}</span>
        {pinned !== '' && (
          <p class="break">
            {plural(count(pinned), 'shard')} pinned to it: <span class="mono">{shown(pinned)}</span>
          </p>
        )}
      </details>
    </li>
  );
}

function Cells({ all, shards, pinned, extra = '' }: { all: number; shards: string; pinned: string; extra?: string }) {
  return (
    <svg class={`cells ${extra}`} viewBox={`0 0 ${all} 12`} preserveAspectRatio="none" aria-hidden="true">
      <rect class="lane-ground" width={all} height="9" />
      {spans(shards).map(([first, last]) => (
        <rect key={first} class="owned" x={first} width={last - first + 1} height="9" />
      ))}
      {spans(pinned).map(([first, last]) => (
        <rect key={first} class="pinned" x={first} y="10" width={last - first + 1} height="2" />
      ))}
    </svg>
  );
}
