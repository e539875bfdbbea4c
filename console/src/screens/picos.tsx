import { useEffect, useState } from 'preact/hooks';
import * as picos from '../api/picos';
import { link } from '../lib/route';
import { Absent } from '../parts/absent';
import { Card, Empty } from '../parts/basic';
import { Icon } from '../parts/icon';
import { useLoad } from '../parts/load';
import { route } from '../state/place';
import { overview } from '../state/service';
import { PicoView } from './picos/pico';

/** Children of a pico that are shown before more are asked for. */
const CHILDREN_SHOWN = 50;

export function PicosScreen() {
  const served = overview.value?.console.picos;
  if (overview.value && !served) return <NotServed />;
  return <Picos />;
}

function NotServed() {
  return (
    <>
      <div class="head">
        <h1>Picos</h1>
      </div>
      <Card>
        <Empty icon="picos" title="No picos are served here">
          <p>An engine of picos shows its picos here, with their rulesets, channels and logs. Start one with:</p>
          <pre>picos serve</pre>
        </Empty>
      </Card>
    </>
  );
}

function Picos() {
  const { value: root, failure } = useLoad(() => picos.root(), []);
  const chosen = route.value.path[0] ?? root?.eci;
  const [changes, setChanges] = useState(0);
  return (
    <>
      <div class="head">
        <h1>Picos</h1>
        <span class="quiet">Parents and their children; each with its rulesets, channels and log</span>
      </div>
      {!root && <Absent failure={failure} what="the picos" />}
      {root && chosen && (
        <div class="pico-columns">
          <Card title="Family">
            <ul class="pico-tree" aria-label="Picos">
              <Branch eci={root.eci} chosen={chosen} depth={0} changes={changes} />
            </ul>
          </Card>
          <PicoView key={chosen} eci={chosen} changed={() => setChanges((count) => count + 1)} />
        </div>
      )}
    </>
  );
}

interface BranchProps {
  eci: string;
  chosen: string;
  depth: number;
  /** How often something was changed from here. */
  changes: number;
}

/** A pico and, where it is open, its children: asked for when they are, and anew after a change. */
function Branch({ eci, chosen, depth, changes }: BranchProps) {
  const { value: box, failure, reload } = useLoad(() => picos.box(eci), [eci]);
  useEffect(() => {
    if (changes > 0) reload();
  }, [changes, reload]);
  const [isOpen, setOpen] = useState(depth === 0);
  const [shown, setShown] = useState(CHILDREN_SHOWN);
  if (!box) return <li class="quiet">{failure ? failure.message : '…'}</li>;
  const children = box.children;
  return (
    <li>
      <span class="pico-row">
        {children.length > 0 ? (
          <button
            type="button"
            class="button plain icon-only pico-toggle"
            aria-expanded={isOpen}
            aria-label={`Children of ${picos.nameOf(box)}`}
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name={isOpen ? 'down' : 'right'} />
          </button>
        ) : (
          <span class="pico-toggle" />
        )}
        <a class="pico-name break" href={link('picos', [eci])} aria-current={eci === chosen ? 'true' : undefined}>
          {picos.nameOf(box)}
        </a>
        {children.length > 0 && <span class="quiet small tabular">{children.length}</span>}
      </span>
      {isOpen && children.length > 0 && (
        <ul>
          {children.slice(0, shown).map((child) => (
            <Branch key={child} eci={child} chosen={chosen} depth={depth + 1} changes={changes} />
          ))}
          {children.length > shown && (
            <li>
              <button type="button" class="button plain" onClick={() => setShown(shown + CHILDREN_SHOWN)}>
                {children.length - shown} more
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}
