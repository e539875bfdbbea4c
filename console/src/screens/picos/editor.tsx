import { useEffect, useRef, useState } from 'preact/hooks';
import * as picos from '../../api/picos';
import type { Json } from '../../lib/diff';
import { plural } from '../../lib/format';
import { Badge, Note } from '../../parts/basic';
import { Dialog } from '../../parts/dialog';
import { JsonTree } from '../../parts/json';
import { say } from '../../state/toast';
import { Painted } from './painted';
import { Rules } from './rules';
import { TestingForm, type Tried } from './testing';

/** Checked so long after the last key. */
const PAUSE_MS = 400;

const NEW = `ruleset my.ruleset {
  meta {
    shares hello
  }
  global {
    hello = function(name) { "Hello " + name.defaultsTo("world") }
  }
  rule greet {
    select when echo hello
    send_directive("say", {"text": hello(event:attrs{"name"})})
  }
}
`;

const message = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** A ruleset is written, checked as it is written, tried on a copy of the pico, and installed. */
export function Editor({ eci, rulesets, done }: { eci: string; rulesets: picos.Ruleset[]; done: () => void }) {
  const own = rulesets.filter((ruleset) => ruleset.meta?.krl);
  const [chosen, setChosen] = useState('');
  const [source, setSource] = useState(NEW);
  const { checked, wrong } = useCheck(source);
  const [isAsked, setAsked] = useState(false);
  const installed = rulesets.find((ruleset) => ruleset.rid === checked?.rid);
  const choose = (rid: string) => {
    setChosen(rid);
    setSource(own.find((ruleset) => ruleset.rid === rid)?.meta?.krl ?? NEW);
  };
  const format = async () => {
    try {
      setSource((await picos.format(source)).source);
    } catch (error) {
      say(message(error));
    }
  };
  const flush = async (url: string) => {
    try {
      await picos.flush(url);
      say(`${url} was fetched anew.`);
      done();
    } catch (error) {
      say(message(error));
    }
  };
  return (
    <div class="stack">
      <div class="field">
        <label for="editor-of">Begin with</label>
        <select id="editor-of" class="input" value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
          <option value="">a new ruleset</option>
          {own.map((ruleset) => (
            <option key={ruleset.rid} value={ruleset.rid}>
              {ruleset.rid}
            </option>
          ))}
        </select>
      </div>
      <Source source={source} change={setSource} marks={checked?.errors ?? []} warnings={checked?.warnings ?? []} />
      {wrong && <Note tone="bad">{wrong}</Note>}
      <div class="row">
        <button type="button" class="button primary" disabled={!checked?.sound} onClick={() => setAsked(true)}>
          Install
        </button>
        <button type="button" class="button" disabled={!checked || checked.rid === null} onClick={() => void format()}>
          Format
        </button>
        {installed && !installed.url.startsWith('throng:') && (
          <button type="button" class="button" onClick={() => void flush(installed.url)}>
            Fetch {installed.rid} anew
          </button>
        )}
      </div>
      {checked?.sound && <TryOut eci={eci} source={source} testing={checked.testing} />}
      {isAsked && checked?.rid && (
        <Install
          eci={eci}
          source={source}
          rid={checked.rid}
          replaces={installed?.url}
          close={() => setAsked(false)}
          done={done}
        />
      )}
    </div>
  );
}

/** What the server says of it, a moment after the last key. */
function useCheck(source: string) {
  const [checked, setChecked] = useState<picos.Checked>();
  const [wrong, setWrong] = useState<string>();
  useEffect(() => {
    let isOver = false;
    const timer = setTimeout(async () => {
      try {
        const found = await picos.check(source);
        if (!isOver) {
          setChecked(found);
          setWrong(undefined);
        }
      } catch (error) {
        if (!isOver) setWrong(message(error));
      }
    }, PAUSE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [source]);
  return { checked, wrong };
}

interface SourceProps {
  source: string;
  change: (source: string) => void;
  marks: picos.Place[];
  warnings: picos.Place[];
}

/** The text with its lines numbered, and what is wrong with it. */
function Source({ source, change, marks, warnings }: SourceProps) {
  const text = useRef<HTMLTextAreaElement>(null);
  const gutter = useRef<HTMLPreElement>(null);
  const painted = useRef<HTMLPreElement>(null);
  const lines = source.split('\n');
  const marked = new Set(marks.map((mark) => mark.line));
  const warned = new Set(warnings.map((mark) => mark.line));
  const goTo = ({ line, column }: picos.Place) => {
    const element = text.current;
    if (!element) return;
    const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    const at = before + [...(lines[line - 1] ?? '')].slice(0, column - 1).join('').length;
    element.focus();
    element.setSelectionRange(at, Math.min(at + 1, source.length));
    element.scrollTop = Math.max(0, (line - 4) * (element.scrollHeight / Math.max(lines.length, 1)));
  };
  return (
    <div class="field">
      <label for="editor-source">The ruleset</label>
      <div class="editor">
        <pre ref={gutter} class="editor-lines" aria-hidden="true">
          {lines.map((_, at) => (
            <span key={at} class={marked.has(at + 1) ? 'bad' : warned.has(at + 1) ? 'warn' : ''}>
              {at + 1}
              {'\n'}
            </span>
          ))}
        </pre>
        <pre ref={painted} class="editor-painted" aria-hidden="true">
          <Painted krl={source} />
          {'\n'}
        </pre>
        <textarea
          id="editor-source"
          ref={text}
          class="input editor-text"
          value={source}
          spellcheck={false}
          wrap="off"
          autocapitalize="off"
          aria-invalid={marks.length > 0}
          aria-describedby="editor-findings"
          onInput={(event) => change(event.currentTarget.value)}
          onScroll={(event) => {
            const { scrollTop, scrollLeft } = event.currentTarget;
            if (gutter.current) gutter.current.scrollTop = scrollTop;
            if (painted.current) [painted.current.scrollTop, painted.current.scrollLeft] = [scrollTop, scrollLeft];
          }}
        />
      </div>
      <div id="editor-findings" aria-live="polite">
        {marks.length === 0 && warnings.length === 0 ? (
          <p class="small quiet">No errors.</p>
        ) : (
          <ul class="lines" aria-label="What is wrong">
            {marks.map((mark) => (
              <Finding key={`e${mark.line}:${mark.column}${mark.message}`} mark={mark} isError goTo={goTo} />
            ))}
            {warnings.map((mark) => (
              <Finding key={`w${mark.line}:${mark.column}${mark.message}`} mark={mark} goTo={goTo} />
            ))}
          </ul>
        )}
      </div>
    </div>
  );
}

function Finding({ mark, isError, goTo }: { mark: picos.Place; isError?: boolean; goTo: (mark: picos.Place) => void }) {
  return (
    <li>
      <button type="button" class="button plain editor-finding" onClick={() => goTo(mark)}>
        <Badge tone={isError ? 'bad' : 'warn'} icon={isError ? 'stopped' : 'trouble'}>
          line {mark.line}, column {mark.column}
        </Badge>{' '}
        <span class="break">{mark.message}</span>
      </button>
    </li>
  );
}

/** What would come of its events and queries; nothing of it is recorded. */
function TryOut({ eci, source, testing }: { eci: string; source: string; testing: picos.Testing }) {
  const [outcome, setOutcome] = useState<{ came: picos.TriedOut; isQuery: boolean } | { wrong: string }>();
  const run = async ({ isQuery, domain, name, given }: Tried) => {
    try {
      const what = isQuery ? { query: { name, args: given } } : { event: { domain, name, attrs: given } };
      setOutcome({ came: await picos.tryOut(eci, source, what), isQuery });
    } catch (error) {
      setOutcome({ wrong: message(error) });
    }
  };
  return (
    <section class="stack" aria-label="Try it out">
      <h3>Try it out</h3>
      <p class="small quiet">
        On a copy of the pico, as it is now. Nothing is recorded, and nothing leaves the engine.
      </p>
      <TestingForm id="tryout" testing={testing} action="Try out" run={(tried) => void run(tried)} />
      <div aria-live="polite">
        {outcome && 'wrong' in outcome && <Note tone="bad">{outcome.wrong}</Note>}
        {outcome && 'came' in outcome && (
          <>
            {outcome.came.error !== null && <Note tone="bad">It would fail: {outcome.came.error}</Note>}
            {!outcome.isQuery && <Rules rules={outcome.came.rules ?? []} failed={outcome.came.error !== null} />}
            <JsonTree value={shown(outcome.came, outcome.isQuery)} label="What would come of it" />
          </>
        )}
      </div>
    </section>
  );
}

function shown({ result, directives, changes, sends, log }: picos.TriedOut, isQuery: boolean): Json {
  return isQuery ? { result, log } : { directives, changes, sends, log };
}

interface InstallProps {
  eci: string;
  source: string;
  rid: string;
  replaces: string | undefined;
  close: () => void;
  done: () => void;
}

function Install({ eci, source, rid, replaces, close, done }: InstallProps) {
  const [wrong, setWrong] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const { url } = await picos.install(eci, source);
      say(`${rid} is installed, as ${url}.`);
      close();
      done();
    } catch (error) {
      setWrong(message(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Install ${rid}?`} close={close}>
      <div class="stack">
        <p>
          {replaces ? (
            <>
              It takes the place of <span class="mono break">{replaces}</span> in this pico, with the variables that are
              there. Every pico that has the same version from here takes it with its next event.
            </>
          ) : (
            'The pico takes it with its next event.'
          )}
        </p>
        <p class="small quiet">{plural(source.length, 'character')} are recorded in the journal.</p>
        {wrong && <Note tone="bad">{wrong}</Note>}
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button type="button" class="button primary" disabled={isBusy} onClick={() => void run()}>
          Install
        </button>
      </div>
    </Dialog>
  );
}
