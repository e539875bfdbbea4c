import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AuditEvent, type AuditFilter, entries, isMeant, subject } from '../../src/lib/audit';
import { suffices } from '../../src/lib/roles';

const asked = (
  seq: number,
  number: number,
  by: string,
  action: string,
  fields: Record<string, string>,
): AuditEvent => ({
  seq,
  name: 'asked',
  at: '2026-11-27T10:00:00Z',
  payload: { number, by, role: 'operator', at: '127.0.0.1', action, fields, reason: 'test' },
});

const ended = (seq: number, number: number, status: number): AuditEvent => ({
  seq,
  name: 'ended',
  at: '2026-11-27T10:00:01Z',
  payload: { number, status, problem: status < 300 ? null : 'forbidden' },
});

const EVENTS = [
  ended(3, 1, 200),
  asked(4, 2, 'ann', 'quarantine', { kind: 'section', id: 'S 1' }),
  asked(5, 3, 'bob', 'projection/rebuild', { name: 'richest' }),
  ended(6, 3, 409),
];

test('each action has its end, the newest stands first', () => {
  const found = entries(EVENTS).map(({ number, at, address, end }) => [number, at, address, end?.status]);
  assert.deepEqual(found, [
    [3, '2026-11-27T10:00:00Z', '127.0.0.1', 409],
    [2, '2026-11-27T10:00:00Z', '127.0.0.1', undefined],
  ]);
});

test('an action is about an entity, or about what its fields say', () => {
  assert.deepEqual(entries(EVENTS).map(subject), [
    { of: undefined, rest: [['name', 'richest']] },
    { of: { kind: 'section', id: 'S 1' }, rest: [] },
  ]);
});

test('actions are found by person, action and a part of the entity', () => {
  const found = (filter: Partial<AuditFilter>) =>
    entries(EVENTS)
      .filter((entry) => isMeant(entry, { by: '', action: '', entity: '', ...filter }))
      .map(({ number }) => number);
  assert.deepEqual(found({}), [3, 2]);
  assert.deepEqual(found({ by: 'ann' }), [2]);
  assert.deepEqual(found({ by: 'an' }), []);
  assert.deepEqual(found({ action: 'projection/rebuild' }), [3]);
  assert.deepEqual(found({ entity: 'SECTION/s' }), [2]);
  assert.deepEqual(found({ by: 'bob', entity: 'section' }), []);
});

test('a role may do what those before it may', () => {
  assert.deepEqual(
    ['metrics', 'viewer', 'operator', 'owner', 'a later one'].map((role) => suffices(role, 'operator')),
    [false, false, true, true, false],
  );
});
