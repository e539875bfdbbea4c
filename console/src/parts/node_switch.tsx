import { useEffect } from 'preact/hooks';
import { connection } from '../api/client';
import { lives } from '../lib/shards';
import { cluster, look } from '../state/cluster';
import { route } from '../state/place';
import { overview } from '../state/service';

const LOOK_EVERY_MS = 20_000;

/** Which node of a cluster one looks at, on every screen; another one's console opens at the same place. */
export function NodeSwitch() {
  const isOne = overview.value?.console.cluster === true;
  useEffect(() => {
    if (!isOne) return;
    const again = () => {
      if (document.visibilityState === 'visible') look().catch(() => undefined);
    };
    again();
    const timer = setInterval(again, LOOK_EVERY_MS);
    return () => clearInterval(timer);
  }, [isOne, connection.value === 'up']);
  const seen = cluster.value;
  if (!isOne || !seen) return null;
  const living = seen.nodes.filter(lives);
  return (
    <div class="node-switch">
      <label for="node">Node</label>
      <select
        id="node"
        class="input"
        value={String(seen.node)}
        onChange={(event) => {
          const wanted = living.find((node) => String(node.node) === event.currentTarget.value);
          event.currentTarget.value = String(seen.node);
          if (wanted?.console) location.assign(wanted.console + location.hash);
        }}
      >
        {living.map((node) => (
          <option key={node.node} value={String(node.node)} disabled={node.node !== seen.node && !node.console}>
            {node.name}
            {node.node !== seen.node && !node.console ? ', reached on its own machine only' : ''}
          </option>
        ))}
      </select>
      <span class="small quiet">
        {route.value.screen === 'cluster' ? `one of ${living.length}` : `one of ${living.length}; figures are its own`}
      </span>
    </div>
  );
}
