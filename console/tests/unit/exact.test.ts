import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { diff } from '../../src/lib/diff';
import { Digits, exact, parse, write } from '../../src/lib/exact';
import { line } from '../../src/lib/json';
import { fields, read, readJson } from '../../src/lib/schema';

const LARGE = '{"a":9007199254740993,"b":[18446744073709551615,-9007199254740993,1e400,0.12345678901234567891]}';

test('a number that JavaScript would change is read and written with its digits', () => {
  assert.equal(write(parse(LARGE)), LARGE);
  assert.equal(line(parse(LARGE), 200), LARGE);
});

test('a number that JavaScript holds is one', () => {
  for (const text of ['0', '-1', '9007199254740991', '1.5', '0.1', '-0.25e-3', '5e-324', '1.7976931348623157e308']) {
    assert.equal(exact(text), Number(text), text);
  }
});

test('digits in a text stay a text', () => {
  const text = '{"9007199254740993":"a \\" 9007199254740993","b":"\\\\"}';
  assert.deepEqual(parse(text), { '9007199254740993': 'a " 9007199254740993', b: '\\' });
  assert.equal(write(parse(text)), text);
});

test('what is no JSON is refused as before', () => {
  for (const text of ['{"a":09007199254740993}', '{"a":9007199254740993', '9007199254740993.', '-']) {
    assert.throws(() => parse(text), SyntaxError, text);
  }
  for (const text of ['', '01', '+1', '1.', '0x10', 'NaN', '1 2']) assert.equal(exact(text), undefined, text);
});

test('a form sends the number that was typed', () => {
  const form = fields({ properties: { cents: { type: 'integer' }, more: { type: 'array' } } });
  assert.ok(form);
  for (const cents of ['9007199254740993', '18446744073709551615', '-9007199254740993', '5']) {
    const typed = read(form, { cents, more: `[${cents}]` });
    assert.ok('body' in typed);
    assert.equal(write(typed.body), `{"cents":${cents},"more":[${cents}]}`);
  }
  const whole = readJson('{"cents":9007199254740993}', 'The body');
  assert.ok('value' in whole);
  assert.equal(write(whole.value), '{"cents":9007199254740993}');
});

test('two large numbers are told apart by their last digit', () => {
  const [one, other] = [parse('{"a":9007199254740992}'), parse('{"a":9007199254740993}')];
  assert.deepEqual(diff(other, parse('{"a":9007199254740993}')), []);
  assert.deepEqual(diff(one, other), [
    { path: ['a'], what: 'changed', before: new Digits('9007199254740992'), after: new Digits('9007199254740993') },
  ]);
});

/** A socket that a test speaks for. */
class Socket {
  static readonly OPEN = 1;
  static last: Socket;
  readonly readyState = 1;
  readonly sent: string[] = [];
  onmessage: (message: { data: string }) => void = () => undefined;

  constructor() {
    Socket.last = this;
  }

  send(text: string): void {
    this.sent.push(text);
  }
}

test("the example's client takes and sends large integers as they are", async () => {
  const path = new URL('../../../crates/throng-http/examples/websocket/throng.js', import.meta.url);
  const Throng = new Function('WebSocket', `${readFileSync(path, 'utf8')}; return Throng`)(Socket);
  const connecting = Throng.connect('ws://nobody');
  Socket.last.onmessage({ data: '{"type":"hello"}' });
  const answering = (await connecting).command('account', 'ann', 'deposit', { cents: 9007199254740993n, name: '"1"' });
  await Promise.resolve();
  assert.match(Socket.last.sent[0] ?? '', /"body":\{"cents":9007199254740993,"name":"\\"1\\""\}/);
  Socket.last.onmessage({ data: '{"type":"reply","id":1,"body":{"cents":18446744073709551615,"left":0.5}}' });
  assert.deepEqual(await answering, { cents: 18446744073709551615n, left: 0.5 });
});
