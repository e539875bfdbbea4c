import { useState } from 'preact/hooks';
import { Failure } from '../../api/client';
import * as picos from '../../api/picos';
import type { Json } from '../../lib/diff';
import { verdict } from '../../lib/policy';
import { readJson } from '../../lib/schema';
import { Note } from '../../parts/basic';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';
import { TestingForm, type Tried } from './testing';

type Outcome = { reply: Json } | { wrong: string };

/** Sends an event or asks a query, as any client with this channel could. */
export function Try({ eci, pico: { rulesets, channels } }: { eci: string; pico: picos.Pico }) {
  const [isQuery, setQuery] = useState(false);
  const [first, setFirst] = useState('');
  const [name, setName] = useState('');
  const [given, setGiven] = useState('');
  const [outcome, setOutcome] = useState<Outcome>();
  const [chosen, setChosen] = useState('');
  const [over, setOver] = useState('');
  const usable = channels.filter((channel) => channel.familyChannelPicoID === null);
  const { value: testing } = useLoad(
    () => (chosen === '' ? Promise.resolve(undefined) : picos.testing(eci, chosen)),
    [eci, chosen],
  );
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
  const send = async ({ isQuery, domain, name, given }: Tried) => {
    // The first that lets it through, unless one is chosen.
    const lets = (channel: picos.Channel) =>
      isQuery ? verdict(channel.queryPolicy, chosen, name) : verdict(channel.eventPolicy, domain, name);
    const open = usable.find((channel) => lets(channel) === 'allowed');
    const via = over || open?.id || eci;
    try {
      const reply = isQuery ? await picos.query(via, chosen, name, given) : await picos.event(via, domain, name, given);
      setOutcome({ reply: reply as Json });
    } catch (error) {
      setOutcome({ wrong: error instanceof Failure ? error.message : String(error) });
    }
  };
  return (
    <div class="stack">
      <div class="field">
        <label for="try-of">Ruleset to test</label>
        <select
          id="try-of"
          class="input"
          value={chosen}
          onChange={(event) => {
            setChosen(event.currentTarget.value);
            setOutcome(undefined);
          }}
        >
          <option value="">none: anything, below</option>
          {rulesets.map((ruleset) => (
            <option key={ruleset.rid} value={ruleset.rid}>
              {ruleset.rid}
            </option>
          ))}
        </select>
      </div>
      {chosen !== '' && (
        <div class="field">
          <label for="try-over">Over the channel</label>
          <select id="try-over" class="input" value={over} onChange={(event) => setOver(event.currentTarget.value)}>
            <option value="">the first that lets it through</option>
            {usable.map((channel) => (
              <option key={channel.id} value={channel.id}>
                {channel.tags.join(', ') || 'no tags'} ({channel.id.slice(-8)})
              </option>
            ))}
          </select>
        </div>
      )}
      {chosen !== '' && testing && (
        <TestingForm key={chosen} id="test" testing={testing} action="Send it" run={(tried) => void send(tried)} />
      )}
      {chosen === '' && (
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
            <span class="small quiet">
              It goes over the channel of the console: its policy says what is let through.
            </span>
          </div>
        </form>
      )}
      <div aria-live="polite">
        {outcome && 'wrong' in outcome && <Note tone="bad">{outcome.wrong}</Note>}
        {outcome && 'reply' in outcome && <JsonTree value={outcome.reply} label="Answer" />}
      </div>
    </div>
  );
}
