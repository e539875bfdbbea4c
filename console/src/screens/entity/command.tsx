import { useEffect, useMemo, useState } from 'preact/hooks';
import * as calls from '../../api/calls';
import { Failure } from '../../api/client';
import type { Address, Kind, WhatIf } from '../../api/types';
import type { Json } from '../../lib/diff';
import { isMap } from '../../lib/diff';
import { sentence, whole } from '../../lib/format';
import { type Field, fields, read, readJson, type Schema, type Typed } from '../../lib/schema';
import { RoleButton } from '../../parts/act_button';
import { Badge, Empty, Note } from '../../parts/basic';
import { Icon } from '../../parts/icon';
import { JsonTree } from '../../parts/json';
import { lack } from '../../state/role';
import { overview } from '../../state/service';
import { WouldChange } from './would_change';

type Outcome = { sent: { reply: Json; seq: number } } | { tried: WhatIf } | { failed: Failure };

interface Props {
  kind: Kind | undefined;
  id: string;
  /** As of this event nothing can be sent, only tried. */
  at: number | undefined;
  done: () => void;
}

/** A command as a form of its schema: sent, or tried without anything being recorded. */
export function CommandForm({ kind, id, at, done }: Props) {
  const commands = kind?.commands ?? [];
  const [name, setName] = useState(commands.find((command) => command.is_public)?.name ?? commands[0]?.name ?? '');
  const [typed, setTyped] = useState<Typed>({});
  const [wrong, setWrong] = useState<{ field: string; problem: string }>();
  const [outcome, setOutcome] = useState<Outcome>();
  const [isBusy, setBusy] = useState(false);
  const command = commands.find((command) => command.name === name) ?? commands[0];
  const form = useMemo(() => command && fields(rooted(command.schema, overview.value?.definitions ?? {})), [command]);
  useEffect(() => setOutcome(undefined), [at, id]);
  if (!kind || !command) {
    return (
      <Empty icon="command" title="No commands" compact>
        <p>The service names no command of this kind, or was built without schemas.</p>
      </Empty>
    );
  }
  const run = async (way: 'send' | 'try') => {
    const body = form ? read(form, typed) : wrapped(readJson(typed[''] ?? '', 'The body'));
    if ('problem' in body) {
      setWrong(body);
      return;
    }
    setWrong(undefined);
    setBusy(true);
    try {
      if (way === 'send') {
        setOutcome({
          sent: await calls.command(kind.name, id, {
            name: command.name,
            body: body.body,
            internal: !command.is_public,
          }),
        });
        done();
      } else {
        setOutcome({ tried: await calls.whatIf(kind.name, id, at, { name: command.name, body: body.body }) });
      }
    } catch (error) {
      setOutcome({ failed: error instanceof Failure ? error : new Failure(0, { detail: String(error) }) });
    }
    setBusy(false);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    void run(at === undefined && lack('operator') === undefined ? 'send' : 'try');
  };
  return (
    <form class="stack" onSubmit={submit} noValidate>
      <div class="field">
        <label for="command">Command</label>
        <select
          id="command"
          class="input"
          value={command.name}
          onChange={(event) => {
            setName(event.currentTarget.value);
            setTyped({});
            setWrong(undefined);
            setOutcome(undefined);
          }}
        >
          {commands.map((command) => (
            <option key={command.name} value={command.name}>
              {command.is_public ? command.name : `${command.name} (not public)`}
            </option>
          ))}
        </select>
        {command.description && <p class="note">{command.description}</p>}
      </div>
      {form?.map((field) => (
        <FieldInput
          key={`${command.name}/${field.name}`}
          field={field}
          value={typed[field.name] ?? ''}
          put={(value) => setTyped({ ...typed, [field.name]: value })}
          wrong={wrong?.field === field.name ? wrong.problem : undefined}
        />
      ))}
      {form?.length === 0 && <p class="quiet">It has no content.</p>}
      {!form && <WholeBody value={typed[''] ?? ''} put={(value) => setTyped({ '': value })} wrong={wrong?.problem} />}
      {!command.is_public && at === undefined && (
        <Note tone="warn">
          Clients cannot send this command: the kind does not call it public. It is sent on your authority.
        </Note>
      )}
      <div class="row">
        {at === undefined && (
          <RoleButton needs="operator" kind="primary" type="submit" isOff={isBusy}>
            Send
          </RoleButton>
        )}
        <button
          type="button"
          class={`button ${at === undefined ? '' : 'primary'}`}
          disabled={isBusy}
          onClick={() => void run('try')}
        >
          <Icon name="help" /> What if
        </button>
        <span class="small quiet">
          {at === undefined
            ? 'What if runs it without recording anything.'
            : 'Runs it against the state as of then. Nothing is recorded.'}
        </span>
      </div>
      <div aria-live="polite">{outcome && <Came of={{ kind: kind.name, id }} outcome={outcome} />}</div>
    </form>
  );
}

/** A command's schema with the definitions its references lead to. */
function rooted(schema: Schema, definitions: { [name: string]: Json }): Schema {
  return isMap(schema) ? { ...schema, definitions } : schema;
}

function wrapped(value: { value: Json } | { problem: string }) {
  return 'value' in value ? { body: value.value } : { field: '', problem: value.problem };
}

interface InputProps {
  field: Field;
  value: string;
  put: (value: string) => void;
  wrong: string | undefined;
}

function FieldInput({ field, value, put, wrong }: InputProps) {
  const id = `field-${field.name}`;
  const notes =
    [field.description !== '' && `${id}-note`, wrong && `${id}-wrong`].filter(Boolean).join(' ') || undefined;
  const common = { id, 'aria-describedby': notes, 'aria-invalid': wrong !== undefined };
  if (field.type === 'boolean') {
    return (
      <label class="check">
        <input
          {...common}
          type="checkbox"
          checked={value === 'true'}
          onChange={(event) => put(String(event.currentTarget.checked))}
        />
        {field.name}
        {field.description && (
          <span class="quiet small" id={`${id}-note`}>
            {field.description}
          </span>
        )}
      </label>
    );
  }
  return (
    <div class="field">
      <label for={id}>
        {field.name}
        {!field.required && <span class="quiet"> (may be left out)</span>}
      </label>
      {field.type === 'choice' ? (
        <select {...common} class="input" value={value} onChange={(event) => put(event.currentTarget.value)}>
          <option value="">{field.required ? 'Choose …' : 'none'}</option>
          {field.choices.map((choice) => (
            <option key={choice} value={choice}>
              {choice}
            </option>
          ))}
        </select>
      ) : field.type === 'json' ? (
        <textarea
          {...common}
          class="input"
          value={value}
          placeholder={field.hint}
          spellcheck={false}
          onInput={(event) => put(event.currentTarget.value)}
        />
      ) : (
        <input
          {...common}
          class="input"
          value={value}
          placeholder={field.hint}
          autocomplete="off"
          inputMode={field.type === 'integer' ? 'numeric' : field.type === 'number' ? 'decimal' : 'text'}
          onInput={(event) => put(event.currentTarget.value)}
        />
      )}
      {field.description && (
        <p class="note" id={`${id}-note`}>
          {field.description}
        </p>
      )}
      {wrong && (
        <p class="wrong" id={`${id}-wrong`}>
          {wrong}
        </p>
      )}
    </div>
  );
}

function WholeBody({ value, put, wrong }: { value: string; put: (value: string) => void; wrong: string | undefined }) {
  return (
    <div class="field">
      <label for="field-body">Body, as JSON</label>
      <textarea
        id="field-body"
        class="input"
        value={value}
        placeholder="{ … }"
        spellcheck={false}
        aria-invalid={wrong !== undefined}
        aria-describedby="field-body-wrong"
        onInput={(event) => put(event.currentTarget.value)}
      />
      <p class="wrong" id="field-body-wrong">
        {wrong}
      </p>
    </div>
  );
}

function Came({ of, outcome }: { of: Address; outcome: Outcome }) {
  if ('failed' in outcome) {
    const { status, problem, message } = outcome.failed;
    return (
      <div class="stack">
        <Note tone={status === 409 ? 'warn' : 'bad'}>
          <b>{status === 409 ? 'Refused' : 'It was not done'}.</b> {sentence(message)}
        </Note>
        {problem.rejection !== undefined && <JsonTree value={problem.rejection as Json} label="What the entity said" />}
      </div>
    );
  }
  if ('sent' in outcome) {
    return (
      <div class="stack">
        <Note tone="good">
          <b>Done.</b> Its last event is {whole(outcome.sent.seq)}.
        </Note>
        <JsonTree value={outcome.sent.reply} label="Reply" />
      </div>
    );
  }
  return <Tried of={of} tried={outcome.tried} />;
}

function Tried({ of, tried }: { of: Address; tried: WhatIf }) {
  const tones = { done: 'good', refused: 'warn', failed: 'bad' } as const;
  const says = { done: 'It would be done.', refused: 'It would be refused.', failed: 'It would fail.' };
  return (
    <section class="stack" aria-label="What would happen">
      <Note tone={tones[tried.outcome]}>
        <b>{says[tried.outcome]}</b> {sentence(tried.refusal ?? '')}{' '}
        <span class="quiet">As of event {whole(tried.at_seq)}. Nothing was recorded.</span>
      </Note>
      {tried.outcome === 'done' && (
        <>
          <h3>What would change</h3>
          <WouldChange of={of} tried={tried} />
          <h3>Effects</h3>
          {tried.effects.length === 0 && <p class="quiet">None: nothing would change.</p>}
          <ul class="effects">
            {tried.effects.map((effect, place) => (
              <li key={`${place} ${effect.what}`}>
                <Badge tone="accent">{effect.what}</Badge>
                <JsonTree value={effect.content} label={effect.what} />
              </li>
            ))}
          </ul>
          <h3>Reply</h3>
          <JsonTree value={tried.reply} label="Reply" />
        </>
      )}
    </section>
  );
}
