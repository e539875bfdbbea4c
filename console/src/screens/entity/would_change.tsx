import { useMemo, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { Address, WhatIf } from '../../api/types';
import { diff, type Json } from '../../lib/diff';
import { Absent } from '../../parts/absent';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';
import { Changes } from './state';

/** The state that a tried command would leave, as what differs from the one it was tried on. */
export function WouldChange({ of: { kind, id }, tried }: { of: Address; tried: WhatIf }) {
  const [isWhole, setWhole] = useState(false);
  const { value, failure } = useLoad<{ state: Json | undefined }>(
    async (signal) => ({
      // Before its first event an entity has none.
      state: tried.at_seq === 0 ? undefined : (await calls.entity(kind, id, tried.at_seq, signal)).state,
    }),
    [kind, id, tried.at_seq],
  );
  const changes = useMemo(() => value && diff(value.state, tried.state ?? undefined), [value, tried]);
  return (
    <>
      {!changes && <Absent failure={failure} what="the state it was tried on" />}
      {changes?.length === 0 && <p class="quiet">Nothing in its state.</p>}
      {changes && changes.length > 0 && <Changes changes={changes} label="What would change" />}
      <div class="row">
        <button type="button" class="button plain" aria-expanded={isWhole} onClick={() => setWhole(!isWhole)}>
          {isWhole ? 'Hide the whole state' : 'The whole state then'}
        </button>
      </div>
      {isWhole && <JsonTree value={tried.state} label="State then" />}
    </>
  );
}
