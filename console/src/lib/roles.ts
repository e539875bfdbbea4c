/** The roles of administration, as the server knows them: each may do all that the one before it may. */

export type Role = 'metrics' | 'viewer' | 'operator' | 'owner';

const ROLES: readonly string[] = ['metrics', 'viewer', 'operator', 'owner'] satisfies Role[];

/** Says that a role may do what needs another. One that this page does not know may do nothing. */
export function suffices(role: string, needed: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(needed);
}
