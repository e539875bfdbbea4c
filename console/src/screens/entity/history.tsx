import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Cause, EntityEvent } from '../../api/types';
import { isEmpty } from '../../lib/filter';
import { instant, messageName, plural, whole } from '../../lib/format';
import { line } from '../../lib/json';
import { Absent } from '../../parts/absent';
import { Badge, Card, Empty } from '../../parts/basic';
import { Icon } from '../../parts/icon';
import { JsonTree } from '../../parts/json';
import { EntityLink } from '../../parts/link';
import { Raw } from '../../parts/raw';
import { TraceLink } from '../../parts/trace_link';
import { set } from '../../state/place';
import { FilteredFoot, filterOf, HistoryTools, useFiltered } from './filter';
import type { HistoryHeld } from './use_history';

interface Props {
  kind: string;
  id: string;
  /** The event that cannot be applied, and what can be done about it. */
  bad: Bad | undefined;
  history: HistoryHeld;
  at: number | undefined;
  last: number;
}

/** An event that an entity stands quarantined at. */
export interface Bad {
  seq: number;
  reason: string;
  tools: ComponentChildren;
}

/** What has happened, the newest first; the event one looks at is open, with who or what caused it. */
export function HistoryCard({ kind, id, bad, history, at, last }: Props) {
  const { isLoading, failure, removed } = history;
  const filter = filterOf();
  const isFiltered = !isEmpty(filter);
  const found = useFiltered(kind, id, filter, last);
  const events = isFiltered ? found.events : history.events;
  const names = [...new Set([...history.events, ...found.events].map((event) => event.name))];
  const first = events[0]?.seq ?? 0;
  const newest = events.at(-1)?.seq ?? 0;
  const open = at ?? last;
  return (
    <Card
      title="History"
      aside={
        <span class="small quiet tabular">
          {last === 0 || isFiltered ? '' : `${whole(first)} to ${whole(newest)} of ${whole(last)}, the newest first`}
        </span>
      }
    >
      {last === 0 && (
        <Empty icon="clock" title="Nothing has happened yet" compact>
          <p>Each event appears here with the command, message or timer that caused it.</p>
        </Empty>
      )}
      {last > 0 && <HistoryTools kind={kind} id={id} last={last} names={names} />}
      {!isFiltered && events.length === 0 && last > 0 && (
        <Absent failure={isLoading ? undefined : failure} what="the history" />
      )}
      {isFiltered && <FilteredFoot found={found} last={last} />}
      {!isFiltered && newest < last && events.length > 0 && (
        <button type="button" class="button plain" disabled={isLoading} onClick={history.on}>
          <Icon name="up" /> {plural(last - newest, 'newer event')}
        </button>
      )}
      <ol class="events" reversed>
        {events.toReversed().map((event) => (
          <Event
            key={event.seq}
            event={event}
            isOpen={event.seq === open}
            last={last}
            bad={bad?.seq === event.seq ? bad : undefined}
          />
        ))}
      </ol>
      {!isFiltered && first > removed + 1 && (
        <button type="button" class="button plain" disabled={isLoading} onClick={history.back}>
          Older events
        </button>
      )}
    </Card>
  );
}

interface EventProps {
  event: EntityEvent;
  isOpen: boolean;
  last: number;
  bad: Bad | undefined;
}

function Event({ event, isOpen, last, bad }: EventProps) {
  const row = useRef<HTMLLIElement>(null);
  // The list moves to the event, and the page stays where it is.
  useEffect(() => {
    const list = row.current?.parentElement;
    if (!isOpen || !row.current || !list) return;
    const { offsetTop, offsetHeight } = row.current;
    const isSeen = offsetTop >= list.scrollTop && offsetTop + offsetHeight <= list.scrollTop + list.clientHeight;
    if (!isSeen) list.scrollTop = offsetTop - list.clientHeight / 3;
  }, [isOpen]);
  return (
    <li ref={row} class={`event ${isOpen ? 'open' : ''} ${bad ? 'bad' : ''}`}>
      <button
        type="button"
        class="event-head"
        aria-expanded={isOpen}
        onClick={() => set({ at: event.seq >= last ? undefined : event.seq })}
      >
        <span class="event-seq tabular quiet">{whole(event.seq)}</span>
        <span class="event-name break">{event.name}</span>
        {bad && (
          <Badge tone="bad" icon="stopped">
            cannot be applied
          </Badge>
        )}
        {!isOpen && <span class="event-preview mono quiet">{line(event.payload, 80)}</span>}
        <time class="event-at tabular small quiet">{instant(event.at)}</time>
      </button>
      {bad && (
        <div class="event-body">
          <p class="break">{bad.reason}</p>
          <div class="row">{bad.tools}</div>
        </div>
      )}
      {isOpen && <Open event={event} />}
    </li>
  );
}

function Open({ event }: { event: EntityEvent }) {
  return (
    <div class="event-body">
      <CauseLine cause={event.cause} />
      <TraceLink seq={event.seq} />
      <JsonTree value={event.payload} label={`Payload of event ${event.seq}`} />
      {event.sent?.map((one) => (
        <p class="event-line" key={one.number}>
          <Icon name="message" />
          <span>
            sent <b class="break">{messageName(one.name)}</b> to <EntityLink of={one.to} />
          </span>
        </p>
      ))}
      {event.timers?.map((one) => (
        <p class="event-line" key={one.name}>
          <Icon name="clock" />
          <span>
            {one.set ? 'set' : 'cancelled'} the timer <b class="break">{one.name}</b>
          </span>
        </p>
      ))}
      <p class="small quiet tabular">
        {instant(event.at)}, commit <span class="mono">{event.position}</span>, version {event.version}
      </p>
      <div class="row">
        <button
          type="button"
          class="button plain"
          aria-label={`What if from here, event ${event.seq}`}
          onClick={() => set({ at: event.seq, tab: 'command' })}
        >
          What if from here
        </button>
        <Raw value={event} what={`event ${event.seq}`} />
      </div>
    </div>
  );
}

const ICONS: Record<Cause['type'], string> = {
  command: 'command',
  message: 'message',
  outcome: 'message',
  timer: 'clock',
  unknown: 'help',
};

/** Who or what caused it, with a link to the other side. */
function CauseLine({ cause }: { cause: Cause | null | undefined }) {
  if (!cause) return null;
  return (
    <div class="event-line">
      <Icon name={ICONS[cause.type] ?? 'help'} />
      <span class="break">
        <Caused cause={cause} />
        {!cause.is_certain && cause.type !== 'unknown' && (
          <span class="quiet"> (not certain: the journal does not tell it from its neighbour)</span>
        )}
      </span>
    </div>
  );
}

function Caused({ cause }: { cause: Cause }) {
  const of = cause.from && <EntityLink of={cause.from} at={cause.from_seq} />;
  switch (cause.type) {
    case 'command':
      return (
        <>
          {cause.name === null ? 'caused by a command' : 'caused by the command '}
          {cause.name !== null && <b>{cause.name}</b>}
          {cause.caller !== null && (
            <>
              {' '}
              of <b>{cause.caller}</b>
            </>
          )}
          {of && <>, passed on by {of}</>}
          {cause.has_key && <span class="quiet">, under an idempotency key</span>}
          {cause.name === null && <span class="quiet">; its kind does not keep its commands</span>}
        </>
      );
    case 'message':
      return (
        <>
          caused by the message <b>{cause.name}</b> {of && <>of {of}</>}
          {cause.from_seq !== null && <span class="quiet">, its event {whole(cause.from_seq)}</span>}
        </>
      );
    case 'outcome':
      return (
        <>
          caused by the answer {of && <>of {of}</>}
          {cause.note !== null && (
            <span class="quiet">
              , asked with the note <code class="break">{line(cause.note, 80)}</code>
            </span>
          )}
        </>
      );
    case 'timer':
      return (
        <>
          caused by the timer <b>{cause.name}</b>
        </>
      );
    default:
      return <span class="quiet">What caused it is not kept any more.</span>;
  }
}
