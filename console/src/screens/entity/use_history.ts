import { useEffect, useRef, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import { epoch, Failure } from '../../api/client';
import type { EntityEvent } from '../../api/types';
import { follow } from '../../state/live';

const PAGE = 50;
/** Events held at once, of an entity that may have a hundred thousand and be at work. */
const HELD_MAX = 500;
/** How long an event is looked at until its cause is asked for. */
const CAUSE_MS = 250;
/** Events that happen within this time are shown together. */
const FLUSH_MS = 100;

export interface HistoryHeld {
  /** A part of the history without a gap, in its order. */
  events: EntityEvent[];
  /** The last event there is, as far as is known. */
  last: number;
  /** Events up to this one are not kept any more. */
  removed: number;
  isLoading: boolean;
  failure: Failure | undefined;
  /** Why what happens is not followed any more. */
  ended: string | undefined;
  back: () => void;
  on: () => void;
  /** Whether what happens is taken up as it happens. */
  follow: (wanted: boolean) => void;
}

export interface HistoryOf {
  kind: string;
  id: string;
  /** The last event there is, as far as the entity says. */
  seq: number;
  /** The event one looks at; the last one without it. */
  at: number | undefined;
  /** The event that cannot be applied. */
  bad: number | undefined;
}

/** The events around `at`, or the last ones, and those that come. */
export function useHistory({ kind, id, seq, at, bad }: HistoryOf): HistoryHeld {
  const [events, setEvents] = useState<EntityEvent[]>([]);
  const [last, setLast] = useState(seq);
  const [removed, setRemoved] = useState(0);
  const [isLoading, setLoading] = useState(true);
  const [failure, setFailure] = useState<Failure>();
  const [ended, setEnded] = useState<string>();
  const [isFollowed, setFollowed] = useState(false);
  const held = useRef(events);
  held.current = events;

  // The entity does not know what comes behind the event it cannot get past.
  const around = (wanted: number) =>
    bad === undefined ? { before: Math.min(last, wanted + PAGE / 2) + 1 } : { after: Math.max(0, wanted - PAGE / 2) };

  const load = (query: { after?: number; before?: number }, join: (page: EntityEvent[]) => EntityEvent[]) => {
    setLoading(true);
    return calls.history(kind, id, { ...query, limit: PAGE }).then(
      (page) => {
        setEvents(join(page.events));
        // A quarantined entity does not know how much there is.
        setLast((before) => Math.max(before, page.events.at(-1)?.seq ?? 0));
        setRemoved(page.removed);
        setFailure(undefined);
        setLoading(false);
      },
      (error: unknown) => {
        setFailure(error instanceof Failure ? error : new Failure(0, { detail: String(error) }));
        setLoading(false);
      },
    );
  };

  const first = events[0]?.seq ?? 0;
  const newest = events.at(-1)?.seq ?? 0;
  const wanted = at ?? last;
  const isHeld = events.length > 0 && wanted >= first && wanted <= newest;
  // Loads where one looks, unless it is held
  useEffect(() => {
    if (isHeld || last === 0) {
      if (last === 0) setLoading(false);
      return;
    }
    const timer = setTimeout(() => void load(around(wanted), (page) => page), at === undefined ? 0 : 120);
    return () => clearTimeout(timer);
  }, [kind, id, wanted, isHeld, epoch.value]);

  // Events that came live are told without their causes: that of the one that is looked at is asked for.
  const lacksCause = isHeld && events[wanted - first]?.cause === undefined;
  useEffect(() => {
    if (!lacksCause) return;
    const timer = setTimeout(async () => {
      const page = await calls.history(kind, id, { after: wanted - 1, limit: 1 }).catch(() => undefined);
      const found = page?.events[0];
      if (found?.seq !== wanted) return;
      held.current = held.current.map((event) =>
        event.seq === wanted ? { ...found, cause: found.cause ?? null } : event,
      );
      setEvents(held.current);
    }, CAUSE_MS);
    return () => clearTimeout(timer);
  }, [kind, id, wanted, lacksCause]);

  useEffect(() => setLast((before) => Math.max(before, seq)), [seq]);

  useEffect(() => {
    if (!isFollowed) return;
    setEnded(undefined);
    let came: EntityEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      const before = held.current;
      const newest = before.at(-1)?.seq;
      // Only what joins on: who looks at the past keeps it, and loads the rest when it is asked for.
      const joins = came.filter((event) => newest === undefined || event.seq > newest);
      const last = came.at(-1)?.seq ?? 0;
      came = [];
      setLast((before) => Math.max(before, last));
      if (newest !== undefined && joins[0]?.seq !== newest + 1) return;
      held.current = [...before, ...joins].slice(-HELD_MAX);
      setEvents(held.current);
    };
    const stop = follow({
      kind,
      id,
      after: Math.max(seq, held.current.at(-1)?.seq ?? 0),
      event: (event) => {
        came.push(event);
        timer ??= setTimeout(flush, FLUSH_MS);
      },
      ended: setEnded,
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [kind, id, isFollowed]);

  return {
    events,
    last,
    removed,
    isLoading,
    failure,
    ended,
    back: () => void load({ before: first }, (page) => [...page, ...held.current].slice(0, HELD_MAX)),
    on: () => void load({ after: newest }, (page) => [...held.current, ...page].slice(-HELD_MAX)),
    follow: setFollowed,
  };
}
