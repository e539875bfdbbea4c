import { useEffect, useRef, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { Action, Address } from '../../api/types';
import { write } from '../../lib/exact';
import { plural, whole } from '../../lib/format';
import { each, reasonKey, type SameReason } from '../../lib/reasons';
import { ActButton } from '../../parts/act_button';
import { Note } from '../../parts/basic';
import { doesOf, vain } from '../../parts/confirm';
import { Dialog } from '../../parts/dialog';
import { EntityLink } from '../../parts/link';
import { ReasonField, withReason } from '../../parts/reason';
import { save } from '../../parts/save';
import { say } from '../../state/toast';

/** Requests at once. */
const AT_ONCE = 4;
/** Failures that are named. */
const NAMED_MAX = 50;

interface Meant extends Address {
  reason: string;
  path: (action: Action) => string;
}

/** All that have the same reason: listed, or as many as the server names. */
async function all(group: SameReason): Promise<Meant[]> {
  const listed = group.items.map((item) => ({
    kind: item.kind ?? '',
    id: item.id ?? '',
    reason: item.reason,
    path: ({ name }: Action) => item.actions.find((action) => action.name === name)?.path ?? '',
  }));
  if (group.type !== 'quarantined') return listed;
  const { entities } = await calls.stuck();
  const isListed = new Set(listed.map(({ kind, id }) => `${kind}/${id}`));
  const isByOperator = group.items[0]?.actions[0]?.label === 'Release';
  const others = entities.filter(
    (one) =>
      one.state === 'quarantined' &&
      (one.by !== null) === isByOperator &&
      reasonKey(one.reason) === reasonKey(group.reason) &&
      !isListed.has(`${one.kind}/${one.id}`),
  );
  const [kind, id] = [(of: Address) => encodeURIComponent(of.kind), (of: Address) => encodeURIComponent(of.id)];
  return [
    ...listed,
    ...others.map((one) => ({
      kind: one.kind,
      id: one.id,
      reason: one.reason,
      path: ({ path }: Action) => `${path.split('?')[0]}?kind=${kind(one)}&id=${id(one)}`,
    })),
  ];
}

/** Shows the entities of one reason as a row, to act on them together and to export them. */
export function Reason({ group, done }: { group: SameReason; done: () => void }) {
  const { reason, items, actions } = group;
  const [asked, setAsked] = useState<Action>();
  const of = `${items.length} of ${reason}`;
  const exported = async () => {
    try {
      const found = await all(group);
      save(`${group.type}.jsonl`, found.map(({ kind, id, reason }) => `${write({ kind, id, reason })}\n`).join(''));
      say(`Export all: ${plural(found.length, 'entity', 'entities')}.`);
    } catch (error) {
      say(`Export all: ${error instanceof Error ? error.message : String(error)}`);
    }
  };
  return (
    <li class="trouble of-many">
      <div class="trouble-text">
        <p class="trouble-what break">{plural(items.length, 'entity', 'entities')} of one reason</p>
        <p class="quiet break">{reason}</p>
      </div>
      <div class="row trouble-actions">
        <button type="button" class="button" aria-label={`Export all ${of}`} onClick={() => void exported()}>
          Export all
        </button>
        {actions.map((action) => (
          <ActButton
            key={action.name}
            action={action}
            label={`${action.label}, all ${of}`}
            run={() => setAsked(action)}
          >
            {action.label}, all
          </ActButton>
        ))}
      </div>
      {asked && <ActOnAll group={group} action={asked} close={() => setAsked(undefined)} done={done} />}
    </li>
  );
}

interface Went {
  total: number;
  done: number;
  failed: (Address & { why: string })[];
  isOver: boolean;
}

function ActOnAll({
  group,
  action,
  close,
  done,
}: {
  group: SameReason;
  action: Action;
  close: () => void;
  done: () => void;
}) {
  const [found, setFound] = useState<Meant[]>();
  const [wrong, setWrong] = useState<string>();
  const [reason, setReason] = useState('');
  const [went, setWent] = useState<Went>();
  const isStopped = useRef(false);
  useEffect(() => {
    all(group).then(setFound, (error: unknown) => setWrong(error instanceof Error ? error.message : String(error)));
    return () => {
      isStopped.current = true;
    };
  }, []);
  const run = async () => {
    const of = found ?? [];
    const now: Went = { total: of.length, done: 0, failed: [], isOver: false };
    setWent({ ...now });
    const why = withReason(action, reason);
    await each(
      of,
      AT_ONCE,
      () => isStopped.current,
      async ({ kind, id, path }) => {
        const failed = await calls.act(path(action) + why).then(vain, (error: unknown) => String(error));
        if (failed === undefined) now.done++;
        else now.failed.push({ kind, id, why: failed });
        setWent({ ...now });
      },
    );
    setWent({ ...now, isOver: true });
    done();
  };
  const title = `${action.label}, all${found ? ` ${whole(found.length)}` : ''}?`;
  return (
    <Dialog title={title} close={close}>
      <div class="stack">
        <p class="break">{group.reason}</p>
        {!went && <p>For each of them: {doesOf(action)}</p>}
        {!went && action.needs_reason && <ReasonField value={reason} set={setReason} />}
        {wrong && <Note tone="bad">{wrong}</Note>}
        {went && <Progress went={went} isStopped={isStopped.current} />}
      </div>
      <div class="dialog-foot">
        {!went && (
          <>
            <button type="button" class="button" onClick={close}>
              Cancel
            </button>
            <button
              type="button"
              class={`button primary ${action.confirm ? 'danger' : ''}`}
              disabled={!found || (action.needs_reason && reason.trim() === '')}
              onClick={() => void run()}
            >
              {action.label}, all
            </button>
          </>
        )}
        {went && !went.isOver && (
          <button
            type="button"
            class="button"
            onClick={() => {
              isStopped.current = true;
            }}
          >
            Stop
          </button>
        )}
        {went?.isOver && (
          <button type="button" class="button primary" onClick={close}>
            Close
          </button>
        )}
      </div>
    </Dialog>
  );
}

function Progress({ went: { total, done, failed, isOver }, isStopped }: { went: Went; isStopped: boolean }) {
  const tried = done + failed.length;
  return (
    <>
      <progress class="progress" max={total} value={tried} aria-label="How many were tried" />
      <p role="status" class="tabular">
        {whole(tried)} of {whole(total)} tried: {whole(done)} done, {whole(failed.length)} as before.
        {isOver && isStopped && tried < total && ' Stopped; the rest is as it was.'}
      </p>
      {failed.length > 0 && (
        <ul class="lines failed" aria-label="As before">
          {failed.slice(0, NAMED_MAX).map(({ kind, id, why }) => (
            <li key={`${kind}/${id}`} class="break">
              <EntityLink of={{ kind, id }} /> <span class="quiet small">{why}</span>
            </li>
          ))}
          {failed.length > NAMED_MAX && <li class="quiet">and {whole(failed.length - NAMED_MAX)} more</li>}
        </ul>
      )}
    </>
  );
}
