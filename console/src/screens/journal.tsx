import type { ComponentChildren } from 'preact';
import * as calls from '../api/calls';
import type { Journal, Projection } from '../api/types';
import { ago, bytes, day, instant, known, micros, plural, seconds, whole } from '../lib/format';
import { link } from '../lib/route';
import { Absent } from '../parts/absent';
import { ActButton } from '../parts/act_button';
import { Badge, Card, Empty, Meter, Note } from '../parts/basic';
import { useConfirm } from '../parts/confirm';
import { useLoad } from '../parts/load';
import { Table } from '../parts/table';
import { Parts } from './journal/parts';

const RELOAD_MS = 5_000;
const DAY_MS = 86_400_000;

export function JournalScreen() {
  const { value: journal, failure, reload } = useLoad(() => calls.journal(), [], RELOAD_MS);
  return (
    <>
      <div class="head">
        <h1>Journal</h1>
        <span class="quiet">Where all that has happened is kept</span>
      </div>
      {journal ? (
        <Shown journal={journal} reload={reload} />
      ) : (
        <Absent failure={failure} what="what is known of the journal" />
      )}
    </>
  );
}

function Shown({ journal, reload }: { journal: Journal; reload: () => void }) {
  return (
    <div class="stack">
      <DurabilityNote journal={journal} />
      <div class="columns">
        <Place journal={journal} />
        <Disk journal={journal} />
        <Checkpoint journal={journal} />
        <Sync journal={journal} />
      </div>
      {journal.cluster && (
        <Note tone="accent">
          Several nodes share this journal: <a href={link('cluster')}>Cluster</a> shows them.
        </Note>
      )}
      <Projections projections={journal.projections} reload={reload} />
      <Parts medium={journal.medium} />
      <Retention journal={journal} />
    </div>
  );
}

const MEDIUM = {
  directory: 'A directory of segments',
  postgresql: 'PostgreSQL',
  'object-storage': 'Object storage',
  memory: 'Memory',
};
const DURABILITY: Record<string, string> = {
  fsync: 'what was answered survives a power loss',
  os: 'what was answered survives the end of the process, not a power loss',
  memory: 'nothing survives the end of the process',
};

function DurabilityNote({ journal }: { journal: Journal }) {
  if (journal.durability !== 'os' && journal.durability !== 'memory') return null;
  return (
    <Note tone="warn">
      Durability is <b>{journal.durability}</b>: {DURABILITY[journal.durability]}. The default is fsync.
    </Note>
  );
}

type Fact = [name: string, value: ComponentChildren];

function Facts({ facts }: { facts: (Fact | false | undefined | null)[] }) {
  return (
    <dl class="facts">
      {facts
        .filter((fact) => !!fact)
        .map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
    </dl>
  );
}

const or = (value: number | null | undefined, format: (value: number) => string) =>
  value === null || value === undefined ? <span class="quiet">not known</span> : format(value);
const milliseconds = (value: number) => micros(value * 1000);

function Place({ journal }: { journal: Journal }) {
  return (
    <Card title="Journal">
      <Facts
        facts={[
          ['Kept in', MEDIUM[journal.medium]],
          journal.place !== null && ['At', <span class="mono">{journal.place}</span>],
          ['Durability', `${journal.durability}: ${DURABILITY[journal.durability] ?? ''}`],
          ['Position', <span class="mono">{journal.position ?? '–'}</span>],
          ['Writer', known(journal.writer)],
          ['Commits', journal.commits === null ? '–' : `${whole(journal.commits)} since the start`],
          ['Size', or(journal.bytes, bytes)],
        ]}
      />
    </Card>
  );
}

function Disk({ journal }: { journal: Journal }) {
  const { disk } = journal;
  if (!disk) {
    return (
      <Card title="Disk">
        <Empty icon="disk" title="The disk is the database's" compact>
          <p>A journal on PostgreSQL or in memory has no disk of its own. Watch the database's.</p>
        </Empty>
      </Card>
    );
  }
  const whole_ = disk.budget_bytes ?? disk.total_bytes;
  const used =
    disk.budget_bytes !== null
      ? disk.used_bytes
      : disk.total_bytes !== null && disk.free_bytes !== null
        ? disk.total_bytes - disk.free_bytes
        : null;
  const share = whole_ && used !== null ? used / whole_ : undefined;
  const days = journal.full_at ? (Date.parse(journal.full_at) - Date.now()) / DAY_MS : undefined;
  const tone =
    (share ?? 0) > 0.95 || (days ?? 99) < 1 ? 'bad' : (share ?? 0) > 0.8 || (days ?? 99) < 7 ? 'warn' : undefined;
  return (
    <Card
      title="Disk"
      {...(tone && {
        aside: (
          <Badge tone={tone} icon="trouble">
            {tone === 'bad' ? 'nearly full' : 'watch it'}
          </Badge>
        ),
      })}
    >
      {share !== undefined && <Meter share={share} tone={tone} label={`${Math.round(share * 100)} % used`} />}
      <Facts
        facts={[
          share !== undefined && [
            'In use',
            `${Math.round(share * 100)} % of ${bytes(whole_ ?? 0)}${disk.budget_bytes !== null ? ', the budget' : ''}`,
          ],
          ['By this service', or(disk.used_bytes, bytes)],
          ['Free', or(disk.free_bytes, bytes)],
          [
            'Grows',
            journal.growth_bytes_per_day === null ? (
              <span class="quiet">not known</span>
            ) : (
              `${bytes(journal.growth_bytes_per_day)} a day at the rate of the last 15 minutes`
            ),
          ],
          ['Full', full(journal, disk)],
        ]}
      />
    </Card>
  );
}

/** When the disk or its budget is full. That is not known where the room that is left, or the growth, is not. */
function full({ full_at, growth_bytes_per_day }: Journal, disk: NonNullable<Journal['disk']>): ComponentChildren {
  if (full_at) return `${ago(full_at)}, ${day(new Date(full_at))}`;
  const isRoomKnown = disk.free_bytes !== null || (disk.budget_bytes !== null && disk.used_bytes !== null);
  if (!isRoomKnown || growth_bytes_per_day === null) {
    return <span class="quiet">not known: {isRoomKnown ? 'its growth' : 'the free space'} is not</span>;
  }
  return 'not within ten years at this rate';
}

function Checkpoint({ journal: { checkpoint } }: { journal: Journal }) {
  if (!checkpoint) {
    return (
      <Card title="Checkpoint">
        <p class="quiet">
          None since the start. The first one is made once enough has happened; a restart begins behind the last.
        </p>
      </Card>
    );
  }
  return (
    <Card
      title="Checkpoint"
      {...(checkpoint.is_failing && {
        aside: (
          <Badge tone="bad" icon="stopped">
            failing
          </Badge>
        ),
      })}
    >
      <Facts
        facts={[
          ['Last', checkpoint.at ? <time title={instant(checkpoint.at)}>{ago(checkpoint.at)}</time> : 'none yet'],
          ['Covers', <span class="mono">{checkpoint.covers ?? '–'}</span>],
          ['Behind', or(checkpoint.commits_behind, (count) => plural(count, 'commit'))],
          ['Took', or(checkpoint.took_ms, milliseconds)],
          ['Every', or(checkpoint.every_seconds, seconds)],
        ]}
      />
    </Card>
  );
}

function Sync({ journal: { sync } }: { journal: Journal }) {
  if (!sync) return null;
  return (
    <Card title="A commit takes">
      <Facts
        facts={[
          ['p50', or(sync.p50_ms, (value) => `up to ${milliseconds(value)}`)],
          ['p99', or(sync.p99_ms, (value) => `up to ${milliseconds(value)}`)],
          ['Maximum', or(sync.max_ms, milliseconds)],
          ['In flight', or(sync.commits_in_flight, whole)],
        ]}
      />
    </Card>
  );
}

const STATES: Record<string, readonly ['good' | 'warn' | 'bad', string]> = {
  running: ['good', 'good'],
  retrying: ['warn', 'trouble'],
  stopped: ['bad', 'stopped'],
  elsewhere: ['good', 'good'],
};

function behind({ lag_seconds, behind_seconds }: Projection): string {
  const most = Math.max(lag_seconds ?? 0, behind_seconds ?? 0);
  if (lag_seconds === null && behind_seconds === null) return '–';
  return most < 1 ? 'no' : seconds(most);
}

function ProjectionState({ one }: { one: Projection }) {
  const [tone, icon] =
    one.is_rebuilding && one.state === 'running'
      ? (['warn', 'clock'] as const)
      : (STATES[one.state] ?? ['warn', 'trouble']);
  return (
    <>
      <Badge tone={tone} icon={icon}>
        {one.is_rebuilding && one.state === 'running' ? 'rebuilding' : one.state}
      </Badge>
      {one.is_rebuilding && <p class="small quiet">Its rows are not complete.</p>}
    </>
  );
}

function SkippedEvents({ one }: { one: Projection }) {
  return (
    <details class="small">
      <summary>{plural(one.skipped, 'event was', 'events were')} skipped</summary>
      <ul class="skipped">
        {one.last_skipped.map((skipped) => (
          <li key={skipped.number}>
            <p class="break">{skipped.why}</p>
            <p class="quiet break">
              <time title={instant(skipped.at)}>{ago(skipped.at)}</time> by {skipped.by}: {skipped.reason}
            </p>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** What is kept of a kind, in words: `forever`, an age, or the last events. */
const kept = (keep: string) => (/^\d+$/.test(keep) ? `the last ${plural(Number(keep), 'event')}` : keep);

function Projections({ projections, reload }: { projections: Projection[]; reload: () => void }) {
  const { ask, dialog } = useConfirm(reload);
  return (
    <Card title="Projections">
      {projections.length === 0 ? (
        <Empty icon="journal" title="No projections" compact>
          <p>
            A service that keeps read models shows here how far each has come, how fast it goes, and why one stands
            still.
          </p>
        </Empty>
      ) : (
        <Table label="Projections">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">State</th>
              <th scope="col" class="number">
                Behind
              </th>
              <th scope="col" class="number">
                Events
              </th>
              <th scope="col">Reached</th>
              <th scope="col">Actions</th>
            </tr>
          </thead>
          <tbody>
            {projections.map((one) => (
              <tr key={one.name}>
                <td class="wide-cell">
                  {one.name} {one.kind && <span class="quiet">of {one.kind}</span>}
                  {one.reason && <p class="small break">{one.reason}</p>}
                  {one.skipped > 0 && <SkippedEvents one={one} />}
                </td>
                <td>
                  <ProjectionState one={one} />
                </td>
                <td class="number">{behind(one)}</td>
                <td class="number">{one.events === null ? '–' : whole(one.events)}</td>
                <td class="mono">{one.reached ?? '–'}</td>
                <td>
                  <span class="row">
                    {one.actions.map((action) => (
                      <ActButton
                        key={action.name}
                        action={action}
                        label={`${action.label}: ${one.name}`}
                        run={() => ask({ action, of: { kind: null, id: null, what: one.name } })}
                      />
                    ))}
                  </span>
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {dialog}
    </Card>
  );
}

function Retention({ journal }: { journal: Journal }) {
  return (
    <Card title="Retention">
      {journal.retention.length === 0 ? (
        <p class="quiet">No kind keeps events.</p>
      ) : (
        <Facts facts={journal.retention.map((one): Fact => [one.kind, kept(one.keep)])} />
      )}
    </Card>
  );
}
