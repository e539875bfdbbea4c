import { useEffect, useRef, useState } from 'preact/hooks';
import { type Locked, setToken, token } from '../api/client';
import { Icon } from '../parts/icon';

/** Asks for the token for administration. It is kept for this tab alone. */
export function TokenScreen({ title, reason }: Locked) {
  const [typed, setTyped] = useState('');
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const hadOne = token() !== undefined;
  const enter = (event: Event) => {
    event.preventDefault();
    if (typed.trim() !== '') setToken(typed.trim());
  };
  return (
    <form class="token card" onSubmit={enter}>
      <Icon name="key" />
      <h1>{title}</h1>
      <p class="quiet break">{reason}</p>
      <div class="field">
        <label for="token">Token for administration</label>
        <input
          ref={field}
          id="token"
          class="input"
          type="password"
          autocomplete="off"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          aria-describedby="token-note"
        />
        <p class="note" id="token-note">
          The one the service was started with (THRONG_ADMIN_TOKEN or --admin-token), or one with a role from viewer on.
          It is kept in this tab only and forgotten when you close it.
        </p>
      </div>
      <div class="row">
        <button type="submit" class="button primary" disabled={typed.trim() === ''}>
          Open the console
        </button>
        {hadOne && (
          <button type="button" class="button" onClick={() => setToken(undefined)}>
            Forget the token
          </button>
        )}
      </div>
    </form>
  );
}
