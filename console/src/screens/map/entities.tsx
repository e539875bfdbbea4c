import { useState } from 'preact/hooks';
import type { MapEntity } from '../../api/types';
import type { Json } from '../../lib/diff';
import { write } from '../../lib/exact';
import { known, whole } from '../../lib/format';
import { link } from '../../lib/route';
import { Badge, Card, Note } from '../../parts/basic';
import { Icon } from '../../parts/icon';
import { EntityLink } from '../../parts/link';
import { Table } from '../../parts/table';
import { keyOf, type Side } from '../../parts/tiles';
import { set } from '../../state/place';
import { hot } from '../../state/points';

const STATES: Record<MapEntity['state'], { tone?: 'bad' | 'warn'; icon?: string }> = {
  resident: {},
  passivated: {},
  ended: {},
  quarantined: { tone: 'bad', icon: 'stopped' },
  stuck: { tone: 'warn', icon: 'clock' },
};

export type Only = 'all' | 'work' | 'trouble';
export type By = 'id' | 'events' | 'rate';

/** Which of the entities that are loaded are shown. */
export const ONLY: Record<Only, { label: string; is: (entity: MapEntity) => boolean }> = {
  all: { label: 'All', is: () => true },
  work: { label: 'At work', is: ({ per_second }) => per_second > 0 },
  trouble: { label: 'In trouble', is: ({ state }) => state === 'quarantined' || state === 'stuck' },
};

/** What comes first; equal ones stay in the order of their ids. */
const ORDERS: Record<By, ((one: MapEntity, other: MapEntity) => number) | undefined> = {
  id: undefined,
  events: (one, other) => (other.seq ?? -1) - (one.seq ?? -1),
  rate: (one, other) => other.per_second - one.per_second,
};

export function arranged(entities: MapEntity[], only: Only, by: By): MapEntity[] {
  const found = only === 'all' ? entities : entities.filter(ONLY[only]?.is ?? ONLY.all.is);
  const order = ORDERS[by];
  return order ? found.toSorted(order) : found;
}

interface ChosenProps {
  entity: MapEntity;
  kind: string;
  side: Side;
  close: () => void;
}

/** The chosen entity, over the half of the map in which its tile is not: the tiles stay where they are. */
export function Chosen({ entity, kind, side, close }: ChosenProps) {
  const of = { kind: entity.kind ?? kind, id: entity.id };
  const look = STATES[entity.state] ?? {};
  const now = hot.value.find((one) => one.kind === of.kind && one.id === of.id)?.per_second ?? entity.per_second;
  return (
    <Card
      class={`chosen ${side}`}
      title={<span class="break">{entity.id}</span>}
      aside={
        <button type="button" class="button plain icon-only" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      }
    >
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{of.kind}</dd>
        <dt>State</dt>
        <dd>
          <Badge {...look}>{entity.state}</Badge>
        </dd>
        <dt>Events</dt>
        <dd>{known(entity.seq)}</dd>
        <dt>A second</dt>
        <dd>{whole(now)}</dd>
        {entity.parent && (
          <>
            <dt>Parent</dt>
            <dd>
              <EntityLink of={entity.parent} />
            </dd>
          </>
        )}
        {entity.children !== null && (
          <>
            <dt>Children</dt>
            <dd>{whole(entity.children)}</dd>
          </>
        )}
      </dl>
      <div class="row">
        <a class="button primary" href={link('entity', [of.kind, of.id])}>
          Open
        </a>
        {entity.children !== 0 && (
          <a class="button" href={link('map', [of.kind, of.id])}>
            Its children
          </a>
        )}
      </div>
    </Card>
  );
}

const ROWS = 200;

/** A field's value: a text as it is, else as JSON. */
function value(of: Json | undefined): string {
  if (typeof of === 'string') return of;
  return of === undefined || of === null ? '–' : write(of);
}

/** The head of a column that the list can be ordered by. */
function Head({ name, label, by }: { name: By; label: string; by: By }) {
  const isNumber = name !== 'id';
  return (
    <th
      scope="col"
      {...(isNumber && { class: 'number' })}
      aria-sort={by === name ? (isNumber ? 'descending' : 'ascending') : 'none'}
    >
      <button type="button" class="sort" onClick={() => set({ by: name === 'id' ? undefined : name })}>
        {label}
      </button>
    </th>
  );
}

interface ListProps {
  kind: string;
  /** The fields whose values are shown. */
  fields: string[];
  entities: MapEntity[];
  by: By;
  /** There may be more than are loaded at once. */
  isFull: boolean;
}

export function List({ kind, fields, entities, by, isFull }: ListProps) {
  const [shown, setShown] = useState(ROWS);
  return (
    <Card>
      <Table label="Entities">
        <thead>
          <tr>
            <Head name="id" label="Id" by={by} />
            {fields.map((field) => (
              <th key={field} scope="col" class="number break">
                {field}
              </th>
            ))}
            <th scope="col">State</th>
            <Head name="events" label="Events" by={by} />
            <Head name="rate" label="A second" by={by} />
            <th scope="col" class="number">
              Children
            </th>
          </tr>
        </thead>
        <tbody>
          {entities.slice(0, shown).map((entity) => (
            <tr key={keyOf(entity)}>
              <td>
                <EntityLink of={{ kind: entity.kind ?? kind, id: entity.id }} />
              </td>
              {fields.map((field) => (
                <td key={field} class="number break">
                  {value(entity.fields?.[field])}
                </td>
              ))}
              <td>
                <Badge {...(STATES[entity.state] ?? {})}>{entity.state}</Badge>
              </td>
              <td class="number">{known(entity.seq)}</td>
              <td class="number">{whole(entity.per_second)}</td>
              <td class="number">
                {entity.children ? (
                  <a href={link('map', [entity.kind ?? kind, entity.id])}>{whole(entity.children)}</a>
                ) : (
                  (entity.children ?? '–')
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
      {entities.length > shown && (
        <div class="row pager">
          <button type="button" class="button" onClick={() => setShown(shown + ROWS)}>
            Show {whole(Math.min(ROWS, entities.length - shown))} more of {whole(entities.length - shown)}
          </button>
        </div>
      )}
      {isFull && <Note tone="accent">More are a page further.</Note>}
    </Card>
  );
}
