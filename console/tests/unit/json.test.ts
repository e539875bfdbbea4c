import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Json } from '../../src/lib/diff';
import { line, members, opens, size } from '../../src/lib/json';

test('a value on one line is cut where there is no room', () => {
  assert.equal(line({ a: [1, 'two', null], b: {} }, 80), '{"a":[1,"two",null],"b":{}}');
  assert.equal(line(['x'.repeat(1_000_000)], 10), '["xxxxxxx…');
  assert.equal(line(undefined, 10), '');
});

test('no more of a value is read than its line shows', () => {
  let read = 0;
  const counted = (place: number): Json =>
    ({
      get name() {
        read++;
        return `student ${place}`;
      },
    }) as unknown as Json;
  assert.equal(
    line(
      Array.from({ length: 10_000 }, (_, place) => counted(place)),
      40,
    ).length,
    40,
  );
  assert.ok(read < 50, `${read} were read`);
});

test('members come a page at a time', () => {
  assert.deepEqual(members(['a', 'b', 'c'], 1, 1), [['1', 'b']]);
  assert.deepEqual(members({ a: 1, b: 2 }, 0, 9), [
    ['a', 1],
    ['b', 2],
  ]);
  assert.equal(size('text'), 0);
});

test('what is large or deep stays closed until it is asked for', () => {
  assert.equal(opens([1, 2], 1), true);
  assert.equal(opens(new Array(1000).fill(0), 1), false);
  assert.equal(opens([1], 5), false);
});
