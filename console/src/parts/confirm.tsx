import { useState } from 'preact/hooks';
import * as calls from '../api/calls';
import type { Action, Trouble } from '../api/types';
import { whole } from '../lib/format';
import { overview } from '../state/service';
import { say } from '../state/toast';
import { Note } from './basic';
import { Content } from './content';
import { Dialog } from './dialog';
import { ReasonField, withReason } from './reason';

/** What an action does, where the server has nothing to add. */
const DOES: Record<string, string> = {
  retry: 'It is executed again now, after what came meanwhile. If it fails again it stays here, with the new reason.',
  release:
    'It is loaded again from its events, at once. If they still cannot be applied it stays here, and you are told.',
  resume: 'It tries the event it has stopped at again. If it still cannot take it, it stops there again.',
};

/** Tells in words what an action does. */
export const doesOf = ({ name, confirm }: Action) => confirm ?? DOES[name] ?? 'It is done at once.';

/** An action somebody has chosen, and of what it is. */
interface Asked {
  action: Action;
  /** Counts what is left of an action on many. */
  left?: () => number;
  of: { kind: string | null; id: string | null; what: string } & Partial<Trouble>;
}

/** How a screen asks before an action is done, and the dialog that it shows meanwhile; `done` follows once it was done. */
export function useConfirm(done: () => void) {
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const dialog = asked && <Confirm {...asked} close={close} done={done} />;
  return { ask: setAsked, dialog };
}

/** Why an action was done and has mended nothing; `undefined` if it has. */
export function vain({ retried, loaded, reason }: calls.Done): string | undefined {
  if (loaded === false) return `It still cannot be brought back: ${reason ?? 'nobody knows why'}`;
  const [one] = retried ?? [];
  return one?.outcome === 'dead' ? `It is dead again: ${one.reason ?? ''}` : undefined;
}

/** What came of an action, in words. */
function outcome({ retried, done, refused, dead, dropped, stopped, released, loaded, reason }: calls.Done): string {
  if (released !== undefined) {
    if (!released) return 'it was not quarantined any more.';
    return loaded ? 'it is loaded again.' : `it is not known whether it can be loaded: ${reason ?? ''}`;
  }
  if (stopped === undefined) {
    const came = retried?.[0]?.outcome ?? 'done';
    return came === 'done' ? 'done.' : `${came}. ${retried?.[0]?.reason ?? ''}`;
  }
  const counts =
    dropped === undefined
      ? `${whole(done ?? 0)} taken, ${whole(refused ?? 0)} refused, ${whole(dead ?? 0)} dead again.`
      : `${whole(Number(dropped))} dropped.`;
  return stopped === null ? counts : `${counts} The rest is as it was: ${stopped}`;
}

/** Says what an action will do, and does it. */
function Confirm({ action, of, left, close, done }: Asked & { close: () => void; done: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string>();
  const [reason, setReason] = useState('');
  const by = overview.value?.console.by;
  const run = async () => {
    setBusy(true);
    setWrong(undefined);
    try {
      const came = await calls.act(action.path + withReason(action, reason));
      const failed = vain(came);
      if (failed === undefined) {
        say(`${action.label}: ${outcome(came)}`);
        close();
      } else {
        setWrong(failed);
        setBusy(false);
      }
      done();
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${action.label}?`} close={close}>
      <div class="stack">
        <p>
          {of.kind !== null && of.id !== null && (
            <>
              <b class="break">
                {of.kind}/{of.id}
              </b>
              :{' '}
            </>
          )}
          <span class="break">{of.what}</span>
        </p>
        {of.message && <Content of={of} message={of.message} />}
        <p>{doesOf(action)}</p>
        {action.needs_reason && <ReasonField value={reason} set={setReason} />}
        <p class="small quiet">The log will say that it was done{by ? `, by ${by}` : ''}.</p>
        {isBusy && left && <Left left={left()} />}
        {wrong && <Note tone="bad">{wrong}</Note>}
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class={`button primary ${action.confirm ? 'danger' : ''}`}
          disabled={isBusy || (action.needs_reason && reason.trim() === '')}
          onClick={() => void run()}
        >
          {action.label}
        </button>
      </div>
    </Dialog>
  );
}

/** Shows how far an action on many has come. */
function Left({ left }: { left: number }) {
  const [first] = useState(left);
  return (
    <>
      <progress class="progress" max={Math.max(1, first)} value={first - left} aria-label="How far it has come" />
      <p role="status" class="tabular">
        {whole(left)} of {whole(first)} left
      </p>
    </>
  );
}
