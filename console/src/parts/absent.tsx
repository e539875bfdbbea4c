import type { Failure } from '../api/client';
import { Empty, Note } from './basic';

/** What stands where nothing could be loaded: that it is on its way, or why it is not there. */
export function Absent({ failure, what }: { failure: Failure | undefined; what: string }) {
  if (!failure) return <p class="loading quiet">Loading {what} …</p>;
  if (failure.status === 0) {
    return (
      <Empty icon="trouble" title="The server does not answer">
        <p>It is asked again by itself; {what} will appear here.</p>
      </Empty>
    );
  }
  if (failure.status === 404) {
    return (
      <Empty icon="search" title="Not found">
        <p class="break">{failure.message}</p>
      </Empty>
    );
  }
  return <Note tone="bad">{failure.message}</Note>;
}
