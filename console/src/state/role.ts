/** What the person before the page may do. */

import { type Role, suffices } from '../lib/roles';
import { overview } from './service';

/** Why they may not do what needs this role; `undefined` where they may, or while that is not known. */
export function lack(needed: Role): string | undefined {
  const { by, role } = overview.value?.console ?? {};
  if (role === undefined || suffices(role, needed)) return undefined;
  return `${by} has the role ${role}, and this needs ${needed}.`;
}
