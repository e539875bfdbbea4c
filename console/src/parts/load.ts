import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { epoch, Failure } from '../api/client';

export interface Loaded<T> {
  value: T | undefined;
  /** Why the last try came to nothing; what was loaded before stays. */
  failure: Failure | undefined;
  /** Loads anew, whatever is on its way. */
  reload: () => void;
  /** Loads anew, unless that is on its way. */
  refresh: () => void;
}

/** Loads at once, when what it depends on changes, when a connection comes about, and every so often while the page is visible. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, on: unknown[], everyMs?: number): Loaded<T> {
  const [value, setValue] = useState<T>();
  const [failure, setFailure] = useState<Failure>();
  const [round, setRound] = useState(0);
  const what = JSON.stringify(on);
  const shown = useRef(what);
  const isBusy = useRef(false);
  const reload = useCallback(() => setRound((round) => round + 1), []);
  const refresh = useCallback(() => {
    if (!isBusy.current) reload();
  }, [reload]);

  // `what` stands for all that `load` uses
  useEffect(() => {
    const abort = new AbortController();
    if (shown.current !== what) {
      shown.current = what;
      setValue(undefined);
    }
    isBusy.current = true;
    const ended = () => {
      if (!abort.signal.aborted) isBusy.current = false;
    };
    load(abort.signal)
      .finally(ended)
      .then(
        (found) => {
          if (abort.signal.aborted) return;
          setValue(() => found);
          setFailure(undefined);
        },
        (error: unknown) => {
          if (!abort.signal.aborted)
            setFailure(error instanceof Failure ? error : new Failure(0, { detail: String(error) }));
        },
      );
    return () => abort.abort();
  }, [what, round, epoch.value]);

  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => document.visibilityState === 'visible' && refresh(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, refresh]);

  return { value, failure, reload, refresh };
}
