import { useState } from 'preact/hooks';
import type { Testing } from '../../api/picos';
import type { Json } from '../../lib/diff';
import { parse } from '../../lib/exact';

/** An event or a query of a ruleset, with what it is given. */
export interface Tried {
  isQuery: boolean;
  /** The first part of an event's type, which a query has not. */
  domain: string;
  name: string;
  given: { [name: string]: Json };
}

interface Choice {
  key: string;
  label: string;
  isQuery: boolean;
  domain: string;
  name: string;
  fields: string[];
}

function choices({ events, queries }: Testing): Choice[] {
  return [
    ...events.map(({ domain, name, attrs }) => ({
      key: `e ${domain}:${name}`,
      label: `event ${domain}:${name}`,
      isQuery: false,
      domain,
      name,
      fields: attrs,
    })),
    ...queries.map(({ name, args }) => ({
      key: `q ${name}`,
      label: `query ${name}`,
      isQuery: true,
      domain: '',
      name,
      fields: args,
    })),
  ];
}

/** A value as it is meant: JSON where it is some, else a text. */
function meant(text: string): Json {
  try {
    return parse(text);
  } catch {
    return text;
  }
}

/** A form made of a ruleset's own events and queries, with the attributes and arguments it asks for. */
export function TestingForm({
  id,
  testing,
  action,
  run,
}: {
  id: string;
  testing: Testing;
  action: string;
  run: (tried: Tried) => void;
}) {
  const all = choices(testing);
  const [chosen, setChosen] = useState('');
  const [values, setValues] = useState<Record<string, string>>({});
  const choice = all.find((one) => one.key === chosen) ?? all[0];
  if (!choice) return <p class="quiet">It selects no event by name and shares no query: there is no form for it.</p>;
  const submit = (event: Event) => {
    event.preventDefault();
    const { isQuery, domain, name, fields } = choice;
    const set = fields.filter((field) => (values[field] ?? '') !== '');
    run({ isQuery, domain, name, given: Object.fromEntries(set.map((field) => [field, meant(values[field] ?? '')])) });
  };
  return (
    <form class="stack" onSubmit={submit}>
      <div class="field">
        <label for={`${id}-what`}>Event or query</label>
        <select
          id={`${id}-what`}
          class="input"
          value={choice.key}
          onChange={(event) => setChosen(event.currentTarget.value)}
        >
          {all.map((one) => (
            <option key={one.key} value={one.key}>
              {one.label}
            </option>
          ))}
        </select>
      </div>
      {choice.fields.map((field) => (
        <div class="field" key={field}>
          <label for={`${id}-${field}`}>{field}</label>
          <input
            id={`${id}-${field}`}
            class="input"
            value={values[field] ?? ''}
            autocomplete="off"
            placeholder="a text, or JSON"
            onInput={(event) => setValues({ ...values, [field]: event.currentTarget.value })}
          />
        </div>
      ))}
      <div class="row">
        <button type="submit" class="button">
          {action}
        </button>
      </div>
    </form>
  );
}
