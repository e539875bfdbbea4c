import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as calls from '../api/calls';
import type { Address } from '../api/types';
import { holds, idPrefix } from '../lib/find';
import { link, type Screen } from '../lib/route';
import { route } from '../state/place';
import { recent } from '../state/recent';
import { lack } from '../state/role';
import { overview } from '../state/service';
import { next } from '../state/theme';
import { Icon } from './icon';

/** Ids of one kind, and kinds that are asked for them. */
const IDS_MAX = 6;
const KINDS_ASKED_MAX = 8;
/** Things of one group. */
const GROUP_MAX = 8;
/** Asked so long after the last key. */
const PAUSE_MS = 120;
/** For what stands in a field all entities of a kind are examined: later, for no shorter text, and not where there are more. */
const FIELD_PAUSE_MS = 400;
const FIELD_CHARS_MIN = 3;
const FIELD_ENTITIES_MAX = 100_000;
/** The group of entities with what is typed in one of the fields that their kind names. */
const WITH = 'Entities with this in a field';

interface Thing {
  key: string;
  icon: string;
  label: string;
  /** Stands before the label in grey, and is searched. */
  of?: string;
  keys?: string;
  /** An address, or what is done. */
  to: string | (() => void);
}

interface Group {
  name: string;
  things: Thing[];
}

interface Props {
  screens: { screen: Screen; name: string; key: string }[];
  help: () => void;
  close: () => void;
}

const entity = ({ kind, id }: Address, group: string): Thing => ({
  key: `${group} ${kind}/${id}`,
  icon: group === 'Recently viewed' ? 'clock' : 'entity',
  of: `${kind}/`,
  label: id,
  to: link('entity', [kind, id]),
});

/** Finds screens, kinds, entities and actions by what is typed, from anywhere on the page. */
export function Palette({ screens, help, close }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState('');
  const [chosen, setChosen] = useState<string>();
  const found = useIds(query);
  const holders = useHolders(query);
  const groups = useMemo(
    () => things(query, screens, { ids: found.ids, holders: holders.ids }, help),
    [query, found.ids, holders.ids],
  );
  const all = groups.flatMap((group) => group.things);
  const current = all.find((thing) => thing.key === chosen) ?? all[0];
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      element.current?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  useEffect(() => document.getElementById(optionId(current))?.scrollIntoView({ block: 'nearest' }), [current?.key]);
  const run = (thing: Thing | undefined) => {
    if (!thing) return;
    close();
    if (typeof thing.to === 'string') location.hash = thing.to;
    // The dialog gives the focus back first.
    else setTimeout(thing.to);
  };
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const at = all.findIndex((thing) => thing.key === current?.key);
      setChosen(all[(at + step + all.length) % Math.max(1, all.length)]?.key);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      run(current);
    }
  };
  return (
    <dialog
      ref={element}
      class="palette"
      aria-label="Find anything"
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onKeyDown={pressed}
      onClick={(event) => event.target === element.current && close()}
    >
      <div class="palette-head">
        <Icon name="search" />
        <input
          class="palette-input"
          role="combobox"
          aria-label="Find anything"
          aria-expanded="true"
          aria-controls="palette-found"
          aria-activedescendant={current ? optionId(current) : undefined}
          aria-autocomplete="list"
          placeholder="An id, a kind, a screen, an action"
          autocomplete="off"
          spellcheck={false}
          value={query}
          onInput={(event) => {
            setQuery(event.currentTarget.value);
            setChosen(undefined);
          }}
        />
        <kbd>Esc</kbd>
      </div>
      <div id="palette-found" class="palette-found" role="listbox" aria-label="Found">
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={group.name}>
            <p class="palette-group" aria-hidden="true">
              {group.name}
            </p>
            {group.things.map((thing) => (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the field above has the keys
              <div
                key={thing.key}
                id={optionId(thing)}
                class="palette-option"
                role="option"
                tabIndex={-1}
                aria-selected={thing === current}
                onClick={() => run(thing)}
              >
                <Icon name={thing.icon} />
                <span class="break">
                  {thing.of && <span class="quiet">{thing.of}</span>}
                  {thing.label}
                </span>
                {thing.keys && <kbd>{thing.keys}</kbd>}
              </div>
            ))}
          </div>
        ))}
      </div>
      <p class="palette-foot small quiet" role="status">
        {found.isAsked || holders.isAsked
          ? `Looking for ${found.isAsked ? 'ids' : 'fields'} …`
          : all.length === 0
            ? `Nothing found for “${query}”. Entities are found by how their id begins${byField()}.`
            : `Entities are found by how their id begins${byField()}; all else by any part.`}
        {holders.isPart &&
          ' The fields of some entities are not known or were not looked at: filter the map of their kind.'}
      </p>
    </dialog>
  );
}

const optionId = (thing: Thing | undefined) => `found ${thing?.key ?? ''}`.replaceAll(/\s/g, '·');

const filtered = () =>
  (overview.value?.kinds ?? []).filter((kind) => !kind.is_hidden && (kind.fields ?? []).length > 0);

const byField = () => (filtered().length > 0 ? ', or by all of a text in a field' : '');

/** All that the query finds, in groups; without a query what is used most. */
function things(
  query: string,
  screens: Props['screens'],
  { ids, holders }: { ids: Address[]; holders: Address[] },
  help: () => void,
): Group[] {
  const typed = query.trim();
  const of = (things: Thing[]) =>
    things.filter((thing) => holds(`${thing.of ?? ''}${thing.label}`, typed)).slice(0, GROUP_MAX);
  const kinds = overview.value?.kinds.filter((kind) => !kind.is_hidden) ?? [];
  const before = recent();
  const isNew = ({ kind, id }: Address) => !before.some((one) => one.kind === kind && one.id === id);
  const groups: Group[] = [
    { name: 'Recently viewed', things: of(before.map((one) => entity(one, 'Recently viewed'))) },
    { name: 'Entities', things: ids.filter((one) => typed === '' || isNew(one)).map((one) => entity(one, 'Entities')) },
    { name: WITH, things: holders.map((one) => entity(one, WITH)) },
    {
      name: 'Screens',
      things: of(
        screens.map(({ screen, name, key }) => ({
          key: `screen ${screen}`,
          icon: screen,
          label: name,
          keys: `g ${key}`,
          to: link(screen),
        })),
      ),
    },
    {
      name: 'Kinds',
      things: of(
        kinds.map(({ name }) => ({
          key: `kind ${name}`,
          icon: 'map',
          of: 'map of ',
          label: name,
          to: link('map', [name]),
        })),
      ),
    },
    { name: 'Actions', things: of([...here(), ...creations(), ...general(help)]) },
  ];
  // Kinds and creations of an empty query would push the actions out of sight.
  return groups.filter((group) => group.things.length > 0);
}

/** Actions on the entity that is shown. */
function here(): Thing[] {
  const { screen, path, query } = route.value;
  const [kind, id] = path;
  if (screen !== 'entity' || kind === undefined || id === undefined) return [];
  const at = query.get('at');
  const to = (query: Record<string, string | undefined>) => link('entity', [kind, id], { at, ...query });
  return [
    { key: 'command', icon: 'command', label: `Send a command to ${id}, or what if`, to: to({ tab: 'command' }) },
    { key: 'around', icon: 'message', label: `Family, messages and timers of ${id}`, to: to({ tab: 'around' }) },
    { key: 'map here', icon: 'map', label: `Children of ${id}, on the map`, to: link('map', [kind, id]) },
  ];
}

function creations(): Thing[] {
  if (lack('operator') !== undefined) return [];
  const kinds = overview.value?.kinds.filter((kind) => !kind.is_actor && !kind.is_hidden) ?? [];
  return kinds.map(({ name }) => ({
    key: `create ${name}`,
    icon: 'entity',
    label: `Create a ${name}`,
    to: link('entity', [name]),
  }));
}

const general = (help: () => void): Thing[] => [
  { key: 'theme', icon: 'moon', label: 'Change the theme: light, dark, as the system is', keys: 'd', to: next },
  { key: 'keys', icon: 'help', label: 'Keys and help', keys: '?', to: help },
];

/** Entities whose ids begin as is typed, of the kind that is named or of every kind. */
function useIds(query: string): { ids: Address[]; isAsked: boolean } {
  const [ids, setIds] = useState<Address[]>([]);
  const [isAsked, setAsked] = useState(false);
  useEffect(() => {
    const shown = route.value.path[0];
    const names = (overview.value?.kinds ?? []).filter((kind) => !kind.is_actor).map((kind) => kind.name);
    // The kind that is shown comes first.
    const ordered = [...names.filter((name) => name === shown), ...names.filter((name) => name !== shown)];
    const { kinds, prefix } = idPrefix(query, ordered);
    if (prefix === '') {
      setIds([]);
      setAsked(false);
      return;
    }
    const abort = new AbortController();
    setAsked(true);
    const timer = setTimeout(async () => {
      const ask = async (kind: string): Promise<Address[]> => {
        const page = await calls.entities(kind, { prefix, limit: IDS_MAX, signal: abort.signal });
        return page.entities.map(({ id }) => ({ kind, id }));
      };
      const found = await Promise.all(kinds.slice(0, KINDS_ASKED_MAX).map((kind) => ask(kind).catch(() => [])));
      if (abort.signal.aborted) return;
      setIds(found.flat());
      setAsked(false);
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [query]);
  return { ids, isAsked };
}

const untold = () => ({ ids: [], isPart: true });

/** Entities of which a field is what is typed, of the kind that is named or of every kind that names fields. */
function useHolders(query: string): { ids: Address[]; isAsked: boolean; isPart: boolean } {
  const [found, setFound] = useState<{ ids: Address[]; isPart: boolean }>({ ids: [], isPart: false });
  const [isAsked, setAsked] = useState(false);
  useEffect(() => {
    const { kinds, prefix } = idPrefix(
      query,
      filtered().map((kind) => kind.name),
    );
    setFound({ ids: [], isPart: false });
    setAsked(false);
    if (prefix.length < FIELD_CHARS_MIN) return;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      setAsked(true);
      const ask = async (kind: string) => {
        const known = overview.value?.kinds.find(({ name }) => name === kind);
        if ((known?.entities ?? 0) > FIELD_ENTITIES_MAX) return untold();
        const page = await calls.entities(kind, { holds: prefix, limit: IDS_MAX, signal: abort.signal });
        const isPart = (page.unknown ?? 0) > 0 || (page.next !== null && page.entities.length < IDS_MAX);
        return { ids: page.entities.map(({ id }) => ({ kind, id })), isPart };
      };
      const pages = await Promise.all(kinds.slice(0, KINDS_ASKED_MAX).map((kind) => ask(kind).catch(untold)));
      if (abort.signal.aborted) return;
      setFound({ ids: pages.flatMap(({ ids }) => ids), isPart: pages.some(({ isPart }) => isPart) });
      setAsked(false);
    }, FIELD_PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [query]);
  return { ...found, isAsked };
}
