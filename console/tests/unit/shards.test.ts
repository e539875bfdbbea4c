import assert from 'node:assert/strict';
import { test } from 'node:test';
import { areShards, count, moves, pinnedToNobody, shown } from '../../src/lib/shards';

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

test('shards that are typed are numbers and rising ranges of those there are', () => {
  for (const typed of ['0', '0-9,17', '255', '0-255']) assert.equal(areShards(typed, 256), true, typed);
  for (const typed of ['', 'x', '9-0', '0-', '1,,2', '-1', '256', '0-256', '1 2']) {
    assert.equal(areShards(typed, 256), false, typed);
  }
});

test('shards that have moved are counted by the nodes between which they did', () => {
  const before = [
    { name: 'a', shards: '0-127' },
    { name: 'b', shards: '128-250' },
  ];
  const after = [
    { name: 'a', shards: '0-99' },
    { name: 'b', shards: '100-199' },
    { name: 'c', shards: '200-255' },
  ];
  assert.deepEqual(moves(before, after), [
    { from: 'b', to: 'c', shards: 51 },
    { from: 'a', to: 'b', shards: 28 },
    { from: '', to: 'c', shards: 5 },
  ]);
  assert.deepEqual(moves(after, after), []);
});
