import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Address, Cause, EntityEvent } from '../../src/api/types';
import { follow, type Reader } from '../../src/lib/trace';

const address = (id: string): Address => ({ kind: 'account', id });
const none: Cause = {
  ...{ type: 'command', is_certain: true, name: 'transfer', body: null, caller: null, note: null, has_key: false },
  ...{ from: null, number: null, sent: null, from_seq: null },
};

function event(seq: number, at: number, more: Partial<EntityEvent> = {}): EntityEvent {
  const time = new Date(Date.UTC(2026, 10, 23) + at).toISOString();
  return { seq, name: `e${seq}`, version: 1, at: time, position: `1.${at}`, payload: {}, cause: none, ...more };
}

const message = (from: string, from_seq: number, number: string): Cause => ({
  ...{ ...none, type: 'message', name: 'receive', from: address(from), from_seq, number },
});

/** Reads histories, and counts how often. */
function reader(histories: Record<string, EntityEvent[]>) {
  const counted = { asked: 0 };
  const of = ({ id }: Address) => {
    counted.asked++;
    return histories[id] ?? [];
  };
  const read: Reader = {
    last: async (address) => of(address).length,
    page: async (address, after, limit) => of(address).slice(after, after + limit),
  };
  return { read, counted };
}

test('a timeline begins where its cause did, and has what came of it at all entities', async () => {
  const sent = (to: string, number: string) => [{ to: address(to), name: 'receive', number }];
  const { read } = reader({
    ann: [event(1, 1), event(2, 10, { sent: sent('bob', '5.1') }), event(3, 30, { cause: message('bob', 1, '7.1') })],
    bob: [event(1, 20, { cause: message('ann', 2, '5.1'), sent: [...sent('ann', '7.1'), ...sent('nobody', '7.2')] })],
  });
  const all = [
    ['ann', 2, 0],
    ['bob', 1, 1],
    ['ann', 3, 2],
  ];
  for (const [id, seq] of [
    ['ann', 2],
    ['bob', 1],
    ['ann', 3],
  ] as const) {
    const { steps, loose, isCut } = await follow(address(id), seq, read);
    assert.deepEqual(
      steps.map(({ of, event, depth }) => [of.id, event.seq, depth]),
      all,
    );
    assert.deepEqual(
      loose.map(({ from, to }) => [from.id, to.id]),
      [['bob', 'nobody']],
    );
    assert.equal(isCut, false);
  }
});

test('events of one command stand together, and the next command is none of them', async () => {
  const sent = [{ to: address('bob'), name: 'receive', number: '5.1' }];
  const { read } = reader({
    ann: [event(1, 1), event(2, 1, { sent }), event(3, 2)],
    bob: [event(1, 3, { cause: message('ann', 2, '5.1') })],
  });
  const { steps } = await follow(address('bob'), 1, read);
  assert.deepEqual(
    steps.map(({ of, event }) => [of.id, event.seq]),
    [
      ['ann', 2],
      ['bob', 1],
    ],
  );
  const from = await follow(address('ann'), 1, read);
  assert.equal(from.steps.length, 3);
});

test('a long history is searched by time, and a circle of messages ends', async () => {
  const sent = [{ to: address('long'), name: 'receive', number: '5.1' }];
  const long = Array.from({ length: 100_000 }, (_, place) => event(place + 1, place));
  long[70_000] = event(70_001, 70_000, { cause: message('ann', 1, '5.1'), sent: [] });
  const { read, counted } = reader({ ann: [event(1, 69_990, { sent })], long });
  const { steps } = await follow(address('ann'), 1, read);
  assert.deepEqual(
    steps.map(({ of, event }) => [of.id, event.seq]),
    [
      ['ann', 1],
      ['long', 70_001],
    ],
  );
  assert.ok(counted.asked < 30, `${counted.asked} questions`);
  const ring = reader({ a: [event(1, 1, { cause: message('a', 1, '1.1') })] });
  const { isCut } = await follow(address('a'), 1, ring.read);
  assert.equal(isCut, true);
});
