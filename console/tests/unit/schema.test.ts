import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Json } from '../../src/lib/diff';
import { fields, read } from '../../src/lib/schema';

const SCHEMA: Json = {
  type: 'object',
  required: ['student', 'seats', 'urgent'],
  properties: {
    student: { type: 'string', description: 'Who', examples: ['10482213'] },
    seats: { type: 'integer', minimum: 1, maximum: 8 },
    urgent: { type: 'boolean' },
    level: { anyOf: [{ $ref: '#/$defs/Level' }, { type: 'null' }] },
    note: { type: ['string', 'null'] },
    tags: { type: 'array', items: { type: 'string' } },
  },
  $defs: { Level: { type: 'string', enum: ['under', 'over'] } },
};

const form = () => {
  const found = fields(SCHEMA);
  assert.ok(found);
  return found;
};

test('each member of a body is a field of its type', () => {
  assert.deepEqual(
    form().map((field) => [field.name, field.type, field.required]),
    [
      ['student', 'text', true],
      ['seats', 'integer', true],
      ['urgent', 'boolean', true],
      ['level', 'choice', false],
      ['note', 'text', false],
      ['tags', 'json', false],
    ],
  );
});

test('what was typed becomes the body, and what was left empty is left out', () => {
  const typed = { student: 'ann', seats: '2', tags: '["a"]', note: '', level: 'over' };
  assert.deepEqual(read(form(), typed), {
    body: { student: 'ann', seats: 2, urgent: false, level: 'over', tags: ['a'] },
  });
});

test('a field that cannot be read is named with the reason', () => {
  assert.deepEqual(read(form(), { student: 'ann', seats: 'two' }), {
    field: 'seats',
    problem: 'seats is "two"; expected a number.',
  });
  assert.deepEqual(read(form(), { student: 'ann', seats: '1.5' }), {
    field: 'seats',
    problem: 'seats is 1.5; expected a whole number.',
  });
  assert.deepEqual(read(form(), { student: 'ann' }), { field: 'seats', problem: 'seats is needed.' });
});

test('a command without content has a form without fields, and one of another shape is typed as JSON', () => {
  assert.deepEqual(fields({ type: 'object' }), []);
  assert.equal(fields({ oneOf: [{ type: 'object', properties: { a: {} } }, { type: 'string' }] }), undefined);
  assert.equal(fields(true), undefined);
});

test('a reference that leads nowhere or to itself ends', () => {
  assert.equal(fields({ $ref: '#/$defs/Gone' }), undefined);
  assert.equal(fields({ $ref: '#/$defs/A', $defs: { A: { $ref: '#/$defs/A' } } }), undefined);
});
