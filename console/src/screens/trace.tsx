import * as calls from '../api/calls';
import { Failure } from '../api/client';
import type { Address } from '../api/types';
import { instant, messageName, micros, plural } from '../lib/format';
import { line } from '../lib/json';
import { link } from '../lib/route';
import { follow, type Reader, type Step, type Timeline } from '../lib/trace';
import { Absent } from '../parts/absent';
import { Badge, Card, Note } from '../parts/basic';
import { EntityLink } from '../parts/link';
import { useLoad } from '../parts/load';
import { route } from '../state/place';

const READER: Reader = {
  last: async ({ kind, id }) => {
    try {
      return (await calls.entity(kind, id)).seq;
    } catch (error) {
      // A message to an entity that has never been.
      if (error instanceof Failure && error.status === 404) return 0;
      throw error;
    }
  },
  page: async ({ kind, id }, after, limit) => {
    try {
      return (await calls.history(kind, id, { after: Math.max(0, after), limit })).events;
    } catch (error) {
      if (error instanceof Failure && error.status === 404) return [];
      throw error;
    }
  },
};

/** All that one cause has brought about, in the order of time, over all entities. */
export function TraceScreen() {
  const { path, query } = route.value;
  const [kind = '', id = ''] = path;
  const at = Number(query.get('at') ?? 1);
  const { value, failure } = useLoad(() => follow({ kind, id }, at, READER), [kind, id, at]);
  return (
    <>
      <div class="head">
        <nav class="trail" aria-label="Where from">
          <a href={link('entity', [kind, id], { at })}>
            {kind}/{id}
          </a>
        </nav>
        <h1>Timeline</h1>
        <span class="quiet" role="status">
          {value && said(value)}
        </span>
      </div>
      {value ? (
        <Shown timeline={value} chosen={{ kind, id }} at={at} />
      ) : (
        <Absent failure={failure} what="the timeline" />
      )}
    </>
  );
}

function said({ steps }: Timeline): string {
  const entities = new Set(steps.map(({ of }) => JSON.stringify([of.kind, of.id]))).size;
  return `${plural(steps.length, 'event')} of ${plural(entities, 'entity', 'entities')}`;
}

function Shown({ timeline, chosen, at }: { timeline: Timeline; chosen: Address; at: number }) {
  const begun = Date.parse(timeline.steps[0]?.event.at ?? '');
  const isChosen = ({ of, event }: Step) => of.kind === chosen.kind && of.id === chosen.id && event.seq === at;
  return (
    <Card>
      <ol class="trace" aria-label="Timeline of one cause">
        {timeline.steps.map((step) => {
          const { of, event, depth } = step;
          return (
            <li
              key={`${of.kind}/${of.id}/${event.seq}`}
              class={`trace-step depth-${Math.min(depth, 6)} ${isChosen(step) ? 'this-one' : ''}`}
            >
              <time class="tabular small quiet" title={instant(event.at)}>
                +{micros((Date.parse(event.at) - begun) * 1000)}
              </time>
              <div class="trace-what">
                <p>
                  <EntityLink of={of} at={event.seq} /> <b class="break">{event.name}</b>{' '}
                  <span class="quiet">event {event.seq}</span> {isChosen(step) && <Badge tone="accent">this one</Badge>}
                </p>
                <p class="small quiet break">
                  {by(step)} <span class="mono">{line(event.payload, 120)}</span>
                </p>
              </div>
            </li>
          );
        })}
      </ol>
      {timeline.loose.length > 0 && (
        <ul class="lines small" aria-label="Messages without an event">
          {timeline.loose.map(({ from, to, name }, place) => (
            <li key={`${place}/${name}`}>
              <b class="break">{messageName(name)}</b> from <EntityLink of={from} /> to <EntityLink of={to} />: no event
              of it was found. It was refused, has changed nothing, or is in flight.
            </li>
          ))}
        </ul>
      )}
      {timeline.isCut && <Note tone="accent">There is more of it than is shown.</Note>}
    </Card>
  );
}

/** What has caused an event, in words. */
function by({ event: { cause } }: Step): string {
  if (!cause) return 'its cause is not known:';
  const name = cause.name ? ` ${messageName(cause.name)}` : '';
  switch (cause.type) {
    case 'command':
      return `by a command${name}${cause.caller ? ` of ${cause.caller}` : ''}:`;
    case 'message':
      return `by the message${name}:`;
    case 'outcome':
      return 'by the outcome:';
    case 'timer':
      return `by the timer${name}:`;
    default:
      return 'its cause is not kept any more:';
  }
}
