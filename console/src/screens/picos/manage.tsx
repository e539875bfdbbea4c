import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import * as picos from '../../api/picos';
import { Note } from '../../parts/basic';
import { Dialog } from '../../parts/dialog';
import { go } from '../../state/place';
import { say } from '../../state/toast';

interface AskProps {
  title: string;
  action: string;
  children: ComponentChildren;
  run: () => Promise<string>;
  close: () => void;
}

/** Asks before something that cannot be taken back. */
function AskFirst({ title, action, children, run, close }: AskProps) {
  const [wrong, setWrong] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    try {
      const said = await run();
      close();
      say(said);
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <div class="stack">
        {children}
        {wrong && <Note tone="bad">{wrong}</Note>}
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="button primary danger" disabled={isBusy} onClick={() => void go()}>
          {action}
        </button>
      </div>
    </Dialog>
  );
}

/** Takes a ruleset out of the pico. */
export function Uninstall({ eci, rid, done }: { eci: string; rid: string; done: () => void }) {
  const [isAsked, setAsked] = useState(false);
  const run = async () => {
    await picos.event(eci, 'engine_ui', 'uninstall', { rid });
    done();
    return `${rid} is uninstalled.`;
  };
  return (
    <>
      <button type="button" class="button danger" aria-label={`Uninstall ${rid}`} onClick={() => setAsked(true)}>
        Uninstall
      </button>
      {isAsked && (
        <AskFirst title={`Uninstall ${rid}?`} action="Uninstall" run={run} close={() => setAsked(false)}>
          <p>Its rules take no event any more, and its variables are removed. Other picos keep theirs.</p>
        </AskFirst>
      )}
    </>
  );
}

/** Names a pico anew, and deletes it with all below it. */
export function Manage({ box, done }: { box: picos.Box; done: () => void }) {
  const [name, setName] = useState('');
  const [wrong, setWrong] = useState<string>();
  const [isAsked, setAsked] = useState(false);
  const { eci, parent } = box;
  const rename = async (event: Event) => {
    event.preventDefault();
    try {
      await picos.event(eci, 'engine_ui', 'box', { name });
      setWrong(undefined);
      setName('');
      done();
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
    }
  };
  const remove = async () => {
    await picos.event(parent ?? '', 'engine_ui', 'del', { eci });
    done();
    go('picos', [parent ?? '']);
    return `${picos.nameOf(box)} is deleted.`;
  };
  return (
    <div class="stack">
      <form class="field" onSubmit={(event) => void rename(event)}>
        <label for="pico-name">Its name</label>
        <input
          id="pico-name"
          class="input"
          value={name}
          placeholder={picos.nameOf(box)}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <div class="row">
          <button type="submit" class="button" disabled={name.trim() === ''}>
            Rename
          </button>
          {parent !== null && (
            <button type="button" class="button danger" onClick={() => setAsked(true)}>
              Delete the pico
            </button>
          )}
        </div>
      </form>
      {wrong && <Note tone="bad">{wrong}</Note>}
      {isAsked && (
        <AskFirst
          title={`Delete ${picos.nameOf(box)}?`}
          action="Delete the pico"
          run={remove}
          close={() => setAsked(false)}
        >
          <p>
            It ends, and with it all picos below it. Their history stays in the journal; nobody can bring them back from
            here.
          </p>
        </AskFirst>
      )}
    </div>
  );
}
