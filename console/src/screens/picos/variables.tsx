import * as picos from '../../api/picos';
import { whole } from '../../lib/format';
import { link } from '../../lib/route';
import { Absent } from '../../parts/absent';
import { Empty } from '../../parts/basic';
import { JsonTree } from '../../parts/json';
import { useLoad } from '../../parts/load';

const RELOAD_MS = 5_000;

/** A pico's entity variables, by ruleset; their past is the entity's. */
export function Variables({ eci }: { eci: string }) {
  const { value, failure } = useLoad((signal) => picos.variables(eci, signal), [eci], RELOAD_MS);
  if (!value) return <Absent failure={failure} what="its variables" />;
  const rids = [...new Set(value.variables.map((variable) => variable.rid))];
  return (
    <div class="stack">
      <p class="quiet">
        As of event {whole(value.seq)}. <a href={link('entity', [picos.KIND, picos.idOf(eci)])}>Go back in time</a> to
        see what they were.
      </p>
      {rids.length === 0 && (
        <Empty icon="picos" title="No variables" compact>
          <p>What its rules keep in ent: appears here, by ruleset.</p>
        </Empty>
      )}
      {rids.map((rid) => (
        <section key={rid} aria-label={`Variables of ${rid}`}>
          <h3 class="break">{rid}</h3>
          {value.variables
            .filter((variable) => variable.rid === rid)
            .map(({ name, value }) => (
              <div class="variable" key={name}>
                <p class="mono break">ent:{name}</p>
                <JsonTree value={value} label={`ent:${name} of ${rid}`} />
              </div>
            ))}
        </section>
      ))}
    </div>
  );
}
