/** Requests as a shell takes them. */

import type { Json } from './diff';
import { write } from './exact';
import { fields, sample } from './schema';

/** A command to an entity, with a body that fills what is required. `host` is where the page is: a service may listen at every address. */
export function commandLine(url: string, host: string, path: string[], schema: Json, root: Json): string {
  const body = write(sample(fields(schema, root) ?? []));
  const at = url.replace(/\/\/(0\.0\.0\.0|\[::\])(?=[:/]|$)/, `//${host}`);
  const address = `${at}/api/${path.map(encodeURIComponent).join('/')}`;
  return `curl -X POST ${quoted(address)} -H 'content-type: application/json' -d ${quoted(body)}`;
}

/** A text as one word. */
function quoted(text: string): string {
  return /^[\w:/.%~-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
