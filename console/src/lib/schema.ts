/** JSON schemas of commands as forms: which fields there are, and what the texts typed into them come to. */

import { isMap, type Json } from './diff';
import { Digits, exact, parse } from './exact';

export type Schema = Json;

export type Field =
  | { type: 'text' | 'integer' | 'number' | 'json'; name: string; description: string; required: boolean; hint: string }
  | { type: 'boolean'; name: string; description: string; required: boolean }
  | { type: 'choice'; name: string; description: string; required: boolean; choices: string[] };

/** What was typed, by the field's name. */
export type Typed = Record<string, string>;

export type Read = { body: Json } | { field: string; problem: string };

const DEPTH_MAX = 8;

/** The schema a `$ref` into the same document leads to, or itself. */
export function resolve(schema: Schema | undefined, root: Schema): Schema {
  let found: Schema | undefined = schema;
  for (let depth = 0; depth < DEPTH_MAX && isMap(found) && typeof found.$ref === 'string'; depth++) {
    found = at(root, found.$ref);
  }
  return found ?? {};
}

function at(root: Schema, reference: string): Schema | undefined {
  if (!reference.startsWith('#/')) return undefined;
  let found: Json | undefined = root;
  for (const part of reference.slice(2).split('/')) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    found = isMap(found) && Object.hasOwn(found, name) ? found[name] : undefined;
  }
  return found;
}

/** The fields of a body, or undefined if it is no object with named members: then it is typed as JSON. */
export function fields(schema: Schema, root: Schema = schema): Field[] | undefined {
  const body = resolve(schema, root);
  if (!isMap(body)) return undefined;
  if (!isMap(body.properties)) {
    return Object.keys(body).every((key) =>
      ['type', 'title', 'description', '$schema', '$defs', 'additionalProperties'].includes(key),
    ) && body.type === 'object'
      ? []
      : undefined;
  }
  const required = Array.isArray(body.required) ? body.required : [];
  return Object.entries(body.properties).map(([name, member]) => field(name, member, root, required.includes(name)));
}

function field(name: string, schema: Schema, root: Schema, required: boolean): Field {
  const outer = isMap(schema) ? schema : {};
  const found = resolve(withoutNull(schema), root);
  const inner: { [name: string]: Json } = isMap(found) ? found : {};
  const description = text(outer.description) || text(inner.description);
  const choices = choicesOf(inner);
  if (choices) return { type: 'choice', name, description, required, choices };
  const types = (Array.isArray(inner.type) ? inner.type : [inner.type]).filter((type) => type !== 'null');
  const type = types.length === 1 ? types[0] : undefined;
  if (type === 'boolean') return { type, name, description, required };
  if (type === 'string') return { type: 'text', name, description, required, hint: hintOfText(inner) };
  if (type === 'integer' || type === 'number') return { type, name, description, required, hint: hintOfNumber(inner) };
  return { type: 'json', name, description, required, hint: type === 'array' ? '[…]' : '{…}' };
}

/** `anyOf: [X, null]` is an X that may be absent. */
function withoutNull(schema: Schema): Schema {
  const variants = isMap(schema) ? (schema.anyOf ?? schema.oneOf) : undefined;
  if (!Array.isArray(variants)) return schema;
  const left = variants.filter((variant) => !(isMap(variant) && variant.type === 'null'));
  return left.length === 1 && left[0] !== undefined ? left[0] : schema;
}

function choicesOf(schema: { [name: string]: Json }): string[] | undefined {
  if (Array.isArray(schema.enum)) {
    const texts = schema.enum.filter((value) => typeof value === 'string');
    return texts.length === schema.enum.filter((value) => value !== null).length ? texts : undefined;
  }
  if (Array.isArray(schema.oneOf)) {
    const texts = schema.oneOf
      .map((variant) => (isMap(variant) ? variant.const : undefined))
      .filter((value) => typeof value === 'string');
    return texts.length === schema.oneOf.length ? texts : undefined;
  }
  return undefined;
}

function hintOfText(schema: { [name: string]: Json }): string {
  const example = Array.isArray(schema.examples) ? schema.examples[0] : undefined;
  return text(example) || text(schema.format);
}

function hintOfNumber(schema: { [name: string]: Json }): string {
  const { minimum, maximum } = schema;
  if (isNumber(minimum) && isNumber(maximum)) return `${minimum} to ${maximum}`;
  return isNumber(minimum) ? `from ${minimum}` : '';
}

function isNumber(value: Json | undefined): value is number | Digits {
  return typeof value === 'number' || value instanceof Digits;
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

/** A body that fills what is required, for an example. */
export function sample(form: Field[]): { [name: string]: Json } {
  const required = form.filter((field) => field.required);
  return Object.fromEntries(required.map((field): [string, Json] => [field.name, sampleOf(field)]));
}

function sampleOf(field: Field): Json {
  switch (field.type) {
    case 'boolean':
      return false;
    case 'choice':
      return field.choices[0] ?? '';
    case 'integer':
    case 'number':
      return Math.max(1, Number.parseInt(field.hint.replace('from ', ''), 10) || 1);
    case 'json':
      return field.hint === '[…]' ? [] : {};
    default:
      return field.hint || field.name;
  }
}

/** The body that was typed, or which field cannot be read and why. An empty field that is not required is left out. */
export function read(form: Field[], typed: Typed): Read {
  const body: { [name: string]: Json } = {};
  for (const field of form) {
    const given = typed[field.name] ?? '';
    if (given === '') {
      if (field.type === 'boolean' && field.required) body[field.name] = false;
      else if (field.type === 'text' && field.required) body[field.name] = '';
      else if (field.required) return { field: field.name, problem: `${field.name} is needed.` };
      continue;
    }
    const value = readOne(field, given);
    if ('problem' in value) return { field: field.name, problem: value.problem };
    body[field.name] = value.value;
  }
  return { body };
}

function readOne(field: Field, given: string): { value: Json } | { problem: string } {
  switch (field.type) {
    case 'boolean':
      return { value: given === 'true' };
    case 'integer':
    case 'number': {
      const value = exact(given.trim());
      if (value === undefined) return { problem: `${field.name} is ${JSON.stringify(given)}; expected a number.` };
      if (field.type === 'integer' && !/^-?\d+$/.test(given.trim()))
        return { problem: `${field.name} is ${given}; expected a whole number.` };
      return { value };
    }
    case 'json':
      return readJson(given, field.name);
    default:
      return { value: given };
  }
}

/** A text as JSON, or why it is none. */
export function readJson(given: string, name: string): { value: Json } | { problem: string } {
  try {
    return { value: parse(given) };
  } catch (error) {
    return { problem: `${name} is not JSON: ${error instanceof Error ? error.message : String(error)}.` };
  }
}
