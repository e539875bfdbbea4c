import type { Entity, Pending } from '../../api/types';
import { ago, instant, messageName, micros, plural, whole } from '../../lib/format';
import { line } from '../../lib/json';
import { link } from '../../lib/route';
import { Badge, Card } from '../../parts/basic';
import { EntityLink } from '../../parts/link';

/** What belongs to an entity beside its state: its family, what is on its way, its timers, what went wrong. */
export function Around({ now }: { now: Entity }) {
  const parent = now.family?.parent;
  const children = now.family?.children ?? 0;
  return (
    <div class="columns">
      <Card title="Family">
        <dl class="facts">
          <dt>Parent</dt>
          <dd>
            {parent ? <EntityLink of={parent} /> : <span class="quiet">none: it was not created by an entity</span>}
          </dd>
          <dt>Children</dt>
          <dd>
            {children === 0 ? (
              <span class="quiet">none</span>
            ) : (
              <a href={link('map', [now.kind, now.id])}>{plural(children, 'child', 'children')}, on the map</a>
            )}
          </dd>
          <dt>Shard</dt>
          <dd>{now.shard}</dd>
          <dt>In memory</dt>
          <dd>{now.status === 'resident' ? 'yes' : now.status}</dd>
          <dt>Idempotency keys</dt>
          <dd>
            {now.keys == null ? <span class="quiet">not known without reading</span> : `${whole(now.keys)} in memory`}
          </dd>
        </dl>
      </Card>
      <Card title="Last errors">
        {now.quarantine ? (
          <p class="break">
            <Badge tone="bad" icon="stopped">
              quarantined
            </Badge>{' '}
            at event {now.quarantine.seq}: {now.quarantine.reason}
          </p>
        ) : (
          (now.dead ?? 0) === 0 && (
            <p class="quiet">None. Messages it could not take, and events it could not apply, are named here.</p>
          )
        )}
        {(now.dead ?? 0) > 0 && (
          <p>
            <a href={link('trouble')}>{plural(now.dead ?? 0, 'dead message')}</a> wait for somebody.
          </p>
        )}
      </Card>
      <Card title="Timers" aside={<span class="small quiet">{plural(now.timers?.length ?? 0, 'timer')}</span>}>
        {(now.timers?.length ?? 0) === 0 ? (
          <p class="quiet">None. What it asks to be reminded of appears here, with when.</p>
        ) : (
          <ul class="lines">
            {now.timers?.map((timer) => (
              <li key={timer.name}>
                <p>
                  <b class="break">{timer.name}</b> <time title={instant(timer.at)}>{ago(timer.at)}</time>
                  {timer.every_ms !== null && <span class="quiet">, every {micros(timer.every_ms * 1000)}</span>}
                </p>
                <p class="mono quiet break">
                  {timer.command} {line(timer.body, 120)}
                </p>
                {timer.tries > 0 && (
                  <Badge tone="warn" icon="trouble">
                    failed {plural(timer.tries, 'time')}
                    {timer.retry_at ? `, again ${ago(timer.retry_at)}` : ''}
                  </Badge>
                )}
              </li>
            ))}
          </ul>
        )}
      </Card>
      <Card
        title="In flight to it"
        aside={<span class="small quiet">{plural(now.pending_in?.length ?? 0, 'message')}</span>}
      >
        <PendingList pending={now.pending_in} none="None. Messages that it has not taken yet appear here." />
      </Card>
      <Card
        title="In flight from it"
        aside={<span class="small quiet">{plural(now.pending_out?.length ?? 0, 'message')}</span>}
      >
        <PendingList pending={now.pending_out} none="None. Messages that others have not taken yet appear here." />
      </Card>
    </div>
  );
}

function PendingList({ pending, none }: { pending: Pending[] | undefined; none: string }) {
  if (!pending || pending.length === 0) return <p class="quiet">{none}</p>;
  return (
    <ul class="lines">
      {pending.map((one) => (
        <li key={one.number}>
          <b class="break">{messageName(one.name)}</b> {one.to ? 'to ' : 'from '}
          {(one.to ?? one.from) && <EntityLink of={(one.to ?? one.from) as { kind: string; id: string }} />}
          <p class="mono quiet small">{one.sent ? `sent in ${one.sent}` : one.number}</p>
        </li>
      ))}
    </ul>
  );
}
