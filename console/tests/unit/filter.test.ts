import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstThat, goal, isMeant } from '../../src/lib/filter';
import { holds, idPrefix } from '../../src/lib/find';

const ALL = { name: '', text: '', from: undefined, until: undefined };

test('events are meant by name, text and time', () => {
  const event = { name: 'Added', at: '2026-11-27T08:00:00Z', payload: { student: 'Ann' } };
  const at = Date.parse(event.at);
  assert.equal(isMeant(event, ALL), true);
  assert.equal(isMeant(event, { ...ALL, name: 'Add' }), false);
  assert.equal(isMeant(event, { ...ALL, name: 'Added', text: 'ann' }), true);
  assert.equal(isMeant(event, { ...ALL, text: 'bob' }), false);
  assert.equal(isMeant(event, { ...ALL, from: at, until: at }), true);
  assert.equal(isMeant(event, { ...ALL, from: at + 1 }), false);
  assert.equal(isMeant(event, { ...ALL, until: at - 1 }), false);
});

test('a goal is a number, a time of today, or a date', () => {
  const now = new Date(2026, 10, 27, 12, 0, 0);
  assert.deepEqual(goal(' 1042 ', now), { seq: 1042 });
  assert.deepEqual(goal('09:12', now), { time: new Date(2026, 10, 27, 9, 12).getTime() });
  assert.deepEqual(goal('00:00:03.5', now), { time: new Date(2026, 10, 27, 0, 0, 3, 500).getTime() });
  assert.deepEqual(goal('2026-11-26', now), { time: new Date(2026, 10, 26).getTime() });
  assert.deepEqual(goal('2026-11-26 10:00:01.250 +01:00', now), { time: Date.parse('2026-11-26T09:00:01.250Z') });
  assert.deepEqual(goal('2026-11-26 10:00:01 UTC', now), { time: Date.parse('2026-11-26T10:00:01Z') });
  for (const wrong of ['', '25:00', 'yesterday', '2026-99-99']) assert.equal(goal(wrong, now), undefined, wrong);
});

test('the first place that holds is found, or the one behind the last', async () => {
  const asked: number[] = [];
  const from = (first: number) => async (place: number) => asked.push(place) > 0 && place >= first;
  assert.equal(await firstThat(20_000, from(12_345)), 12_345);
  assert.ok(asked.length <= 15, `${asked.length} were asked`);
  assert.equal(await firstThat(3, from(1)), 1);
  assert.equal(await firstThat(3, from(9)), 4);
  assert.equal(await firstThat(0, from(1)), 1);
});

test('words are found wherever they stand', () => {
  assert.equal(holds('Change the theme', 'theme change'), true);
  assert.equal(holds('Change the theme', 'themes'), false);
  assert.equal(holds('anything', ' '), true);
});

test('a kind before an id names the only kind', () => {
  const kinds = ['section', 'student'];
  assert.deepEqual(idPrefix('section/A 1', kinds), { kinds: ['section'], prefix: 'A 1' });
  assert.deepEqual(idPrefix('student Bo', kinds), { kinds: ['student'], prefix: 'Bo' });
  assert.deepEqual(idPrefix('sectional', kinds), { kinds, prefix: 'sectional' });
});
