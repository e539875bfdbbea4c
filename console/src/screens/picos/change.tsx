import { useState } from 'preact/hooks';
import * as picos from '../../api/picos';
import { Note } from '../../parts/basic';
import { say } from '../../state/toast';

/** Installs a ruleset, has one fetched anew, makes a child. */
export function Change({ eci, done }: { eci: string; done: () => void }) {
  const [url, setUrl] = useState('');
  const [name, setName] = useState('');
  const [wrong, setWrong] = useState<string>();
  const run = async (what: () => Promise<unknown>, said: string) => {
    setWrong(undefined);
    try {
      await what();
      say(said);
      done();
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <div class="stack">
      <form
        class="field"
        onSubmit={(event) => {
          event.preventDefault();
          void run(() => picos.event(eci, 'engine_ui', 'install', { url, config: {} }), `${url} is installed.`);
        }}
      >
        <label for="pico-url">A ruleset's URL</label>
        <input
          id="pico-url"
          class="input"
          value={url}
          placeholder="https://… or file://…"
          autocomplete="off"
          onInput={(event) => setUrl(event.currentTarget.value)}
        />
        <div class="row">
          <button type="submit" class="button" disabled={url === ''}>
            Install
          </button>
          <button
            type="button"
            class="button"
            disabled={url === ''}
            onClick={() => void run(() => picos.flush(url), `${url} was fetched anew.`)}
          >
            Refresh
          </button>
        </div>
      </form>
      <form
        class="field"
        onSubmit={(event) => {
          event.preventDefault();
          void run(() => picos.event(eci, 'engine_ui', 'new', { name }), `${name} is born.`);
        }}
      >
        <label for="pico-child">A new child's name</label>
        <input
          id="pico-child"
          class="input"
          value={name}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <div class="row">
          <button type="submit" class="button" disabled={name === ''}>
            Make a child
          </button>
        </div>
      </form>
      {wrong && <Note tone="bad">{wrong}</Note>}
    </div>
  );
}
