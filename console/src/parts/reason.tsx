import type { Action } from '../api/types';

/** Asks why an action is done. */
export function ReasonField({ value, set }: { value: string; set: (reason: string) => void }) {
  return (
    <div class="field">
      <label for="reason">Why? It is recorded with who did it.</label>
      <input
        id="reason"
        class="input"
        required
        value={value}
        autocomplete="off"
        onInput={(event) => set(event.currentTarget.value)}
      />
    </div>
  );
}

/** The part of an action's address that tells the reason, if it needs one. */
export const withReason = ({ needs_reason }: Action, reason: string) =>
  needs_reason ? `&reason=${encodeURIComponent(reason.trim())}` : '';
