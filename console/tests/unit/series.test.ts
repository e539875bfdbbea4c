import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Series } from '../../src/lib/series';

test('a series keeps its last seconds and no more', () => {
  const series = new Series(3);
  for (const at of [1, 2, 3, 4, 5]) series.add(at, { rate: at * 10 });
  assert.deepEqual(series.at, [3, 4, 5]);
  assert.deepEqual(series.column('rate'), [30, 40, 50]);
  assert.equal(series.last('rate'), 50);
});

test('a value that comes later is not known before', () => {
  const series = new Series();
  series.add(1, { a: 1 });
  series.add(2, { b: 2 });
  assert.deepEqual(
    [series.column('a'), series.column('b'), series.column('c')],
    [
      [1, null],
      [null, 2],
      [null, null],
    ],
  );
});

test('a young series is shown wide, an old one whole', () => {
  const series = new Series();
  for (const [at, span] of [
    [1000, 60],
    [1061, 120],
    [1300, 300],
    [1301, 600],
    [2200, 900],
  ] as const) {
    series.add(at, {});
    assert.equal(series.span(), span);
  }
});

test('a gap breaks the curve and is told, so is a start of the server', () => {
  const series = new Series();
  for (const at of [100, 101, 104]) series.add(at, { rate: 1 });
  assert.deepEqual(series.gaps, [], 'late points are no gap');
  series.begin(105.5);
  series.add(107, { rate: 2 });
  series.add(120, { rate: 3 });
  assert.deepEqual(series.gaps, [
    { from: 104, to: 107 },
    { from: 107, to: 120 },
  ]);
  assert.deepEqual(series.at, [100, 101, 104, 105, 107, 108, 120]);
  assert.deepEqual(series.column('rate'), [1, 1, 1, null, 2, null, 3]);
});

test('points that come anew replace those there were, and what lies before is kept', () => {
  const series = new Series();
  for (const at of [1, 2, 10, 11]) series.add(at, { rate: at });
  series.cut(10);
  assert.deepEqual([series.at, series.gaps], [[1, 2], []]);
  for (const at of [10, 11, 12]) series.add(at, { rate: -at });
  assert.deepEqual(series.column('rate'), [1, 2, null, -10, -11, -12]);
  assert.deepEqual(series.gaps, [{ from: 2, to: 10 }]);
});

test('a second told twice is there once, one that is past is ignored', () => {
  const series = new Series();
  series.add(5, { a: 1 });
  series.add(5, { a: 2 });
  series.add(4, { a: 3 });
  assert.deepEqual([series.at, series.column('a')], [[5], [2]]);
});
