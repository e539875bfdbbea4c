import { signal } from '@preact/signals';
import * as calls from '../api/calls';
import type { DeadGroup, Trouble } from '../api/types';
import { ago, bytes, instant, plural, whole } from '../lib/format';
import { line } from '../lib/json';
import { byReason } from '../lib/reasons';
import { Absent } from '../parts/absent';
import { ActButton } from '../parts/act_button';
import { Badge, Card, Empty, Note } from '../parts/basic';
import { useConfirm } from '../parts/confirm';
import { Content } from '../parts/content';
import { EntityLink } from '../parts/link';
import { useLoad } from '../parts/load';
import { save } from '../parts/save';
import { troubles } from '../state/service';
import { complain, say } from '../state/toast';
import { Reason } from './trouble/all';

const RELOAD_MS = 3_000;
/** So many of a type are listed. */
const EACH_MAX = 100;

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
    says: 'Set aside, by an operator or because this program cannot bring them back. Everybody else goes on.',
  },
  crowding: {
    title: 'Full of messages',
    icon: 'stopped',
    tone: 'bad',
    says: 'Messages between entities take all their room, most of them for these. Work from outside is refused.',
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
    says: 'They could not be taken. Each is kept whole, with its reason.',
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

/** The groups as the server counted them last. */
const deadGroups = signal<DeadGroup[]>([]);

const leftOf = (kind: string, cause: string) =>
  deadGroups.value.find((group) => group.kind === kind && group.cause === cause)?.count ?? 0;

export function TroubleScreen() {
  const { value, failure, reload } = useLoad(() => calls.troubles(), [], RELOAD_MS);
  const { ask, dialog } = useConfirm(reload);
  if (value) {
    troubles.value = value.total;
    deadGroups.value = value.dead_groups;
  }
  const present = value
    ? [...new Set(value.items.map((item) => item.type))].sort((one, other) => place(one) - place(other))
    : [];
  return (
    <>
      <div class="head">
        <h1>Trouble</h1>
        <span class="quiet" role="status">
          {value && (value.total === 0 ? 'No issues' : plural(value.total, 'issue'))}
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
            total={value?.totals[type]}
            isUncounted={value?.uncounted.includes(type)}
            groups={type === 'dead' ? (value?.dead_groups ?? []) : []}
            ask={ask}
            reload={reload}
          />
        ))}
        {value?.more && <Note tone="accent">There is more than is shown. Resolve these first.</Note>}
      </div>
      {dialog}
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
  /** Of all, listed or not. */
  total: number | undefined;
  isUncounted: boolean | undefined;
  groups: DeadGroup[];
  ask: ReturnType<typeof useConfirm>['ask'];
  reload: () => void;
}

function Group({ type, items, total, isUncounted, groups, ask, reload }: GroupProps) {
  const { title, icon, tone, says } = TYPES[type] ?? { title: type, icon: 'trouble', tone: 'warn' as const, says: '' };
  const reasons = type === 'dead' ? [] : byReason(items);
  return (
    <Card
      title={
        <span class="row">
          {title}
          <Badge tone={tone} icon={icon}>
            {whole(total ?? items.length)}
            {(isUncounted || (total === undefined && items.length >= EACH_MAX)) && ' and more'}
          </Badge>
        </span>
      }
      aside={<span class="small quiet">{says}</span>}
    >
      {reasons.length > 0 && (
        <ul class="troubles" aria-label="By reason">
          {reasons.map((group) => (
            <Reason key={group.key} group={group} done={reload} />
          ))}
        </ul>
      )}
      {/* One message has buttons of its own. */}
      {groups.some(({ count }) => count > 1) && (
        <ul class="troubles" aria-label="By cause">
          {groups.map((group) => (
            <Cause key={`${group.kind}/${group.cause}`} group={group} ask={ask} />
          ))}
        </ul>
      )}
      <ul class="troubles">
        {items.map((item) => (
          <Item key={`${item.kind}/${item.id}/${item.what}/${item.number}`} item={item} ask={ask} />
        ))}
      </ul>
    </Card>
  );
}

/** All dead messages to a kind that died of the same. */
function Cause({ group, ask }: { group: DeadGroup; ask: GroupProps['ask'] }) {
  const { kind, cause, count } = group;
  const of = `messages to ${kind}: ${cause}`;
  return (
    <li class="trouble of-many">
      <div class="trouble-text">
        <p class="trouble-what break">
          {plural(count, 'message')} to {kind}
        </p>
        <p class="quiet break">{cause}</p>
      </div>
      <div class="row trouble-actions">
        <button type="button" class="button" aria-label={`Export all ${of}`} onClick={() => void exportAll(group)}>
          Export all
        </button>
        {group.actions.map((action) => (
          <ActButton
            key={action.name}
            action={action}
            kind={action.needs_reason ? 'danger' : ''}
            label={`${action.label} ${of}`}
            run={() => ask({ action, of: { kind: null, id: null, what: cause }, left: () => leftOf(kind, cause) })}
          />
        ))}
      </div>
    </li>
  );
}

/** Gives the browser a file of the messages. */
async function exportAll({ kind, export: path }: DeadGroup): Promise<void> {
  try {
    const { lines, exported } = await calls.exportLines(path);
    save(`dead-${kind}.jsonl`, lines);
    say(`Export all: ${plural(exported, 'message')}.`);
  } catch (error) {
    complain(`Export all: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** What is counted, where that is not how often it happened. */
const COUNTS: Record<string, (count: number) => string> = {
  quarantined: (count) => `${whole(count)} refused`,
  stuck: (count) => `${plural(count, 'message')} wait`,
  crowding: (count) => `${plural(count, 'message')} in memory`,
  timer: (count) => plural(count, 'try', 'tries'),
  projection: (count) => `${plural(count, 'commit')} behind`,
};

function since(at: string): string {
  const passed = ago(at);
  return passed === 'now' ? 'just now' : `for ${passed.replace(' ago', '')}`;
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
        {item.message && (
          <details class="dead-message">
            <summary class="small">
              <span class="mono">{item.number}</span>, {plural(item.message.attempts, 'attempt')}:{' '}
              <span class="mono break">
                {item.message.body === null ? bytes(item.message.body_bytes) : line(item.message.body, 80)}
              </span>
            </summary>
            <Content of={item} message={item.message} />
          </details>
        )}
      </div>
      <div class="trouble-when tabular small quiet">
        {item.since && <time title={instant(item.since)}>{since(item.since)}</time>}
        {(item.count !== 1 || item.type === 'projection') && (
          <span>{(COUNTS[item.type] ?? ((count) => `${whole(count)} times`))(item.count)}</span>
        )}
      </div>
      <div class="row trouble-actions">
        {item.actions.map((action) => (
          <ActButton
            key={action.name}
            action={action}
            label={`${action.label}: ${item.what}${id === null ? '' : ` of ${kind} ${id}`}`}
            run={() => ask({ action, of: item })}
          />
        ))}
      </div>
    </li>
  );
}
