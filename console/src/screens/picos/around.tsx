import * as picos from '../../api/picos';
import { plural } from '../../lib/format';
import { link } from '../../lib/route';
import { Absent } from '../../parts/absent';
import { useLoad } from '../../parts/load';

const RELOAD_MS = 10_000;
/** Picos that are drawn below one at most: each is asked for its subscriptions. */
const DRAWN_MAX = 24;
const COLUMNS = 4;
const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [150, 36, 20, 60];

interface Node {
  pico: string;
  name: string;
  eci: string | undefined;
  x: number;
  y: number;
}

interface Around {
  nodes: Node[];
  family: [string, string][];
  subscriptions: { from: string; to: string; says: string }[];
  unseen: number;
}

async function around(eci: string): Promise<Around> {
  const box = await picos.box(eci);
  const drawn = box.children.slice(0, DRAWN_MAX);
  const parent = box.parent ? await picos.box(box.parent).catch(() => undefined) : undefined;
  const children = await Promise.all(drawn.map((child) => picos.box(child)));
  const asked = [eci, ...drawn];
  const established = await Promise.all(asked.map((of) => picos.subscriptions(of).catch(() => [])));
  const columns = Math.max(1, Math.min(COLUMNS, children.length));
  const rows = Math.ceil(children.length / COLUMNS);
  const middle = ((columns - 1) * (WIDTH + GAP_X)) / 2;
  const nodes: Node[] = [{ pico: picos.idOf(eci), name: picos.nameOf(box), eci, x: middle, y: HEIGHT + GAP_Y }];
  if (parent && box.parent) {
    nodes.push({ pico: picos.idOf(box.parent), name: picos.nameOf(parent), eci: box.parent, x: middle, y: 0 });
  }
  for (const [at, child] of children.entries()) {
    const own = drawn[at] ?? '';
    const place = { x: (at % COLUMNS) * (WIDTH + GAP_X), y: (2 + Math.floor(at / COLUMNS)) * (HEIGHT + GAP_Y) };
    nodes.push({ pico: picos.idOf(own), name: picos.nameOf(child), eci: own, ...place });
  }
  const family = nodes.slice(1).map((node): [string, string] => [picos.idOf(eci), node.pico]);
  const subscriptions = new Map<string, Around['subscriptions'][number]>();
  for (const [at, all] of established.entries()) {
    const from = picos.idOf(asked[at] ?? '');
    for (const one of all) {
      if (!one.Tx) continue;
      const to = picos.idOf(one.Tx);
      if (!nodes.some((node) => node.pico === to)) {
        const extra = nodes.filter((node) => node.eci === undefined).length;
        const place = {
          x: (extra % COLUMNS) * (WIDTH + GAP_X),
          y: (2 + rows + Math.floor(extra / COLUMNS)) * (HEIGHT + GAP_Y),
        };
        nodes.push({ pico: to, name: `Pico ${to.slice(0, 8)}`, eci: undefined, ...place });
      }
      const says = `${one.Rx_role ?? 'no role'} to ${one.Tx_role ?? 'no role'}`;
      const key = [from, to].sort().join(' ');
      if (!subscriptions.has(key)) subscriptions.set(key, { from, to, says });
    }
  }
  return { nodes, family, subscriptions: [...subscriptions.values()], unseen: box.children.length - drawn.length };
}

/** The pico with its parent, its children, and dashed whom they subscribe to. */
export function PicoMap({ eci }: { eci: string }) {
  const { value, failure } = useLoad(() => around(eci), [eci], RELOAD_MS);
  if (!value) return <Absent failure={failure} what="its family" />;
  const { nodes, family, subscriptions, unseen } = value;
  const at = (pico: string) => nodes.find((node) => node.pico === pico);
  const [right, bottom] = [
    Math.max(...nodes.map((node) => node.x)) + WIDTH,
    Math.max(...nodes.map((node) => node.y)) + HEIGHT,
  ];
  // Nothing stands above a pico that has no parent.
  const top = Math.min(...nodes.map((node) => node.y));
  return (
    <div class="stack">
      <svg
        class="pico-map"
        viewBox={`-4 ${top - 4} ${right + 8} ${bottom - top + 8}`}
        width={right + 8}
        role="group"
        aria-label={`${plural(nodes.length, 'pico')}, ${plural(subscriptions.length, 'subscription')}`}
      >
        {family.map(([one, other]) => (
          <Line key={`${one} ${other}`} from={at(one)} to={at(other)} />
        ))}
        {subscriptions.map(({ from, to, says }) => (
          <Line key={`${from} ${to}`} from={at(from)} to={at(to)} says={says} />
        ))}
        {nodes.map((node) => (
          <NodeBox key={node.pico} node={node} isChosen={node.eci === eci} />
        ))}
      </svg>
      <ul class="lines" aria-label="Subscriptions">
        {subscriptions.map(({ from, to, says }) => (
          <li key={`${from} ${to}`} class="break">
            {at(from)?.name} – {at(to)?.name} <span class="quiet">{says}</span>
          </li>
        ))}
      </ul>
      {subscriptions.length === 0 && <p class="quiet">Neither it nor its children subscribe to another pico.</p>}
      {unseen > 0 && <p class="small quiet">{plural(unseen, 'child', 'children')} more are not drawn.</p>}
    </div>
  );
}

function Line({ from, to, says }: { from: Node | undefined; to: Node | undefined; says?: string }) {
  if (!from || !to) return null;
  const centre = (node: Node) => [node.x + WIDTH / 2, node.y + HEIGHT / 2] as const;
  const [[x1, y1], [x2, y2]] = [centre(from), centre(to)];
  // A subscription bows, so that it is seen beside the family's own line.
  const [cx, cy] = [(x1 + x2) / 2 + (says ? (y2 - y1) * 0.25 : 0), (y1 + y2) / 2 + (says ? (x1 - x2) * 0.25 + 30 : 0)];
  return (
    <path class={says ? 'subscription' : 'kin'} d={`M${x1} ${y1} Q${cx} ${cy} ${x2} ${y2}`}>
      <title>{says ? `Subscription: ${from.name} – ${to.name}, ${says}` : `${from.name} – ${to.name}`}</title>
    </path>
  );
}

const LETTERS = 18;

function NodeBox({ node, isChosen }: { node: Node; isChosen: boolean }) {
  const letters = [...node.name];
  const short = letters.length > LETTERS ? `${letters.slice(0, LETTERS - 1).join('')}…` : node.name;
  const drawn = (
    <g transform={`translate(${node.x} ${node.y})`} class={isChosen ? 'chosen' : ''}>
      <rect width={WIDTH} height={HEIGHT} rx="8" />
      <text x={WIDTH / 2} y={HEIGHT / 2} text-anchor="middle" dominant-baseline="central">
        {short}
      </text>
    </g>
  );
  return node.eci ? (
    <a href={`${link('picos', [node.eci])}?tab=map`} aria-label={node.name}>
      {drawn}
    </a>
  ) : (
    drawn
  );
}
