import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CHANGES_MAX, diff, type Json } from '../../src/lib/diff';

const paths = (before: Json | undefined, after: Json | undefined) =>
  diff(before, after).map((change) => `${change.what} ${change.path.join('.')}`);

test('what is equal has no difference', () => {
  assert.deepEqual(diff({ a: [1, { b: null }] }, { a: [1, { b: null }] }), []);
});

test('members that came, went and changed are named by their path', () => {
  assert.deepEqual(paths({ a: 1, b: 2, c: { d: true } }, { a: 1, c: { d: false }, e: null }), [
    'changed c.d',
    'added e',
    'removed b',
  ]);
});

test('an element put into a list is one addition', () => {
  assert.deepEqual(diff(['ann', 'cid'], ['ann', 'bob', 'cid']), [{ path: ['1'], what: 'added', after: 'bob' }]);
  assert.deepEqual(paths(['a', 'b', 'c'], ['c']), ['removed 0', 'removed 1']);
});

test('a state that was not there yet is added as a whole', () => {
  assert.deepEqual(diff(undefined, { a: 1 }), [{ path: [], what: 'added', after: { a: 1 } }]);
});

test('names of the language are names like any other', () => {
  assert.deepEqual(paths({}, JSON.parse('{"constructor":1,"__proto__":2}')), ['added constructor', 'added __proto__']);
});

test('no more differences are looked for than are shown', () => {
  const many = Object.fromEntries(Array.from({ length: CHANGES_MAX + 50 }, (_, place) => [`m${place}`, place]));
  assert.equal(diff({}, many).length, CHANGES_MAX);
});

test('of a list of names it is told which were put in and taken out, wherever they stand', () => {
  const before = ['a', 'c', 'e', 'g', 'i'];
  assert.deepEqual(diff(before, ['a', 'b', 'c', 'g', 'h', 'i']), [
    { path: ['2'], what: 'removed', before: 'e' },
    { path: ['1'], what: 'added', after: 'b' },
    { path: ['4'], what: 'added', after: 'h' },
  ]);
  const many = Array.from({ length: 20_000 }, (_, place) => place);
  const without = many.filter((one) => one !== 7 && one !== 19_000);
  assert.deepEqual(diff(many, [...without.slice(0, 500), -1, ...without.slice(500)]), [
    { path: ['7'], what: 'removed', before: 7 },
    { path: ['19000'], what: 'removed', before: 19_000 },
    { path: ['500'], what: 'added', after: -1 },
  ]);
});
