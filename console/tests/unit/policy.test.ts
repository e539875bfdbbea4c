import assert from 'node:assert/strict';
import { test } from 'node:test';
import { verdict } from '../../src/lib/policy';

test('a policy lets through what is allowed and not denied, by name or by a star', () => {
  const policy = { allow: [{ domain: 'shop', name: '*' }], deny: [{ domain: '*', name: 'close' }] };
  assert.equal(verdict(policy, 'shop', 'buy'), 'allowed');
  assert.equal(verdict(policy, 'shop', 'close'), 'denied');
  assert.equal(verdict(policy, 'other', 'buy'), 'not allowed');
  const queries = { allow: [{ rid: 'shop', name: 'list' }], deny: [] };
  assert.equal(verdict(queries, 'shop', 'list'), 'allowed');
  assert.equal(verdict(queries, 'shop', 'prices'), 'not allowed');
  assert.equal(verdict({ allow: [], deny: [] }, 'shop', 'list'), 'not allowed');
});
