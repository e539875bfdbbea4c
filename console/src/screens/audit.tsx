import { useState } from 'preact/hooks';
import * as calls from '../api/calls';
import { type AuditFilter, type Entry, subject } from '../lib/audit';
import { ago, instant, plural } from '../lib/format';
import { Absent } from '../parts/absent';
import { Badge, Card, Empty, Note } from '../parts/basic';
import { EntityLink } from '../parts/link';
import { save } from '../parts/save';
import { Table } from '../parts/table';
import { route, set } from '../state/place';
import { overview } from '../state/service';
import { complain, say } from '../state/toast';
import { useAudit } from './audit/use_audit';

/** The filter, as the page's address has it. */
function filterOf(): AuditFilter {
  const { query } = route.value;
  return { by: query.get('by') ?? '', action: query.get('action') ?? '', entity: query.get('entity') ?? '' };
}

/** Each action of administration: who asked for it, when, why, and how it ended. */
export function AuditScreen() {
  return (
    <>
      <div class="head">
        <h1>Audit</h1>
        <span class="quiet">What was done in administration, by whom and why</span>
        {overview.value?.audit && <Export />}
      </div>
      {overview.value?.audit === false ? <NotKept /> : <Shown />}
    </>
  );
}

function NotKept() {
  return (
    <Card>
      <Empty icon="audit" title="No audit is kept here">
        <p>The engine was not given the kind that keeps one. Every service that has entities is.</p>
      </Empty>
    </Card>
  );
}

/** Gives the browser a file of all that the audit has. */
function Export() {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const { lines, exported } = await calls.exportLines('/admin/audit/export');
      save('audit.jsonl', lines);
      say(`Export all: ${plural(exported, 'event')} of the audit.`);
    } catch (error) {
      complain(`Export all: ${error instanceof Error ? error.message : String(error)}`);
    }
    setBusy(false);
  };
  return (
    <span class="head-tools">
      <button type="button" class="button" disabled={isBusy} onClick={() => void run()}>
        Export all
      </button>
    </span>
  );
}

function Shown() {
  const filter = filterOf();
  const { loaded, shown, isOver, isLoading, failure, more } = useAudit(filter);
  if (loaded.length === 0 && (isLoading || failure)) return <Absent failure={failure} what="the audit" />;
  if (loaded.length === 0) {
    return (
      <Card>
        <Empty icon="audit" title="Nothing has been done yet">
          <p>
            Each action of administration appears here, from this page or from elsewhere, with who asked for it, why,
            and how it ended.
          </p>
        </Empty>
      </Card>
    );
  }
  return (
    <Card>
      <Filter filter={filter} loaded={loaded} />
      {failure && <Note tone="warn">{failure.message}</Note>}
      {shown.length > 0 && (
        <Table label="Audit">
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Who</th>
              <th scope="col">What</th>
              <th scope="col">Why</th>
              <th scope="col">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((entry) => (
              <Row key={entry.number} entry={entry} />
            ))}
          </tbody>
        </Table>
      )}
      <div class="row">
        <span class="small quiet tabular" role="status">
          {isLoading
            ? `Looked at ${plural(loaded.length, 'action')} …`
            : `${plural(shown.length, 'action')} shown of the last ${plural(loaded.length, 'action')}.`}
        </span>
        {!isLoading && !isOver && (
          <button type="button" class="button" onClick={more}>
            Look further back
          </button>
        )}
      </div>
    </Card>
  );
}

/** All values that are known, with the one that is chosen. */
const known = (values: string[], chosen: string) =>
  [...new Set([...values, ...(chosen === '' ? [] : [chosen])])].sort();

function Filter({ filter, loaded }: { filter: AuditFilter; loaded: Entry[] }) {
  const choices = [
    {
      name: 'by',
      label: 'Person',
      values: known(
        loaded.map(({ by }) => by),
        filter.by,
      ),
    },
    {
      name: 'action',
      label: 'Action',
      values: known(
        loaded.map(({ action }) => action),
        filter.action,
      ),
    },
  ] as const;
  return (
    <div class="history-tools">
      <div class="history-filter">
        {choices.map(({ name, label, values }) => (
          <div class="field" key={name}>
            <label for={`audit-${name}`}>{label}</label>
            <select
              id={`audit-${name}`}
              class="input"
              value={filter[name]}
              onChange={(event) => set({ [name]: event.currentTarget.value })}
            >
              <option value="">all</option>
              {values.map((value) => (
                <option key={value} value={value}>
                  {value}
                </option>
              ))}
            </select>
          </div>
        ))}
        <div class="field">
          <label for="audit-entity">Entity</label>
          <input
            id="audit-entity"
            class="input"
            autocomplete="off"
            placeholder="kind/id, or a part"
            value={filter.entity}
            onInput={(event) => set({ entity: event.currentTarget.value })}
          />
        </div>
      </div>
    </div>
  );
}

function Row({ entry }: { entry: Entry }) {
  const { of, rest } = subject(entry);
  return (
    <tr>
      <td class="tabular">
        <time title={instant(entry.at)}>{ago(entry.at)}</time>
        <p class="small quiet">{instant(entry.at)}</p>
      </td>
      <td>
        <div>
          <b class="break">{entry.by}</b> <span class="quiet">{entry.role}</span>
          <p class="small quiet mono break">{entry.address}</p>
        </div>
      </td>
      <td>
        <div class="wide-cell">
          <b>{entry.action}</b> {of && <EntityLink of={of} />}
          {rest.map(([name, value]) => (
            <p key={name} class="small break">
              <span class="quiet">{name}</span> {value}
            </p>
          ))}
        </div>
      </td>
      <td class="wide-cell break">{entry.reason === '' ? <span class="quiet">–</span> : entry.reason}</td>
      <td>
        <Outcome entry={entry} />
      </td>
    </tr>
  );
}

function Outcome({ entry: { end } }: { entry: Entry }) {
  if (!end) {
    return (
      <Badge tone="warn" icon="clock">
        no end yet
      </Badge>
    );
  }
  if (end.status < 300) {
    return (
      <Badge tone="good" icon="good">
        done
      </Badge>
    );
  }
  return (
    <div>
      <Badge tone="bad" icon="stopped">
        {end.status}
      </Badge>
      {end.problem && <p class="small quiet break">{end.problem}</p>}
    </div>
  );
}
