import { useState } from 'preact/hooks';
import * as calls from '../api/calls';
import type { DeadContent, Trouble } from '../api/types';
import type { Json } from '../lib/diff';
import { parse } from '../lib/exact';
import { ago, bytes, instant, plural } from '../lib/format';
import { JsonTree } from './json';
import { EntityLink } from './link';

/** What a dead message is: to be read before it is tried again or dropped. */
export function Content({ of, message }: { of: Partial<Trouble>; message: DeadContent }) {
  return (
    <dl class="facts dead-content">
      <dt>Number</dt>
      <dd class="mono">{of.number}</dd>
      <dt>Name</dt>
      <dd class="break">{message.name}</dd>
      <dt>From</dt>
      <dd>
        <EntityLink of={message.sender} />
      </dd>
      <dt>Attempts</dt>
      <dd>
        {plural(message.attempts, 'attempt')},{' '}
        <time title={instant(message.died_at)}>the last one {ago(message.died_at)}</time>
      </dd>
      <dt>Body</dt>
      <dd>{message.body === null ? <Large of={of} message={message} /> : <Body body={message.body} />}</dd>
    </dl>
  );
}

function Body({ body }: { body: Json }) {
  return <JsonTree value={body} label="Body" />;
}

/** A body that is too large to come with the list: asked for when somebody wants it. */
function Large({ of, message }: { of: Partial<Trouble>; message: DeadContent }) {
  const [body, setBody] = useState<Json>();
  const [wrong, setWrong] = useState<string>();
  const load = async () => {
    const [kind, id] = [of.kind ?? '', of.id ?? ''].map(encodeURIComponent);
    try {
      const { lines } = await calls.exportLines(`/admin/dead/export?kind=${kind}&id=${id}`);
      const all = lines.trim().split('\n');
      const own = all.map((line) => parse(line) as { [name: string]: Json }).find((one) => one.number === of.number);
      if (own?.command === undefined) setWrong('It is not dead any more.');
      else setBody(own.command);
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
    }
  };
  if (body !== undefined) return <Body body={body} />;
  return (
    <>
      <button type="button" class="button" onClick={() => void load()}>
        Show {bytes(message.body_bytes)}
      </button>{' '}
      {wrong}
    </>
  );
}
