import type { ComponentChildren } from 'preact';
import type { Action } from '../api/types';
import type { Role } from '../lib/roles';
import { lack } from '../state/role';
import { complain } from '../state/toast';
import { Icon } from './icon';

interface RoleButtonProps {
  needs: Role;
  /** Added to `button`. */
  kind?: string;
  type?: 'button' | 'submit';
  label?: string;
  isOff?: boolean;
  run?: () => void;
  children: ComponentChildren;
}

/** A button for what not every role may do. Where the role is too small it keeps its place and the focus, says why, and does nothing. */
export function RoleButton({ needs, kind = '', type = 'button', label, isOff, run, children }: RoleButtonProps) {
  const why = lack(needs);
  return (
    <button
      type={why === undefined ? type : 'button'}
      class={`button ${why === undefined ? kind : 'lacking'}`}
      aria-label={label}
      aria-disabled={why !== undefined}
      title={why}
      disabled={why === undefined && isOff}
      onClick={why === undefined ? run : () => complain(why)}
    >
      {why !== undefined && <Icon name="key" />}
      {children}
    </button>
  );
}

interface ActButtonProps {
  action: Action;
  /** Added to `button`; without it an action that asks first is marked as one that does harm. */
  kind?: string;
  label?: string;
  run: () => void;
  children?: ComponentChildren;
}

/** A button for an action that the server offers. */
export function ActButton({ action, kind, label, run, children }: ActButtonProps) {
  return (
    <RoleButton
      needs={action.needs_role}
      kind={kind ?? (action.confirm ? 'danger' : '')}
      {...(label !== undefined && { label })}
      run={run}
    >
      {children ?? action.label}
    </RoleButton>
  );
}
