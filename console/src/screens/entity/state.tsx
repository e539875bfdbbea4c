import { useMemo } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { Failure } from '../../api/client';
import type { Entity } from '../../api/types';
import { CHANGES_MAX, type Change, diff, type Json } from '../../lib/diff';
import { bytes, whole } from '../../lib/format';
import { line } from '../../lib/json';
import { Absent } from '../../parts/absent';
import { Card, Empty, Note } from '../../parts/basic';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';
import { Raw } from '../../parts/raw';
import { set } from '../../state/place';

interface Props {
  kind: string;
  id: string;
  shown: Entity | undefined;
  at: number | undefined;
  /** The event whose state is compared with the one shown. */
  against: number | undefined;
  last: number;
  failure: Failure | undefined;
}

export function StateCard({ kind, id, shown, at, against, last, failure }: Props) {
  const place = at ?? last;
  const compare = () => set({ with: against === undefined ? Math.max(0, place - 1) : undefined });
  return (
    <Card
      title={at === undefined ? 'State' : `State as of event ${whole(at)}`}
      aside={
        <span class="row">
          {shown?.state_bytes != null && <span class="small quiet tabular">{bytes(shown.state_bytes)}</span>}
          <button type="button" class="button" aria-pressed={against !== undefined} onClick={compare}>
            Compare
          </button>
        </span>
      }
    >
      {against !== undefined && (
        <Compared kind={kind} id={id} shown={shown} place={place} against={against} last={last} />
      )}
      {against === undefined && <State shown={shown} failure={failure} />}
    </Card>
  );
}

function State({ shown, failure }: { shown: Entity | undefined; failure: Failure | undefined }) {
  if (!shown) return <Absent failure={failure} what="the state" />;
  if (shown.state === null) {
    return (
      <Empty icon="entity" title="No state" compact>
        <p>
          {shown.quarantine
            ? 'Its events cannot be applied by this program.'
            : 'It has none at this point: nothing has happened yet, or it has ended.'}
        </p>
      </Empty>
    );
  }
  return (
    <>
      <JsonTree key={shown.at_seq} value={shown.state} label="State" />
      <Raw value={shown.state} what={`the state as of event ${shown.at_seq}`} />
    </>
  );
}

interface ComparedProps {
  kind: string;
  id: string;
  shown: Entity | undefined;
  place: number;
  against: number;
  last: number;
}

/** What differs between two points of the history; the later one is what they are told from. */
function Compared({ kind, id, shown, place, against, last }: ComparedProps) {
  const { value: other, failure } = useLoad((signal) => calls.entity(kind, id, against, signal), [kind, id, against]);
  const changes = useMemo(() => {
    if (!shown || !other) return undefined;
    const [before, after] = against <= place ? [other.state, shown.state] : [shown.state, other.state];
    return diff(before ?? undefined, after ?? undefined);
  }, [shown, other]);
  const [from, to] = against <= place ? [against, place] : [place, against];
  return (
    <div class="stack">
      <div class="row">
        <label for="against" class="quiet">
          Compared with event
        </label>
        <input
          id="against"
          class="input short-input tabular"
          type="number"
          min={0}
          max={last}
          value={against}
          onInput={(event) =>
            event.currentTarget.value !== '' &&
            set({ with: Math.min(last, Math.max(0, Number(event.currentTarget.value))) })
          }
        />
      </div>
      {!changes && <Absent failure={failure} what="the other state" />}
      {changes?.length === 0 && (
        <p class="quiet">
          Nothing differs between event {whole(from)} and event {whole(to)}.
        </p>
      )}
      {changes && changes.length > 0 && (
        <Changes changes={changes} label={`What differs from event ${from} to event ${to}`} />
      )}
    </div>
  );
}

/** Shows differences, one a line. */
export function Changes({ changes, label }: { changes: Change[]; label: string }) {
  return (
    <>
      <ul class="changes" aria-label={label}>
        {changes.map((change) => (
          <ChangeRow key={change.path.join('\u0000')} change={change} />
        ))}
      </ul>
      {changes.length === CHANGES_MAX && (
        <Note tone="accent">The first {whole(CHANGES_MAX)} differences are shown.</Note>
      )}
    </>
  );
}

const SIGNS = { added: '+', removed: '−', changed: '±' };

function ChangeRow({ change }: { change: Change }) {
  return (
    <li class={`change ${change.what}`}>
      <span class="change-sign" aria-hidden="true">
        {SIGNS[change.what]}
      </span>
      <span class="hidden">{change.what} </span>
      <span class="change-path break">{change.path.length === 0 ? 'all of it' : change.path.join(' › ')}</span>
      <span class="change-values mono break">
        {change.before !== undefined && <del>{short(change.before)}</del>}
        {change.what === 'changed' && <span aria-hidden="true"> → </span>}
        {change.after !== undefined && <ins>{short(change.after)}</ins>}
      </span>
    </li>
  );
}

const short = (value: Json) => line(value, 300);
