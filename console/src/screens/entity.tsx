import { route } from '../state/place';
import { Choose } from './entity/choose';
import { One } from './entity/one';

/** `#/entity/KIND/ID` is an entity, `#/entity/KIND` a new one of the kind, `#/entity` the choice. */
export function EntityScreen() {
  const [kind, id] = route.value.path;
  if (kind !== undefined && id !== undefined) return <One key={`${kind}/${id}`} kind={kind} id={id} />;
  return <Choose kind={kind} />;
}
