import { useState } from 'preact/hooks';
import type { Json } from '../lib/diff';
import { plural } from '../lib/format';
import { kindOf, line, MEMBERS_PAGE, members, opens, size, TEXT_MAX } from '../lib/json';

/** Members that are seen in a line: they need not be counted. */
const PREVIEWED_MAX = 3;

/** A JSON value as a tree that opens where it is asked to. Only what is open is in the page. */
export function JsonTree({ value, label }: { value: Json; label: string }) {
  return (
    <ul class="json" aria-label={label}>
      <Node name={undefined} value={value} depth={0} />
    </ul>
  );
}

function Node({ name, value, depth }: { name: string | undefined; value: Json; depth: number }) {
  const kind = kindOf(value);
  if (kind !== 'list' && kind !== 'map') {
    return (
      <li class="json-leaf">
        {name !== undefined && <span class="json-name">{name}</span>}
        <Leaf value={value} />
      </li>
    );
  }
  return <Branch name={name} value={value} depth={depth} />;
}

function Branch({ name, value, depth }: { name: string | undefined; value: Json; depth: number }) {
  const [isOpen, setOpen] = useState(depth === 0 || opens(value, depth));
  const [shown, setShown] = useState(MEMBERS_PAGE);
  const count = size(value);
  const kind = kindOf(value);
  const what = kind === 'list' ? plural(count, 'element') : plural(count, 'field');
  if (count === 0) {
    return (
      <li class="json-leaf">
        {name !== undefined && <span class="json-name">{name}</span>}
        <span class="quiet">{kind === 'list' ? '[]' : '{}'}</span>
      </li>
    );
  }
  return (
    <li>
      <button type="button" class="json-toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="json-mark" aria-hidden="true" />
        {name !== undefined && <span class="json-name">{name}</span>}
        {(isOpen || count > PREVIEWED_MAX) && <span class="json-count">{what}</span>}
        {!isOpen && <span class="json-preview">{line(value, 80)}</span>}
      </button>
      {isOpen && (
        <ul>
          {members(value, 0, shown).map(([member, inner]) => (
            <Node key={member} name={member} value={inner} depth={depth + 1} />
          ))}
          {count > shown && (
            <li>
              <button type="button" class="button plain" onClick={() => setShown(shown + MEMBERS_PAGE * 5)}>
                Show more of {plural(count - shown, 'other')}
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

function Leaf({ value }: { value: Json }) {
  const [isWhole, setWhole] = useState(false);
  if (typeof value !== 'string') return <span class={`json-${kindOf(value)}`}>{String(value)}</span>;
  const isLong = value.length > TEXT_MAX && !isWhole;
  return (
    <span class="json-text">
      "{isLong ? `${value.slice(0, TEXT_MAX)}…` : value}"
      {isLong && (
        <button type="button" class="button plain" onClick={() => setWhole(true)}>
          Show all {plural(value.length, 'character')}
        </button>
      )}
    </span>
  );
}
