import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as calls from '../api/calls';
import { epoch, Failure } from '../api/client';
import type { MapEntity, MapKind } from '../api/types';
import { plural, short, whole } from '../lib/format';
import { Heat } from '../lib/heat';
import { link } from '../lib/route';
import { Absent } from '../parts/absent';
import { Badge, Card, Empty, Note } from '../parts/basic';
import { Icon } from '../parts/icon';
import { useLoad } from '../parts/load';
import { keyOf, type Side, Tiles } from '../parts/tiles';
import { go, route, set } from '../state/place';
import { series, tick } from '../state/points';
import { overview } from '../state/service';
import { arranged, type By, Chosen, List, ONLY, type Only } from './map/entities';

const RELOAD_MS = 5_000;
/** Entities asked for at a time. */
const PAGE = 1_000;
/** Tiles drawn at most, whatever room there is; the next ones are a page further. */
const TILES_MAX = 12_000;
/** From so many on, the beginnings of ids are offered to narrow the map. */
const GROUPS_FROM = 2_000;

export function MapScreen() {
  const { path } = route.value;
  const [kind, id] = path;
  if (kind === undefined) return <Kinds />;
  return <Surface key={`${kind}/${id ?? ''}`} kind={kind} id={id} />;
}

function Kinds() {
  const { value, failure } = useLoad(() => calls.map(), [], RELOAD_MS);
  return (
    <>
      <div class="head">
        <h1>Map</h1>
        <span class="quiet">Every entity there is, by its kind</span>
      </div>
      {!value && <Absent failure={failure} what="the kinds" />}
      {value?.kinds.length === 0 && (
        <Card>
          <Empty icon="map" title="This service has no entities">
            <p>
              Kinds of entities stand here, with how many there are of each. This one answers without keeping anything.
            </p>
          </Empty>
        </Card>
      )}
      <ul class="kinds">
        {value?.kinds.map((kind) => (
          <li key={kind.name}>
            <KindCard kind={kind} />
          </li>
        ))}
      </ul>
    </>
  );
}

function KindCard({ kind }: { kind: MapKind }) {
  const known = overview.value?.kinds.find((one) => one.name === kind.name);
  const count = kind.entities;
  return (
    <a class="card kind" href={link('map', [kind.name])}>
      <span class="kind-head">
        <Icon name="entity" />
        <span class="kind-name break">{kind.name}</span>
        <span class="kind-badges">
          {kind.quarantined > 0 && (
            <Badge tone="bad" icon="stopped">
              {whole(kind.quarantined)} quarantined
            </Badge>
          )}
          {kind.stuck > 0 && (
            <Badge tone="warn" icon="clock">
              {whole(kind.stuck)} stuck
            </Badge>
          )}
          {known?.is_hidden && <Badge>no routes</Badge>}
        </span>
      </span>
      <span class="kind-count">
        {count === null ? '–' : whole(count)}
        <span class="unit"> {count === 1 ? 'entity' : 'entities'}</span>
      </span>
      <span class="kind-foot quiet small tabular">
        <span>{kind.resident === null ? '' : `${whole(kind.resident)} in memory`}</span>
        <span>{kind.per_second === null ? '' : `${short(kind.per_second)} a second`}</span>
      </span>
    </a>
  );
}

interface Asked {
  kind: string;
  id: string | undefined;
  prefix: string;
  /** Conditions on the kind's fields; empty: none. */
  where: string;
}

interface Found {
  entities: MapEntity[];
  next: string | null;
  total: number | null;
  parent: { kind: string; id: string } | null;
  examined: number;
  unknown: number;
}

async function page(
  { kind, id, prefix, where }: Asked,
  after: string | undefined,
  limit: number,
  signal: AbortSignal,
): Promise<Found> {
  const wanted = { prefix: prefix === '' ? undefined : prefix, after, limit, signal };
  if (id === undefined) {
    const found = await calls.entities(kind, { ...wanted, where: where === '' ? undefined : where });
    return { examined: 0, unknown: 0, ...found, total: null, parent: null };
  }
  const found = await calls.children(kind, id, wanted);
  return {
    entities: found.children,
    next: found.next,
    total: found.total,
    parent: found.parent,
    examined: 0,
    unknown: 0,
  };
}

/** The entities of a kind, or the children of one, as tiles or as a list. */
function Surface({ kind, id }: { kind: string; id: string | undefined }) {
  const { query } = route.value;
  const prefix = query.get('q') ?? '';
  const isList = query.get('as') === 'list';
  const known = overview.value?.kinds.find((one) => one.name === kind);
  const fields = (id === undefined && known?.fields) || [];
  const where = fields.length > 0 ? (query.get('where') ?? '') : '';
  const [room, setRoom] = useState(0);
  const { entities, next, parent, total, examined, unknown, isLoading, failure, start, more } = useEntities(
    { kind, id, prefix, where },
    room,
  );
  const [selected, setSelected] = useState<string>();
  const [side, setSide] = useState<Side>('right');
  const heat = useHeat(kind, id, entities);
  const only = (query.get('only') ?? 'all') as Only;
  const by = (query.get('by') ?? 'id') as By;
  const shown = useMemo(() => arranged(entities, only, isList ? by : 'id'), [entities, only, by, isList]);
  const chosen = shown.find((entity) => keyOf(entity) === selected);
  const open = useCallback((entity: MapEntity) => go('entity', [entity.kind ?? kind, entity.id]), [kind]);
  const search = useSearch();
  const all = known?.entities ?? 0;
  const many = all >= GROUPS_FROM;
  // What was counted when the page was loaded may be less than what is there by now.
  const ofKind = id === undefined && prefix === '' && where === '' && all >= start + entities.length ? all : null;
  return (
    <>
      <div class="head">
        <Trail kind={kind} id={id} parent={parent} />
        <span class="quiet tabular" role="status">
          {isLoading && `Loading …${examined > 0 ? ` ${whole(examined)} examined` : ''}`}
          {!isLoading && !(failure && entities.length === 0) && counted(entities.length, total ?? ofKind, next, start)}
          {!isLoading && !failure && where !== '' && ` of ${whole(examined)} examined`}
        </span>
        <div class="head-tools">
          <div class="search map-search">
            <Icon name="search" />
            <input
              key={prefix === '' ? 'none' : 'some'}
              type="search"
              class="input"
              placeholder="Ids that begin with …"
              aria-label="Search for ids that begin with"
              defaultValue={prefix}
              onInput={(event) => search(event.currentTarget.value)}
            />
          </div>
          <select
            class="input map-only"
            aria-label="Which entities"
            value={only}
            onChange={(event) =>
              set({ only: event.currentTarget.value === 'all' ? undefined : event.currentTarget.value })
            }
          >
            {Object.entries(ONLY).map(([name, { label }]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
          <div class="row" role="group" aria-label="Shown as">
            <button type="button" class="button" aria-pressed={!isList} onClick={() => set({ as: undefined })}>
              Tiles
            </button>
            <button type="button" class="button" aria-pressed={isList} onClick={() => set({ as: 'list' })}>
              List
            </button>
          </div>
        </div>
      </div>
      {fields.length > 0 && <Fields fields={fields} where={where} wrong={whereFailure(failure)} />}
      {unknown > 0 && (
        <Note tone="warn">
          It is not known of {plural(unknown, 'entity', 'entities')}: quarantined, as Trouble shows, or with a list that
          is too long.
        </Note>
      )}
      {id === undefined && many && where === '' && <Groups kind={kind} prefix={prefix} />}
      {failure && !whereFailure(failure) && entities.length === 0 && <Absent failure={failure} what="the entities" />}
      {!failure && !isLoading && entities.length === 0 && <Nobody kind={kind} id={id} prefix={prefix} where={where} />}
      {entities.length > 0 && shown.length === 0 && (
        <Card>
          <Empty icon="good" title={`None of these is ${ONLY[only]?.label.toLowerCase() ?? 'so'}`} compact>
            <button type="button" class="button" onClick={() => set({ only: undefined })}>
              Show all
            </button>
          </Empty>
        </Card>
      )}
      {shown.length > 0 && isList && (
        <List
          kind={kind}
          fields={where === '' ? [] : fields}
          entities={shown}
          by={by}
          isFull={entities.length >= TILES_MAX}
        />
      )}
      {shown.length > 0 && !isList && (
        <div class="map-area">
          <Card class="tiles-card">
            <Tiles
              entities={shown}
              heat={heat}
              selected={selected}
              select={(entity, away) => {
                setSelected(entity && keyOf(entity));
                if (away) setSide(away);
              }}
              open={open}
              room={setRoom}
              label={id === undefined ? `All of ${kind}` : `Children of ${id}`}
            />
            <Legend />
          </Card>
          {chosen && <Chosen entity={chosen} kind={kind} side={side} close={() => setSelected(undefined)} />}
        </div>
      )}
      {(next !== null || start > 0) && !isLoading && (
        <div class="row pager">
          {start > 0 && (
            <button type="button" class="button" onClick={() => more(-1)}>
              <Icon name="left" /> From the first
            </button>
          )}
          {next !== null && (
            <button type="button" class="button" onClick={() => more(1)}>
              The next ones <Icon name="right" />
            </button>
          )}
        </div>
      )}
    </>
  );
}

function counted(here: number, total: number | null, next: string | null, start: number): string {
  if (start > 0) return `${whole(start + 1)} to ${whole(start + here)}${total === null ? '' : ` of ${whole(total)}`}`;
  if (next === null || here === total) return plural(here, 'entity', 'entities');
  return total === null ? `The first ${whole(here)}` : `The first ${whole(here)} of ${whole(total)}`;
}

/** The server's word on conditions that it cannot read. */
function whereFailure(failure: unknown): string | undefined {
  return failure instanceof Failure && failure.problem.field === 'where' ? failure.message : undefined;
}

/** Conditions on the fields that the kind indexes. */
function Fields({ fields, where, wrong }: { fields: string[]; where: string; wrong: string | undefined }) {
  const put = (typed: string) => set({ where: typed.trim() === '' ? undefined : typed.trim() });
  return (
    <form
      class="row where"
      onSubmit={(event) => {
        event.preventDefault();
        const typed = new FormData(event.currentTarget).get('where');
        // The same again asks again
        if (String(typed).trim() === where) epoch.value++;
        else put(String(typed));
      }}
    >
      <label class="row">
        <span>Where</span>
        <input
          key={where}
          name="where"
          class="input"
          spellcheck={false}
          autocomplete="off"
          placeholder={`${fields[0]} >= 10${fields[1] ? `, ${fields[1]} = …` : ''}`}
          aria-describedby="fields-said"
          aria-invalid={wrong !== undefined}
          defaultValue={where}
        />
      </label>
      <button type="submit" class="button">
        {where === '' ? 'Filter' : 'Filter again'}
      </button>
      {where !== '' && (
        <button type="button" class="button" onClick={() => put('')}>
          Show all
        </button>
      )}
      <span id="fields-said" class={`small break ${wrong ? 'wrong' : 'quiet'}`} role={wrong ? 'alert' : undefined}>
        {wrong ?? `Fields: ${fields.join(', ')}. Several conditions are separated by commas.`}
      </span>
    </form>
  );
}

/** As it is typed, but not more often than is seen. */
function useSearch(): (text: string) => void {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (text) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => set({ q: text }), 120);
  };
}

/** Loads page by page until the room is full; what is shown grows as it comes. */
function useEntities(asked: Asked, room: number) {
  const [found, setFound] = useState<Found & { start: number }>({
    entities: [],
    next: null,
    total: null,
    parent: null,
    examined: 0,
    unknown: 0,
    start: 0,
  });
  const [isLoading, setLoading] = useState(true);
  const [failure, setFailure] = useState<Failure>();
  const [from, setFrom] = useState<{ after: string | undefined; start: number }>({ after: undefined, start: 0 });
  const wanted = Math.min(TILES_MAX, Math.max(PAGE, room));
  const what = JSON.stringify(asked);

  // Another search begins at the first
  useEffect(() => setFrom({ after: undefined, start: 0 }), [what]);

  // `what` stands for `asked`
  useEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      setLoading(true);
      setFailure(undefined);
      let entities: MapEntity[] = [];
      let [examined, unknown] = [0, 0];
      let after = from.after;
      do {
        const one = await page(asked, after, Math.min(PAGE, wanted - entities.length), abort.signal);
        if (abort.signal.aborted) return;
        entities = [...entities, ...one.entities];
        examined += one.examined;
        unknown += one.unknown;
        after = one.next ?? undefined;
        setFound({ ...one, entities, examined, unknown, start: from.start });
      } while (after !== undefined && entities.length < wanted);
      setLoading(false);
    };
    load().catch((error: unknown) => {
      if (abort.signal.aborted) return;
      setFound((found) =>
        whereFailure(error) ? { ...found, entities: [], next: null, examined: 0, unknown: 0 } : found,
      );
      setFailure(error instanceof Failure ? error : new Failure(0, { detail: String(error) }));
      setLoading(false);
    });
    return () => abort.abort();
  }, [what, from, wanted, epoch.value]);

  useFresh(asked, found, from.after, isLoading, setFound);
  const more = (way: 1 | -1) =>
    setFrom(
      way === 1 && found.next !== null
        ? { after: found.next, start: found.start + found.entities.length }
        : { after: undefined, start: 0 },
    );
  return { ...found, isLoading, failure, more };
}

/** While anything is done the pages are asked for anew, one a second in turn: so the shades rise with the day. */
function useFresh(
  asked: Asked,
  found: Found & { start: number },
  first: string | undefined,
  isLoading: boolean,
  put: (found: Found & { start: number }) => void,
) {
  const latest = useRef({ asked, found, first, isLoading });
  latest.current = { asked, found, first, isLoading };
  const place = useRef(0);
  const second = tick.value;
  // Once a point
  useEffect(() => {
    const { asked, found, first, isLoading } = latest.current;
    const isActive = ['commands', 'messages'].some((name) => (series.last(name) ?? 0) > 0);
    // A filter examines all of them: it is asked again by whoever reads it
    if (isLoading || asked.where !== '' || document.visibilityState !== 'visible' || (!isActive && second % 10 !== 0))
      return;
    const abort = new AbortController();
    if (place.current > found.entities.length) place.current = 0;
    const start = place.current;
    const after = start === 0 ? first : cursor(asked, found.entities[start - 1]);
    page(asked, after, PAGE, abort.signal).then(
      (fresh) => {
        if (abort.signal.aborted || latest.current.found !== found) return;
        const entities = [...found.entities.slice(0, start), ...fresh.entities, ...found.entities.slice(start + PAGE)];
        const isLast = start + PAGE >= found.entities.length;
        place.current = isLast ? 0 : start + PAGE;
        put({
          ...found,
          entities: entities.slice(0, TILES_MAX),
          total: fresh.total,
          next: isLast ? fresh.next : found.next,
        });
      },
      () => undefined,
    );
    return () => abort.abort();
  }, [second]);
}

/** What to give as `after` to go on behind an entity. */
function cursor(asked: Asked, entity: MapEntity | undefined): string | undefined {
  if (!entity) return undefined;
  return asked.id === undefined ? entity.id : `${entity.kind ?? ''}/${entity.id}`;
}

/** Entities that the server says are hot, at most. */
const HOT_MAX = 1_000;

/**
 * What is hot now, asked once a point for all that is shown: read page by page, a page would light up when it is read. Where one page has all, those
 * whose events have grown since it was read are hot, too.
 */
function useHeat(kind: string, id: string | undefined, entities: MapEntity[]): Heat {
  const heat = useMemo(() => new Heat(), [kind, id]);
  const second = tick.value;
  // Once a point
  useEffect(() => {
    const isActive = ['commands', 'messages', 'queries'].some((name) => (series.last(name) ?? 0) > 0);
    if (document.visibilityState !== 'visible' || (!isActive && heat.isCold)) return;
    let isOver = false;
    calls.hot(id === undefined ? kind : undefined, HOT_MAX).then(
      (found) => {
        if (isOver) return;
        for (const one of found.hot) heat.touch(keyOf(one), one.per_second);
        heat.changed?.();
      },
      () => undefined,
    );
    return () => {
      isOver = true;
    };
  }, [second, heat]);
  const isOnePage = entities.length <= PAGE;
  useEffect(() => {
    if (!isOnePage) return;
    for (const entity of entities) if (entity.seq !== null) heat.see(keyOf(entity), entity.seq);
  }, [entities, heat]);
  return heat;
}

function Trail({
  kind,
  id,
  parent,
}: {
  kind: string;
  id: string | undefined;
  parent: { kind: string; id: string } | null;
}) {
  return (
    <nav class="trail" aria-label="Where on the map">
      <a href={link('map')}>Map</a>
      <Icon name="right" />
      {parent && (
        <>
          <a class="break" href={link('map', [parent.kind, parent.id])}>
            {parent.id}
          </a>
          <Icon name="right" />
        </>
      )}
      {id === undefined ? (
        <h1 class="break">{kind}</h1>
      ) : (
        <>
          <a href={link('map', [kind])}>{kind}</a>
          <Icon name="right" />
          <h1 class="break">{id}</h1>
        </>
      )}
    </nav>
  );
}

interface NobodyProps {
  kind: string;
  id: string | undefined;
  prefix: string;
  where: string;
}

function Nobody({ kind, id, prefix, where }: NobodyProps) {
  if (where !== '') {
    return (
      <Card>
        <Empty icon="search" title={`No ${kind} matches`}>
          <p class="break">{where}</p>
        </Empty>
      </Card>
    );
  }
  if (prefix !== '') {
    return (
      <Card>
        <Empty icon="search" title={`No id begins with ${prefix}`}>
          <p>Ids are compared letter by letter, capitals too.</p>
          <button type="button" class="button" onClick={() => set({ q: undefined })}>
            Show all
          </button>
        </Empty>
      </Card>
    );
  }
  if (id !== undefined) {
    return (
      <Card>
        <Empty icon="entity" title={`${id} has no children`}>
          <p>Entities that it creates appear here.</p>
          <a class="button" href={link('entity', [kind, id])}>
            Open {id}
          </a>
        </Empty>
      </Card>
    );
  }
  return (
    <Card>
      <Empty icon="map" title={`No ${kind} yet`}>
        <p>An entity begins with its first event. Send a command that creates one:</p>
        <a class="button primary" href={link('entity', [kind])}>
          Create a {kind}
        </a>
      </Empty>
    </Card>
  );
}

/** Letters that all ids have in common are gone past, so many at most. */
const COMMON_MAX = 32;

/** How ids go on where they first differ. */
async function branches(kind: string, prefix: string): ReturnType<typeof calls.groups> {
  let found = await calls.groups(kind, prefix);
  for (let letters = 0; letters < COMMON_MAX; letters++) {
    const [only] = found.groups;
    if (found.groups.length !== 1 || !only || only.is_leaf) break;
    found = await calls.groups(kind, only.prefix);
  }
  return found;
}

/** How ids go on: a million are narrowed by their beginnings. */
function Groups({ kind, prefix }: { kind: string; prefix: string }) {
  const { value } = useLoad(() => branches(kind, prefix), [kind, prefix]);
  if (!value || value.groups.length < 2) return null;
  return (
    <nav class="groups" aria-label="Beginnings of ids">
      {prefix !== '' && (
        <button type="button" class="button" onClick={() => set({ q: undefined })}>
          <Icon name="left" /> All
        </button>
      )}
      {value.groups.map((group) =>
        group.is_leaf ? (
          <a key={group.first} class="button" href={link('entity', [kind, group.first])}>
            {group.first}
          </a>
        ) : (
          <button
            key={group.prefix}
            type="button"
            class="button"
            onClick={() => set({ q: group.prefix })}
            aria-label={`Ids that begin with ${group.prefix}`}
          >
            {group.prefix}…
          </button>
        ),
      )}
      {value.more && <span class="quiet">and more: type on</span>}
    </nav>
  );
}

function Legend() {
  return (
    <ul class="map-legend small quiet">
      <li>
        <span class="sample shade" aria-hidden="true" /> fuller: more events
      </li>
      <li>
        <span class="sample glow" aria-hidden="true" /> glows: at work now
      </li>
      <li>
        <svg class="sample" viewBox="0 0 12 12" aria-hidden="true">
          <path class="cross" d="M2.500 2.500l7 7M9.500 2.500l-7 7M.5.5h11v11H.5z" />
        </svg>
        quarantined
      </li>
      <li>
        <svg class="sample" viewBox="0 0 12 12" aria-hidden="true">
          <path class="half" d="M0 12h12V0z" />
        </svg>
        stuck
      </li>
    </ul>
  );
}
