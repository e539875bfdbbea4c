import { useEffect, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import type { MapEntity } from '../../api/types';
import { link } from '../../lib/route';
import { Card, Empty } from '../../parts/basic';
import { EntityLink } from '../../parts/link';
import { go } from '../../state/place';
import { recent } from '../../state/recent';
import { kindNamed, overview } from '../../state/service';
import { CommandForm } from './command';

const FOUND_MAX = 20;

/** Opens an entity by its kind and id, and makes new ones. */
export function Choose({ kind: wanted }: { kind: string | undefined }) {
  const kinds = overview.value?.kinds.filter((kind) => !kind.is_actor) ?? [];
  const [picked, setPicked] = useState<string>();
  const kind = wanted ?? picked ?? recent()[0]?.kind ?? kinds[0]?.name ?? '';
  const [id, setId] = useState('');
  const found = useFound(kind, id);
  const before = recent();
  const open = (event: Event) => {
    event.preventDefault();
    if (kind !== '' && id !== '') go('entity', [kind, id]);
  };
  return (
    <>
      <div class="head">
        <h1>{wanted === undefined ? 'Entity' : `Create a ${wanted}`}</h1>
      </div>
      <div class="columns">
        <Card title={wanted === undefined ? 'Open' : 'Its id'}>
          <form class="stack" onSubmit={open}>
            <div class="field">
              <label for="kind">Kind</label>
              <select
                id="kind"
                class="input"
                value={kind}
                onChange={(event) =>
                  wanted === undefined
                    ? setPicked(event.currentTarget.value)
                    : go('entity', [event.currentTarget.value])
                }
              >
                {kinds.map((kind) => (
                  <option key={kind.name} value={kind.name}>
                    {kind.name}
                  </option>
                ))}
              </select>
            </div>
            <div class="field">
              <label for="id">Id</label>
              <input
                id="id"
                type="search"
                class="input"
                value={id}
                autocomplete="off"
                onInput={(event) => setId(event.currentTarget.value)}
              />
            </div>
            {wanted === undefined && (
              <div class="row">
                <button type="submit" class="button primary" disabled={id === '' || kind === ''}>
                  Open
                </button>
                <a class="button" href={link('map', kind === '' ? [] : [kind])}>
                  Find it on the map
                </a>
              </div>
            )}
            {wanted === undefined && found.length > 0 && (
              <ul class="found" aria-label={`Ids that begin with ${id}`}>
                {found.map((one) => (
                  <li key={one.id}>
                    <EntityLink of={{ kind, id: one.id }} />
                  </li>
                ))}
              </ul>
            )}
          </form>
        </Card>
        {wanted === undefined ? (
          <Card title="Recently viewed">
            {before.length === 0 ? (
              <Empty icon="entity" title="Nothing viewed yet" compact>
                <p>Entities that you open in this tab are listed here. The map has all of them.</p>
              </Empty>
            ) : (
              <ul class="found">
                {before.map((one) => (
                  <li key={`${one.kind}/${one.id}`}>
                    <EntityLink of={one} />
                  </li>
                ))}
              </ul>
            )}
          </Card>
        ) : (
          <Card title="Create it">
            {id === '' ? (
              <p class="quiet">
                Give it an id first. An entity begins with the first event of a command that creates it.
              </p>
            ) : (
              <CommandForm kind={kindNamed(kind)} id={id} at={undefined} done={() => go('entity', [kind, id])} />
            )}
          </Card>
        )}
      </div>
    </>
  );
}

/** Ids that begin so, as they are typed. */
function useFound(kind: string, id: string): MapEntity[] {
  const [found, setFound] = useState<MapEntity[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      if (kind === '' || id === '') return setFound([]);
      calls.entities(kind, { prefix: id, limit: FOUND_MAX, signal: abort.signal }).then(
        (page) => setFound(page.entities),
        () => undefined,
      );
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [kind, id]);
  return found;
}
