import { useEffect, useRef, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import { Failure } from '../../api/client';
import type { EntityEvent } from '../../api/types';
import { type Filter, firstThat, goal, isEmpty, isMeant } from '../../lib/filter';
import { plural, whole } from '../../lib/format';
import { Note } from '../../parts/basic';
import { route, set } from '../../state/place';

/** Events that are asked for at once, and those looked at before somebody has to ask for more. */
const PAGE = 500;
const SCANNED_MAX = 10_000;
/** Events that are shown. */
const FOUND_MAX = 200;
/** A filter is used so long after the last key. */
const PAUSE_MS = 250;

/** The filter, as the page's address has it. */
export function filterOf(): Filter {
  const { query } = route.value;
  const time = (name: string) => {
    const at = Date.parse(query.get(name) ?? '');
    return Number.isNaN(at) ? undefined : at;
  };
  const until = time('until');
  return {
    name: query.get('name') ?? '',
    text: query.get('text') ?? '',
    from: time('from'),
    // The second that was typed belongs to it.
    until: until === undefined ? undefined : until + 999,
  };
}

export interface Filtered {
  events: EntityEvent[];
  /** Counts the events looked at, from the last one back. */
  scanned: number;
  isOver: boolean;
  /** Events that have come since. */
  newer: number;
  isLoading: boolean;
  failure: Failure | undefined;
  more: () => void;
  again: () => void;
}

interface Scan {
  /** The last event there was when it began. */
  last: number;
  events: EntityEvent[];
  before: number;
  scanned: number;
  isOver: boolean;
}

/** Looks through the history from its end back for events that are meant. */
export function useFiltered(kind: string, id: string, filter: Filter, last: number): Filtered {
  const [scan, setScan] = useState<Scan>();
  const [isLoading, setLoading] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const run = useRef<AbortController | undefined>(undefined);
  const what = JSON.stringify(filter);
  const go = async (begin: Scan | undefined) => {
    run.current?.abort();
    const abort = new AbortController();
    run.current = abort;
    setLoading(true);
    setFailure(undefined);
    try {
      let held = begin ?? { last, events: [], before: await end(kind, id, filter, last), scanned: 0, isOver: false };
      const enough = { scanned: held.scanned + SCANNED_MAX, events: held.events.length + FOUND_MAX };
      while (!held.isOver && held.scanned < enough.scanned && held.events.length < enough.events) {
        const page = await calls.history(kind, id, { before: held.before, limit: PAGE });
        if (abort.signal.aborted) return;
        const first = page.events[0];
        const passed = first !== undefined && Date.parse(first.at) < (filter.from ?? -Infinity);
        held = {
          last: held.last,
          events: [...page.events.filter((event) => isMeant(event, filter)), ...held.events],
          before: first?.seq ?? 0,
          scanned: held.scanned + page.events.length,
          isOver: page.next === null || first === undefined || passed,
        };
        setScan(held);
      }
    } catch (error) {
      if (!abort.signal.aborted)
        setFailure(error instanceof Failure ? error : new Failure(0, { detail: String(error) }));
    }
    if (!abort.signal.aborted) setLoading(false);
  };
  useEffect(() => {
    setScan(undefined);
    if (isEmpty(filter) || last === 0) return;
    setLoading(true);
    const timer = setTimeout(() => void go(undefined), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      run.current?.abort();
    };
    // An entity at work is not looked through anew with each of its events.
  }, [kind, id, what, last === 0]);
  return {
    events: scan?.events ?? [],
    scanned: scan?.scanned ?? 0,
    isOver: scan?.isOver ?? false,
    newer: scan ? last - scan.last : 0,
    isLoading,
    failure,
    more: () => void go(scan),
    again: () => void go(undefined),
  };
}

/** The event before which to begin: the first one after the time that is asked for. */
async function end(kind: string, id: string, { until }: Filter, last: number): Promise<number> {
  return until === undefined ? last + 1 : await firstAfter(kind, id, last, until);
}

/** The first event that happened after a time; events are asked for one by one, some 15 of 20,000. */
async function firstAfter(kind: string, id: string, last: number, time: number): Promise<number> {
  return firstThat(last, async (seq) => {
    const { events, removed } = await calls.history(kind, id, { after: seq - 1, limit: 1 });
    const found = events[0];
    return seq > removed && (found === undefined || Date.parse(found.at) > time);
  });
}

interface ToolsProps {
  kind: string;
  id: string;
  last: number;
  /** Names of events that are known. */
  names: string[];
}

/** Filters the history, and goes to an event by its number or its time. */
export function HistoryTools({ kind, id, last, names }: ToolsProps) {
  const filter = filterOf();
  const { query } = route.value;
  const [isOpen, setOpen] = useState(!isEmpty(filter));
  return (
    <div class="history-tools">
      <div class="row">
        <GoTo kind={kind} id={id} last={last} />
        <button type="button" class="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Filter
        </button>
        {!isEmpty(filter) && (
          <button
            type="button"
            class="button plain"
            onClick={() => set({ name: undefined, text: undefined, from: undefined, until: undefined })}
          >
            Show all
          </button>
        )}
      </div>
      {isOpen && (
        <div class="history-filter">
          <div class="field">
            <label for="filter-name">Event</label>
            <select
              id="filter-name"
              class="input"
              value={filter.name}
              onChange={(event) => set({ name: event.currentTarget.value })}
            >
              <option value="">all</option>
              {[...new Set([...names, ...(filter.name === '' ? [] : [filter.name])])].sort().map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </div>
          <div class="field">
            <label for="filter-text">Text in name or payload</label>
            <input
              id="filter-text"
              class="input"
              autocomplete="off"
              value={filter.text}
              onInput={(event) => set({ text: event.currentTarget.value })}
            />
          </div>
          {(['from', 'until'] as const).map((name) => (
            <div class="field" key={name}>
              <label for={`filter-${name}`}>{name === 'from' ? 'From' : 'Until'}</label>
              <input
                id={`filter-${name}`}
                class="input"
                type="datetime-local"
                step="1"
                value={query.get(name) ?? ''}
                onInput={(event) => set({ [name]: event.currentTarget.value })}
              />
            </div>
          ))}
        </div>
      )}
    </div>
  );
}

function GoTo({ kind, id, last }: { kind: string; id: string; last: number }) {
  const [typed, setTyped] = useState('');
  const [wrong, setWrong] = useState<string>();
  const go = async (event: Event) => {
    event.preventDefault();
    const meant = goal(typed, new Date());
    if (!meant) return setWrong('An event is a number, a time is such as 09:12:44 or 2026-11-27 09:12.');
    setWrong(undefined);
    try {
      const seq = 'seq' in meant ? meant.seq : (await firstAfter(kind, id, last, meant.time)) - 1;
      set({ at: seq >= last ? undefined : seq });
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <form class="row" onSubmit={(event) => void go(event)}>
      <label for="go-to" class="quiet">
        Go to
      </label>
      <input
        id="go-to"
        class="input go-to tabular"
        autocomplete="off"
        placeholder="event or time"
        value={typed}
        aria-invalid={wrong !== undefined}
        aria-describedby="go-to-wrong"
        onInput={(event) => setTyped(event.currentTarget.value)}
      />
      <button type="submit" class="button" disabled={typed.trim() === ''}>
        Go
      </button>
      <span id="go-to-wrong" class="wrong small" role="status">
        {wrong}
      </span>
    </form>
  );
}

/** Says how far the search has come, and goes on with it. */
export function FilteredFoot({ found, last }: { found: Filtered; last: number }) {
  const { events, scanned, isOver, newer, isLoading, failure, more, again } = found;
  return (
    <div class="row">
      <span class="small quiet tabular" role="status">
        {isLoading
          ? `Looked at ${whole(scanned)} of ${plural(last, 'event')} …`
          : `${plural(events.length, 'event')} found in ${whole(scanned)} that were looked at.`}
      </span>
      {!isLoading && newer > 0 && (
        <button type="button" class="button" onClick={again}>
          Look also at {plural(newer, 'newer event')}
        </button>
      )}
      {!isLoading && !isOver && (
        <button type="button" class="button" onClick={more}>
          Look further back
        </button>
      )}
      {failure && <Note tone="warn">{failure.message}</Note>}
    </div>
  );
}
