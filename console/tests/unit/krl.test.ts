import assert from 'node:assert/strict';
import { test } from 'node:test';
import { paint } from '../../src/lib/krl';

const SOURCE = `ruleset a.b {
  // a "comment"
  global { f = function(x) { <<Hello #{x} "there" 5>> + re#a"b#i } /* and
    another */ }
  rule r { select when x y where event:attrs{"n"} > 3.5 fired { ent:when := 1 } }
}
`;

test('the pieces of a ruleset are the ruleset', () => {
  for (const source of [SOURCE, '', '"never ends', '/* never ends', '<< never ends', 're#']) {
    assert.equal(
      paint(source)
        .map(({ text }) => text)
        .join(''),
      source,
    );
  }
});

test('words, texts, comments, numbers and names are told apart', () => {
  const of = (kind: string) =>
    paint(SOURCE)
      .filter((piece) => piece.paint === kind)
      .map(({ text }) => text);
  assert.deepEqual(of('comment'), ['// a "comment"', '/* and\n    another */']);
  assert.deepEqual(of('text'), ['<<Hello #{x} "there" 5>>', 're#a"b#i', '"n"']);
  assert.deepEqual(of('number'), ['3.5', '1']);
  assert.deepEqual(of('name'), ['event:attrs', 'ent:when']);
  assert.deepEqual(of('word'), ['ruleset', 'global', 'function', 'rule', 'select', 'when', 'where', 'fired']);
});
