import assert from 'node:assert/strict';
import { test } from 'node:test';
import { box, fit, hit, labelled, PITCH_MAX, PITCH_MIN, step, tilesMax } from '../../src/lib/grid';

test('any number of tiles that can be seen fits its surface', () => {
  for (const count of [1, 2, 17, 500, 5393, 15_000]) {
    for (const [width, height] of [
      [328, 480],
      [1200, 700],
      [2400, 1200],
    ] as const) {
      const grid = fit(count, width, height);
      assert.ok(grid.pitch >= PITCH_MIN && grid.pitch <= PITCH_MAX);
      if (count > tilesMax(width, height)) continue;
      const last = box(grid, count - 1);
      assert.ok(last.x + last.size <= width && last.y + last.size <= height, `${count} tiles on ${width} x ${height}`);
    }
  }
});

test('the point in the middle of a tile is that tile', () => {
  const grid = fit(5393, 1200, 700);
  for (const index of [0, 1, 77, 5392]) {
    const { x, y, size } = box(grid, index);
    assert.equal(hit(grid, 5393, x + size / 2, y + size / 2), index);
  }
});

test('beside and behind the tiles there is none', () => {
  const grid = fit(10, 1000, 100);
  assert.equal(hit(grid, 10, -1, 5), undefined);
  assert.equal(hit(grid, 10, 5, 5000), undefined);
  assert.equal(hit(grid, 10, grid.columns * grid.pitch + 1, 5), undefined);
});

test('arrows lead to the neighbours and not over the edge', () => {
  const grid = fit(100, 1000, 1000);
  assert.equal(step(grid, 100, 0, 'ArrowRight'), 1);
  assert.equal(step(grid, 100, 0, 'ArrowDown'), grid.columns);
  assert.equal(step(grid, 100, 0, 'ArrowUp'), undefined);
  assert.equal(step(grid, 100, 99, 'ArrowRight'), undefined);
  assert.equal(step(grid, 100, 5, 'End'), 99);
  assert.equal(step(grid, 100, 5, 'x'), undefined);
});

test('no label of a row stands on another one, and the first row has one', () => {
  for (const pitch of [6, 11, 20, 55]) {
    const labels = labelled({ columns: 10, rows: 40, pitch, gap: 1 }, 20);
    assert.equal(labels[0]?.row, 0);
    assert.ok(labels.every(({ y }, place) => place === 0 || y - (labels[place - 1]?.y ?? 0) >= 20));
    assert.ok(labels.every(({ row }) => row < 40));
  }
});
