import { useState } from 'preact/hooks';
import { Failure } from '../../api/client';
import * as picos from '../../api/picos';
import type { Json } from '../../lib/diff';
import { readJson } from '../../lib/schema';
import { Note } from '../../parts/basic';
import { JsonTree } from '../../parts/json';

type Outcome = { reply: Json } | { wrong: string };

/** Sends an event or asks a query, as any client with this channel could. */
export function Try({ eci, rulesets }: { eci: string; rulesets: picos.Ruleset[] }) {
  const [isQuery, setQuery] = useState(false);
  const [first, setFirst] = useState('');
  const [name, setName] = useState('');
  const [given, setGiven] = useState('');
  const [outcome, setOutcome] = useState<Outcome>();
  const run = async (event: Event) => {
    event.preventDefault();
    const read = readJson(given.trim() === '' ? '{}' : given, isQuery ? 'Arguments' : 'Attributes');
    if ('problem' in read) return setOutcome({ wrong: read.problem });
    try {
      const reply = isQuery
        ? await picos.query(eci, first, name, read.value)
        : await picos.event(eci, first, name, read.value);
      setOutcome({ reply: reply as Json });
    } catch (error) {
      setOutcome({ wrong: error instanceof Failure ? error.message : String(error) });
    }
  };
  return (
    <form class="stack" onSubmit={(event) => void run(event)}>
      <div class="row" role="group" aria-label="What to send">
        <button type="button" class="button" aria-pressed={!isQuery} onClick={() => setQuery(false)}>
          Event
        </button>
        <button type="button" class="button" aria-pressed={isQuery} onClick={() => setQuery(true)}>
          Query
        </button>
      </div>
      <div class="field">
        <label for="try-first">{isQuery ? 'Ruleset' : 'Domain'}</label>
        <input
          id="try-first"
          class="input"
          list="try-rids"
          value={first}
          autocomplete="off"
          onInput={(event) => setFirst(event.currentTarget.value)}
        />
        <datalist id="try-rids">
          {isQuery && rulesets.map((ruleset) => <option key={ruleset.rid} value={ruleset.rid} />)}
        </datalist>
      </div>
      <div class="field">
        <label for="try-name">Name</label>
        <input
          id="try-name"
          class="input"
          value={name}
          autocomplete="off"
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </div>
      <div class="field">
        <label for="try-given">{isQuery ? 'Arguments' : 'Attributes'}, as JSON</label>
        <textarea
          id="try-given"
          class="input"
          value={given}
          placeholder="{ … }"
          spellcheck={false}
          onInput={(event) => setGiven(event.currentTarget.value)}
        />
      </div>
      <div class="row">
        <button type="submit" class="button primary" disabled={first === '' || name === ''}>
          {isQuery ? 'Ask' : 'Send'}
        </button>
        <span class="small quiet">It goes over the channel of the console: its policy says what is let through.</span>
      </div>
      <div aria-live="polite">
        {outcome && 'wrong' in outcome && <Note tone="bad">{outcome.wrong}</Note>}
        {outcome && 'reply' in outcome && <JsonTree value={outcome.reply} label="Answer" />}
      </div>
    </form>
  );
}
