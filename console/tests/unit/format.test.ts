import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ago, bytes, micros, plural, seconds, sentence, short } from '../../src/lib/format';

test('a number has three figures and a unit', () => {
  assert.deepEqual([0, 7, 0.25, 999, 1234, 44_504, 999_499, 999_500, 2_500_000, 3e12].map(short), [
    '0',
    '7',
    '0.3',
    '999',
    '1.23 k',
    '44.5 k',
    '999 k',
    '1.00 M',
    '2.50 M',
    '3.00 T',
  ]);
});

test('a time is told in the unit it is read in', () => {
  assert.deepEqual([85, 999, 1234, 27_400, 999_600, 2_500_000, 300e6].map(micros), [
    '85 µs',
    '999 µs',
    '1.23 ms',
    '27.4 ms',
    '1.00 s',
    '2.50 s',
    '5 min',
  ]);
  assert.deepEqual([-3, 45, 119, 120, 5400, 40_000, 400_000].map(seconds), [
    '0 s',
    '45 s',
    '119 s',
    '2 min',
    '1 h 30 min',
    '11 h',
    '5 days',
  ]);
});

test('bytes are counted in powers of 1,024', () => {
  assert.deepEqual([0, 999, 1536, 1024 * 1024, 5 * 2 ** 40].map(bytes), [
    '0 B',
    '999 B',
    '1.50 KiB',
    '1.00 MiB',
    '5.00 TiB',
  ]);
});

test('an instant is told from now, before and behind', () => {
  const now = Date.parse('2026-11-23T09:00:00Z');
  assert.equal(ago('2026-11-23T08:58:30Z', now), '90 s ago');
  assert.equal(ago('2026-11-23T09:00:05Z', now), 'in 5 s');
  assert.equal(ago('2026-11-23T09:00:00.400Z', now), 'now');
  assert.equal(ago('never', now), 'never');
});

test('one is not many', () => {
  assert.deepEqual(
    [plural(1, 'event'), plural(5393, 'event'), plural(2, 'entity', 'entities')],
    ['1 event', '5,393 events', '2 entities'],
  );
});

test('a text becomes a sentence', () => {
  assert.deepEqual(['', 'the section is full', 'No.', 'why?'].map(sentence), [
    '',
    'The section is full.',
    'No.',
    'why?'.replace('w', 'W'),
  ]);
});
