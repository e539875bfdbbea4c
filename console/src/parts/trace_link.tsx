import { link } from '../lib/route';
import { route } from '../state/place';

/** From an event of the entity that is shown to all that its cause has brought about. */
export function TraceLink({ seq }: { seq: number }) {
  return (
    <p class="small">
      <a href={link('trace', route.value.path, { at: seq })}>Timeline of its cause, over all entities</a>
    </p>
  );
}
