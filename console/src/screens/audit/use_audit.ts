import { useEffect, useRef, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import { epoch, Failure } from '../../api/client';
import { type AuditEvent, type AuditFilter, type Entry, entries, isMeant } from '../../lib/audit';

/** Events that are asked for at once: two for most actions. */
const PAGE = 200;
/** Entries that are shown before somebody has to ask for more, and events that are looked at for them. */
const SHOWN = 100;
const SCANNED_MAX = 10_000;
const RELOAD_MS = 3_000;

export interface Audit {
  /** All that were loaded, the newest first. */
  loaded: Entry[];
  /** Those of them that are meant. */
  shown: Entry[];
  /** There are none before. */
  isOver: boolean;
  isLoading: boolean;
  failure: Failure | undefined;
  more: () => void;
}

interface Held {
  /** A part of the audit up to its end, in its order. */
  events: AuditEvent[];
  isOver: boolean;
}

const NOTHING: Held = { events: [], isOver: false };

/** The audit from its end back, as far as the filter needs it, and what is done meanwhile. */
export function useAudit(filter: AuditFilter): Audit {
  const [held, setHeld] = useState(NOTHING);
  const [isLoading, setLoading] = useState(true);
  const [failure, setFailure] = useState<Failure>();
  const [wanted, setWanted] = useState(SHOWN);
  const now = useRef(held);
  const what = JSON.stringify(filter);
  const counted = (events: AuditEvent[]) => entries(events).filter((entry) => isMeant(entry, filter)).length;

  useEffect(() => setWanted(SHOWN), [what]);

  useEffect(() => {
    let isGone = false;
    const put = (next: Held) => {
      if (isGone) return;
      now.current = next;
      setHeld(next);
    };
    const newer = async () => {
      for (;;) {
        const { events, isOver } = now.current;
        const last = events.at(-1)?.seq;
        const page = await calls.audit(last === undefined ? { limit: PAGE } : { after: last, limit: PAGE });
        if (isGone) return;
        if (last === undefined) return put({ events: page.events, isOver: page.next === null });
        put({ events: [...events, ...page.events], isOver });
        if (page.next === null) return;
      }
    };
    const older = async () => {
      const begin = now.current.events.length;
      for (;;) {
        const { events, isOver } = now.current;
        const first = events[0]?.seq;
        if (isGone || isOver || first === undefined) return;
        if (events.length - begin >= SCANNED_MAX || counted(events) >= wanted) return;
        const page = await calls.audit({ before: first, limit: PAGE });
        put({ events: [...page.events, ...now.current.events], isOver: page.next === null });
      }
    };
    let isBusy = false;
    const load = async (what: () => Promise<void>) => {
      if (isBusy) return;
      isBusy = true;
      try {
        await what();
        if (!isGone) setFailure(undefined);
      } catch (error) {
        if (!isGone) setFailure(error instanceof Failure ? error : new Failure(0, { detail: String(error) }));
      }
      isBusy = false;
      if (!isGone) setLoading(false);
    };
    setLoading(true);
    void load(() => newer().then(older));
    const timer = setInterval(() => document.visibilityState === 'visible' && void load(newer), RELOAD_MS);
    return () => {
      isGone = true;
      clearInterval(timer);
    };
  }, [what, wanted, epoch.value]);

  const loaded = entries(held.events);
  const meant = loaded.filter((entry) => isMeant(entry, filter));
  return {
    loaded,
    shown: meant.slice(0, wanted),
    isOver: held.isOver && meant.length <= wanted,
    isLoading,
    failure,
    more: () => setWanted((wanted) => wanted + SHOWN),
  };
}
