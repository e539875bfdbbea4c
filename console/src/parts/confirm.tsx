import { useState } from 'preact/hooks';
import * as calls from '../api/calls';
import type { Action } from '../api/types';
import { whole } from '../lib/format';
import { overview } from '../state/service';
import { say } from '../state/toast';
import { Note } from './basic';
import { Dialog } from './dialog';

/** What an action does, where the server has nothing to add. */
const DOES: Record<string, string> = {
  retry: 'It is executed again now, after what came meanwhile. If it fails again it stays here, with the new reason.',
  release: 'Its next command loads it again from its events. If they still cannot be applied it comes back here.',
  resume: 'It tries the event it has stopped at again. If it still cannot take it, it stops there again.',
};

/** An action somebody has chosen, and of what it is. */
interface Asked {
  action: Action;
  of: { kind: string | null; id: string | null; what: string };
}

/** How a screen asks before an action is done, and the dialog that it shows meanwhile; `done` follows once it was done. */
export function useConfirm(done: () => void) {
  const [asked, setAsked] = useState<Asked>();
  const close = () => setAsked(undefined);
  const dialog = asked && (
    <Confirm
      {...asked}
      close={close}
      done={() => {
        close();
        done();
      }}
    />
  );
  return { ask: setAsked, dialog };
}

/** What came of an action, in words. */
function outcome({ retried, done, refused, dead, dropped, stopped }: calls.Done): string {
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
function Confirm({ action, of, close, done }: Asked & { close: () => void; done: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string>();
  const [reason, setReason] = useState('');
  const by = overview.value?.console.by;
  const run = async () => {
    setBusy(true);
    setWrong(undefined);
    try {
      const came = await calls.act(
        action.needs_reason ? `${action.path}&reason=${encodeURIComponent(reason.trim())}` : action.path,
      );
      say(`${action.label}: ${outcome(came)}`);
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
        <p>{action.confirm ?? DOES[action.name] ?? 'It is done at once.'}</p>
        {action.needs_reason && (
          <div class="field">
            <label for="reason">Why? It is recorded with who did it.</label>
            <input
              id="reason"
              class="input"
              required
              value={reason}
              autocomplete="off"
              onInput={(event) => setReason(event.currentTarget.value)}
            />
          </div>
        )}
        <p class="small quiet">The log will say that it was done{by ? `, by ${by}` : ''}.</p>
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
