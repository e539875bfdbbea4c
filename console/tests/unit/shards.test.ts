import assert from 'node:assert/strict';
import { test } from 'node:test';
import { count, pinnedToNobody, shown } from '../../src/lib/shards';

test('ranges of shards are counted and shown', () => {
  assert.deepEqual(['', '7', '0-9,17', '0-255'].map(count), [0, 1, 11, 256]);
  assert.deepEqual(['', '0-9,17'].map(shown), ['', '0-9, 17']);
});

test('what is pinned to a name counts for the node that lives under it, and is nobody’s where none does', () => {
  const nodes = [
    { name: 'a', state: 'serving' },
    { name: 'b', state: 'left' },
    { name: 'b', state: 'draining' },
    { name: 'c', state: 'dead' },
  ];
  assert.deepEqual(pinnedToNobody({ a: '1', b: '2-3', c: '4', d: '5-6' }, nodes), [
    ['c', '4'],
    ['d', '5-6'],
  ]);
});
