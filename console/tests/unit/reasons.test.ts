import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Action, Trouble } from '../../src/api/types';
import { byReason, each } from '../../src/lib/reasons';

const action = (name: string): Action => ({
  name,
  label: name,
  method: 'POST',
  path: `/admin/${name}`,
  confirm: null,
  needs_reason: false,
  needs_role: 'operator',
});

const item = (id: string, reason: string, actions: string[]): Trouble => ({
  type: 'quarantined',
  kind: 'section',
  id,
  what: 'event 3',
  reason,
  since: null,
  count: 0,
  number: null,
  message: null,
  actions: actions.map(action),
});

test('troubles of one reason stand together, whatever the numbers in it', () => {
  const groups = byReason([
    item('A', 'event 3: no field', ['release', 'erase']),
    item('B', 'another', ['release']),
    item('C', 'event 17: no field', ['release', 'erase']),
    { ...item('D', 'another', []), kind: null, id: null },
  ]);
  assert.deepEqual(
    groups.map((group) => [group.reason, group.items.map(({ id }) => id), group.actions.map(({ name }) => name)]),
    [['event 3: no field', ['A', 'C'], ['release']]],
  );
});

test('what differs in its actions does not stand together', () => {
  assert.deepEqual(byReason([item('A', 'x', ['release']), item('B', 'x', ['drop'])]), []);
});

test('each is done once, a few at a time, until it is stopped', async () => {
  const done: number[] = [];
  let [now, most] = [0, 0];
  const act = async (one: number) => {
    most = Math.max(most, ++now);
    await Promise.resolve();
    done.push(one);
    now--;
  };
  await each([1, 2, 3, 4, 5], 2, () => false, act);
  assert.deepEqual([done.toSorted(), most], [[1, 2, 3, 4, 5], 2]);
  done.length = 0;
  await each([1, 2, 3, 4, 5], 1, () => done.length === 2, act);
  assert.deepEqual(done, [1, 2]);
});
