import type { SelectedRule } from '../../api/picos';
import { whole } from '../../lib/format';
import { Badge } from '../../parts/basic';

const times = (count: number) => (count === 1 ? '' : ` ${whole(count)} times`);

/** The rules that an event selected, in order, and whether each fired. */
export function Rules({ rules, failed }: { rules: SelectedRule[]; failed: boolean }) {
  if (rules.length === 0) return <p class="quiet">It selected no rule.</p>;
  return (
    <ul class="lines" aria-label="Rules">
      {rules.map(({ rid, rule, fired = 0, not_fired = 0 }, at) => (
        <li key={at} class="row">
          <span class="break">
            <span class="quiet">{rid} </span>
            {rule}
          </span>
          {fired > 0 && (
            <Badge tone="good" icon="good">
              fired{times(fired)}
            </Badge>
          )}
          {not_fired > 0 && <Badge icon="pause">not fired{times(not_fired)}</Badge>}
          {fired + not_fired === 0 &&
            (failed && at === rules.length - 1 ? (
              <Badge tone="bad" icon="stopped">
                failed in it
              </Badge>
            ) : (
              <Badge>selected</Badge>
            ))}
        </li>
      ))}
    </ul>
  );
}
