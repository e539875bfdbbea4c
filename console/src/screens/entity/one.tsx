import { useEffect, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { Action, Entity, Quarantine } from '../../api/types';
import { plural, whole } from '../../lib/format';
import { link } from '../../lib/route';
import { Absent } from '../../parts/absent';
import { ActButton } from '../../parts/act_button';
import { Badge, Card, Note, TabPanel, Tabs } from '../../parts/basic';
import { useConfirm } from '../../parts/confirm';
import { Icon } from '../../parts/icon';
import { useLoad } from '../../parts/load';
import { route, set } from '../../state/place';
import { remember } from '../../state/recent';
import { kindNamed } from '../../state/service';
import { Around } from './around';
import { CommandForm } from './command';
import { HistoryCard } from './history';
import { StateCard } from './state';
import { TimeTravel } from './time';
import { useHistory } from './use_history';

const RELOAD_MS = 5_000;
const FRESH_MS = 500;

export function One({ kind, id }: { kind: string; id: string }) {
  const {
    value: now,
    failure,
    reload,
    refresh,
  } = useLoad((signal) => calls.entity(kind, id, undefined, signal), [kind, id], RELOAD_MS);
  useEffect(() => {
    if (now) remember({ kind, id });
  }, [now !== undefined]);
  if (!now) {
    return (
      <>
        <Head kind={kind} id={id} now={undefined} />
        <Absent failure={failure} what="the entity" />
        {failure?.status === 404 && <Create kind={kind} id={id} reload={reload} />}
      </>
    );
  }
  return <Shown key={`${kind}/${id}`} kind={kind} id={id} now={now} reload={reload} refresh={refresh} />;
}

function Create({ kind, id, reload }: { kind: string; id: string; reload: () => void }) {
  return (
    <div class="columns">
      <Card title="Create it">
        <CommandForm kind={kindNamed(kind)} id={id} at={undefined} done={reload} />
      </Card>
    </div>
  );
}

type View = 'state' | 'history' | 'command' | 'around';

interface ShownProps {
  kind: string;
  id: string;
  now: Entity;
  reload: () => void;
  refresh: () => void;
}

function Shown({ kind, id, now, reload, refresh }: ShownProps) {
  const { query } = route.value;
  const bad = badEvent(now);
  const seq = Math.max(now.seq, bad ?? 0);
  const wanted = query.get('at');
  const history = useHistory({ kind, id, seq, at: wanted === undefined ? undefined : Number(wanted), bad });
  const last = Math.max(seq, history.last);
  const at = number(query.get('at'), last);
  const against = number(query.get('with'), last);
  const view = (query.get('tab') ?? 'state') as View;
  const { ask, dialog } = useConfirm(reload);
  useLastGood(bad);
  const past = usePast(kind, id, at, last);
  const [isFollowed, setFollowed] = useState(true);
  history.follow(isFollowed);
  useFresh(history.last > now.seq && bad === undefined, refresh);
  const shown = at === undefined ? now : past.value;
  const shownEvent = history.events.find((event) => event.seq === (at ?? last));
  const askOf = (action: Action, what: string) => ask({ action, of: { kind, id, what } });
  const around = (now.timers?.length ?? 0) + (now.pending_in?.length ?? 0) + (now.pending_out?.length ?? 0);
  return (
    <>
      <Head kind={kind} id={id} now={now} ask={askOf} />
      {dialog}
      <div class="stack">
        {now.quarantine && <Quarantined quarantine={now.quarantine} />}
        <TimeTravel
          first={history.removed}
          last={last}
          at={at}
          event={shownEvent}
          failure={past.failure}
          isFollowed={isFollowed}
          follow={setFollowed}
          ended={history.ended}
        />
        <Tabs
          label="What of it"
          current={view}
          choose={(tab) => set({ tab: tab === 'state' ? undefined : tab })}
          items={[
            { id: 'state', label: 'State and history' },
            { id: 'command', label: at === undefined ? 'Command' : 'What if' },
            {
              id: 'around',
              label: 'Family and messages',
              count: around + (now.dead ?? 0),
              ...((now.dead ?? 0) > 0 && { tone: 'bad' as const }),
            },
          ]}
        />
        <TabPanel id={view}>
          {view === 'command' ? (
            <div class="columns loose">
              <Card title={at === undefined ? 'Send a command' : `What if, as of event ${whole(at)}`}>
                <CommandForm kind={kindNamed(kind)} id={id} at={at} done={reload} />
              </Card>
              <StateCard
                kind={kind}
                id={id}
                shown={shown}
                at={at}
                against={undefined}
                last={last}
                failure={past.failure}
              />
            </div>
          ) : view === 'around' ? (
            <Around now={now} />
          ) : (
            <div class="columns loose">
              <StateCard
                kind={kind}
                id={id}
                shown={shown}
                at={at}
                against={against}
                last={last}
                failure={past.failure}
              />
              <HistoryCard
                kind={kind}
                id={id}
                bad={
                  bad === undefined
                    ? undefined
                    : { seq: bad, reason: now.quarantine?.reason ?? '', tools: <Mend now={now} ask={askOf} /> }
                }
                history={history}
                at={at}
                last={last}
              />
            </div>
          )}
        </TabPanel>
      </div>
    </>
  );
}

/** Why it has no turns, and what waits for it. */
function Quarantined({ quarantine: { by, seq, reason, waiting } }: { quarantine: Quarantine }) {
  const where = seq > 0 ? ` at event ${whole(seq)}` : '';
  return (
    <Note tone="bad">
      <b>Quarantined</b>
      {by === null ? where : ` by ${by}`}: {reason}
      {(waiting ?? 0) > 0 && `. About ${plural(waiting ?? 0, 'message')} wait for it.`}
    </Note>
  );
}

/** The event at which an entity cannot be brought back; none where an operator has quarantined it. */
function badEvent({ quarantine }: Entity): number | undefined {
  return quarantine && quarantine.by === null && quarantine.seq > 0 ? quarantine.seq : undefined;
}

/** Leads to the last event that could be applied, unless the address says where to look. */
function useLastGood(bad: number | undefined): void {
  useEffect(() => {
    if (bad !== undefined && route.value.query.get('at') === undefined) set({ at: bad - 1 });
  }, [bad]);
}

/** Shows what mends a quarantined entity, beside the event it stands at. */
function Mend({ now, ask }: { now: Entity; ask: (action: Action, what: string) => void }) {
  return (
    <>
      {now.actions
        ?.filter((action) => action.name === 'release')
        .map((action) => (
          <ActButton
            key={action.name}
            action={action}
            kind="primary"
            label={`${action.label}, after what cannot be applied was mended`}
            run={() => ask(action, now.quarantine?.reason ?? '')}
          />
        ))}
    </>
  );
}

/** Asks anew when something has happened, but not more than a few times a second. */
function useFresh(isOld: boolean, reload: () => void): void {
  useEffect(() => {
    if (!isOld) return;
    reload();
    const timer = setInterval(reload, FRESH_MS);
    return () => clearInterval(timer);
  }, [isOld]);
}

/** A place in the history out of an address: not more than there is. */
function number(text: string | undefined, last: number): number | undefined {
  if (text === undefined || !/^\d+$/.test(text)) return undefined;
  return Math.min(Number(text), last);
}

/** The entity as of an event; a slider that moves asks for the last place only. */
function usePast(kind: string, id: string, at: number | undefined, last: number) {
  const [settled, setSettled] = useState(at);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(at), 90);
    return () => clearTimeout(timer);
  }, [at]);
  const wanted = settled === undefined || settled > last ? undefined : settled;
  return useLoad(
    (signal) => (wanted === undefined ? Promise.resolve(undefined) : calls.entity(kind, id, wanted, signal)),
    [kind, id, wanted],
  );
}

interface HeadProps {
  kind: string;
  id: string;
  now: Entity | undefined;
  ask?: (action: Action, what: string) => void;
}

function Head({ kind, id, now, ask }: HeadProps) {
  return (
    <div class="head">
      <nav class="trail" aria-label="Which entity">
        <a href={link('map', [kind])}>{kind}</a>
        <Icon name="right" />
        <h1 class="break">{id}</h1>
      </nav>
      {now && (
        <span class="row">
          {now.status === 'quarantined' && (
            <Badge tone="bad" icon="stopped">
              quarantined
            </Badge>
          )}
          {now.status === 'stuck' && (
            <Badge tone="warn" icon="clock">
              stuck
            </Badge>
          )}
          {now.ended && <Badge>ended</Badge>}
          <span class="quiet tabular">
            {badEvent(now) === undefined && plural(now.seq, 'event')}
            {(now.per_second ?? 0) > 0 && `, ${whole(now.per_second ?? 0)} a second`}
          </span>
          {(now.dead ?? 0) > 0 && (
            <a href={link('trouble')}>
              <Badge tone="bad" icon="message">
                {plural(now.dead ?? 0, 'dead message')}
              </Badge>
            </a>
          )}
          {ask &&
            now.actions?.map((action) => (
              <ActButton
                key={action.name}
                action={action}
                run={() => ask(action, now.quarantine?.reason ?? plural(now.seq, 'event'))}
              />
            ))}
        </span>
      )}
    </div>
  );
}
