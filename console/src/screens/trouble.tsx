import { useState } from 'preact/hooks';
import * as calls from '../api/calls';
import type { Action, Trouble } from '../api/types';
import { ago, instant, plural, whole } from '../lib/format';
import { Absent } from '../parts/absent';
import { Badge, Card, Empty, Note } from '../parts/basic';
import { Dialog } from '../parts/dialog';
import { EntityLink } from '../parts/link';
import { useLoad } from '../parts/load';
import { overview, troubles } from '../state/service';
import { say } from '../state/toast';

const RELOAD_MS = 3_000;

interface Type {
  title: string;
  icon: string;
  tone: 'bad' | 'warn';
  says: string;
}

const TYPES: Record<string, Type> = {
  journal: { title: 'Journal', icon: 'disk', tone: 'bad', says: 'Commands are refused until it is back.' },
  check: { title: 'Checks', icon: 'trouble', tone: 'warn', says: 'What the service says of its own parts.' },
  checkpoint: {
    title: 'Checkpoints',
    icon: 'trouble',
    tone: 'warn',
    says: 'A restart takes longer until one is made.',
  },
  quarantined: {
    title: 'Quarantined',
    icon: 'stopped',
    tone: 'bad',
    says: 'Set aside: they cannot be brought back by this program. Everybody else goes on.',
  },
  stuck: {
    title: 'Stuck',
    icon: 'clock',
    tone: 'warn',
    says: 'They cannot be loaded now; it is tried again by itself.',
  },
  dead: {
    title: 'Dead messages',
    icon: 'message',
    tone: 'bad',
    says: 'Nobody could take them. Each is kept whole, with its reason.',
  },
  timer: {
    title: 'Timers',
    icon: 'clock',
    tone: 'warn',
    says: 'They cannot be fired now; it is tried again by itself.',
  },
  projection: {
    title: 'Projections and followers',
    icon: 'journal',
    tone: 'warn',
    says: 'What reads the journal and is behind, or stands still.',
  },
  refusals: {
    title: 'Refusals',
    icon: 'stopped',
    tone: 'warn',
    says: 'Requests that were refused in the last 15 minutes, before anything was done.',
  },
};

const ORDER = Object.keys(TYPES);

export function TroubleScreen() {
  const { value, failure, reload } = useLoad(() => calls.troubles(), [], RELOAD_MS);
  const [asked, setAsked] = useState<{ action: Action; trouble: Trouble }>();
  if (value) troubles.value = value.total;
  const present = value
    ? [...new Set(value.items.map((item) => item.type))].sort((one, other) => place(one) - place(other))
    : [];
  return (
    <>
      <div class="head">
        <h1>Trouble</h1>
        <span class="quiet" role="status">
          {value && (value.total === 0 ? 'Nothing needs anybody' : `${plural(value.total, 'thing')} to look at`)}
        </span>
      </div>
      {!value && <Absent failure={failure} what="what needs somebody" />}
      {value?.items.length === 0 && <Quiet />}
      <div class="stack">
        {present.map((type) => (
          <Group
            key={type}
            type={type}
            items={value?.items.filter((item) => item.type === type) ?? []}
            ask={(action, trouble) => setAsked({ action, trouble })}
          />
        ))}
        {value?.more && <Note tone="accent">There is more than is shown. Mend these first.</Note>}
      </div>
      {asked && (
        <Confirm
          {...asked}
          close={() => setAsked(undefined)}
          done={() => {
            setAsked(undefined);
            reload();
          }}
        />
      )}
    </>
  );
}

function place(type: string): number {
  const found = ORDER.indexOf(type);
  return found < 0 ? ORDER.length : found;
}

function Quiet() {
  return (
    <Card>
      <Empty icon="good" title="All is well">
        <p>
          Dead messages, quarantined and stuck entities, timers that cannot fire, projections that lag and refused
          requests appear here, each with its reason and with what mends it.
        </p>
      </Empty>
    </Card>
  );
}

interface GroupProps {
  type: string;
  items: Trouble[];
  ask: (action: Action, trouble: Trouble) => void;
}

function Group({ type, items, ask }: GroupProps) {
  const { title, icon, tone, says } = TYPES[type] ?? { title: type, icon: 'trouble', tone: 'warn' as const, says: '' };
  return (
    <Card
      title={
        <span class="row">
          {title}
          <Badge tone={tone} icon={icon}>
            {whole(items.length)}
          </Badge>
        </span>
      }
      aside={<span class="small quiet">{says}</span>}
    >
      <ul class="troubles">
        {items.map((item) => (
          <Item key={`${item.kind}/${item.id}/${item.what}/${item.number}`} item={item} ask={ask} />
        ))}
      </ul>
    </Card>
  );
}

function Item({ item, ask }: { item: Trouble; ask: GroupProps['ask'] }) {
  const { kind, id } = item;
  return (
    <li class="trouble">
      <div class="trouble-text">
        <p class="row">
          {kind !== null && id !== null && <EntityLink of={{ kind, id }} />}
          <span class="trouble-what break">{item.what.replaceAll('_', ' ')}</span>
        </p>
        <p class="quiet break">{item.reason}</p>
      </div>
      <div class="trouble-when tabular small quiet">
        {item.since && <time title={instant(item.since)}>for {ago(item.since).replace(' ago', '')}</time>}
        {item.count !== 1 && <span>{whole(item.count)} times</span>}
      </div>
      <div class="row trouble-actions">
        {item.actions.map((action) => (
          <button
            key={action.name}
            type="button"
            class={`button ${action.confirm ? 'danger' : ''}`}
            aria-label={`${action.label}: ${item.what}${id === null ? '' : ` of ${kind} ${id}`}`}
            onClick={() => ask(action, item)}
          >
            {action.label}
          </button>
        ))}
      </div>
    </li>
  );
}

/** What an action does, where the server has nothing to add. */
const DOES: Record<string, string> = {
  retry: 'It is executed again now, after what came meanwhile. If it fails again it stays here, with the new reason.',
  release: 'Its next command loads it again from its events. If they still cannot be applied it comes back here.',
  rebuild:
    'Its rows are removed and built again from the first event that is kept. Readers see it incomplete meanwhile.',
  skip: 'It goes on behind what it cannot take. What is skipped is never taken.',
};

function Confirm({
  action,
  trouble,
  close,
  done,
}: {
  action: Action;
  trouble: Trouble;
  close: () => void;
  done: () => void;
}) {
  const [isBusy, setBusy] = useState(false);
  const [wrong, setWrong] = useState<string>();
  const [reason, setReason] = useState('');
  const by = overview.value?.console.by;
  const run = async () => {
    setBusy(true);
    setWrong(undefined);
    try {
      const { retried } = await calls.act(
        action.needs_reason ? `${action.path}&reason=${encodeURIComponent(reason.trim())}` : action.path,
      );
      const came = retried?.[0]?.outcome ?? 'done';
      const why = retried?.[0]?.reason;
      say(came === 'done' ? `${action.label}: done.` : `${action.label}: ${came}. ${why ?? ''}`);
      done();
    } catch (error) {
      setWrong(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${action.label}?`} close={close}>
      <div class="stack">
        <p>
          {trouble.kind !== null && trouble.id !== null && (
            <>
              <b class="break">
                {trouble.kind}/{trouble.id}
              </b>
              :{' '}
            </>
          )}
          <span class="break">{trouble.what}</span>
        </p>
        <p>{action.confirm ?? DOES[action.name] ?? 'It is done at once.'}</p>
        {action.needs_reason && (
          <label class="stack-small">
            <span>Why? It is recorded with who did it.</span>
            <input class="input" required value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        <p class="small quiet">The log will say that it was done{by ? `, by ${by}` : ''}.</p>
        {wrong && <Note tone="bad">{wrong}</Note>}
      </div>
      <div class="dialog-foot">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class={`button primary ${action.confirm ? 'danger' : ''}`}
          disabled={isBusy || (action.needs_reason && reason.trim() === '')}
          onClick={() => void run()}
        >
          {action.label}
        </button>
      </div>
    </Dialog>
  );
}
