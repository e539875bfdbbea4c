import type { Failure } from '../../api/client';
import type { EntityEvent } from '../../api/types';
import { instant, whole } from '../../lib/format';
import { Note } from '../../parts/basic';
import { Icon } from '../../parts/icon';
import { set } from '../../state/place';

interface Props {
  /** Events up to this one are not kept. */
  first: number;
  last: number;
  at: number | undefined;
  event: EntityEvent | undefined;
  failure: Failure | undefined;
  isFollowed: boolean;
  follow: (wanted: boolean) => void;
  ended: string | undefined;
}

/** A slider over all that has happened. Where it stands is in the address, so that a link leads there. */
export function TimeTravel({ first, last, at, event, failure, isFollowed, follow, ended }: Props) {
  const place = at ?? last;
  const go = (to: number) => set({ at: to >= last ? undefined : Math.max(0, to) });
  return (
    <section class={`card time ${at === undefined ? '' : 'past'}`} aria-label="Time travel">
      <div class="time-line">
        <button
          type="button"
          class="button plain icon-only"
          aria-label="One event back"
          disabled={place <= 0}
          onClick={() => go(place - 1)}
        >
          <Icon name="left" />
        </button>
        <input
          type="range"
          min={0}
          max={Math.max(1, last)}
          value={place}
          aria-label="As of event"
          aria-valuetext={`event ${place} of ${last}`}
          disabled={last === 0}
          onInput={(input) => go(Number(input.currentTarget.value))}
        />
        <button
          type="button"
          class="button plain icon-only"
          aria-label="One event on"
          disabled={at === undefined}
          onClick={() => go(place + 1)}
        >
          <Icon name="right" />
        </button>
      </div>
      <div class="time-foot">
        <span class="tabular">
          {at === undefined ? <b>Now</b> : <b>As of event {whole(place)}</b>}
          <span class="quiet"> of {whole(last)}</span>
        </span>
        <span class="quiet tabular break">
          {place === 0 ? 'before the first event' : event && `${event.name}, ${instant(event.at)}`}
        </span>
        <span class="time-tools">
          {at === undefined ? (
            <button type="button" class="button" aria-pressed={isFollowed} onClick={() => follow(!isFollowed)}>
              <Icon name={isFollowed ? 'pause' : 'play'} />
              {isFollowed ? 'Following' : 'Follow'}
            </button>
          ) : (
            <button type="button" class="button" onClick={() => go(last)}>
              Back to now
            </button>
          )}
        </span>
      </div>
      {first > 0 && <p class="small quiet">Events up to {whole(first)} are not kept any more.</p>}
      {ended && <Note tone="warn">It is not followed any more: {ended}.</Note>}
      {failure && at !== undefined && <Note tone="warn">{failure.message}</Note>}
    </section>
  );
}
