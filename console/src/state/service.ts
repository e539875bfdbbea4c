/** What the service is, loaded once a connection and anew when something has come. */

import { signal } from '@preact/signals';
import * as calls from '../api/calls';
import type { Kind, Overview } from '../api/types';

export const overview = signal<Overview | undefined>(undefined);
/** How many things `/admin/trouble` has. */
export const troubles = signal(0);

export async function load(): Promise<void> {
  const found = await calls.overview();
  overview.value = found;
}

export function kindNamed(name: string): Kind | undefined {
  return overview.value?.kinds.find((kind) => kind.name === name);
}
