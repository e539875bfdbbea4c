import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Heat } from '../../src/lib/heat';

test('who does much glows, and cools when it stops', () => {
  const heat = new Heat();
  heat.touch('a', 1000);
  heat.touch('b', 1);
  assert.ok(heat.of('a') > 0.99 && heat.of('b') > 0.05 && heat.of('b') < heat.of('a'));
  heat.cool(2);
  assert.ok(heat.of('a') < 0.6);
  heat.cool(30);
  assert.equal(heat.of('a'), 0);
  assert.ok(heat.isCold);
});

test('an entity is not hot for the events it had when it was first seen, but for those that came since', () => {
  const heat = new Heat();
  heat.see('a', 500);
  assert.equal(heat.of('a'), 0);
  heat.see('a', 502);
  assert.ok(heat.of('a') > 0);
  const before = heat.of('a');
  heat.see('a', 502);
  assert.equal(heat.of('a'), before);
});

test('a weaker sign does not cool who is hot', () => {
  const heat = new Heat();
  heat.touch('a', 500);
  const before = heat.of('a');
  heat.touch('a', 1);
  assert.equal(heat.of('a'), before);
});
