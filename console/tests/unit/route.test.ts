import assert from 'node:assert/strict';
import { test } from 'node:test';
import { link, parse } from '../../src/lib/route';

test('an address leads back to the kind, id and query it was made of', () => {
  const address = link('entity', ['section', 'C S 142/1?#%'], { at: 7, tab: undefined });
  assert.equal(address, '#/entity/section/C%20S%20142%2F1%3F%23%25?at=7');
  assert.deepEqual(parse(address), {
    screen: 'entity',
    path: ['section', 'C S 142/1?#%'],
    query: new Map([['at', '7']]),
  });
});

test('an id of markup stays an id', () => {
  const id = '<img src=x onerror=alert(1)>';
  assert.deepEqual(parse(link('entity', ['section', id])).path, ['section', id]);
});

test('what is no screen leads to the first', () => {
  for (const hash of ['', '#', '#/', '#/nothing/here', '#/entity%2Fx']) assert.equal(parse(hash).screen, 'live');
});

test('a broken escape is taken as it stands', () => {
  assert.deepEqual(parse('#/entity/section/%E0%A4%A').path, ['section', '%E0%A4%A']);
});
