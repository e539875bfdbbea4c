import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE, type Theme } from './browser';
import { Server, until } from './server';

let browser: Browser;
let server: Server;

before(async () => {
  browser = await launch();
  server = await Server.serve('picos');
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('a pico is made, tried and looked into', async () => {
  const { page, wrong } = await open(browser, server, '#/picos');
  await heading(page, 'Picos');
  await page.getByLabel("A new child's name").fill('<b>Bob</b>');
  await page.getByRole('button', { name: 'Make a child' }).click();
  await page.getByRole('link', { name: '<b>Bob</b>' }).click();
  await page.getByRole('tab', { name: /Channels/ }).click();
  await page.getByRole('list', { name: 'Channels' }).getByText('engine', { exact: true }).first().waitFor();
  await page.getByRole('tab', { name: 'Try' }).click();
  await page.getByLabel('Domain').fill('engine_ui');
  await page.getByLabel('Name', { exact: true }).fill('box');
  await page.getByLabel('Attributes, as JSON').fill('{"x": 5}');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('list', { name: 'Answer' }).getByText('eid').waitFor();
  await page.getByRole('tab', { name: 'Log' }).click();
  await page.getByText('engine_ui:box').waitFor();
  await page.getByRole('button', { name: /engine_ui:box/ }).click();
  await page.getByText('attrs').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

const COUNTER = `ruleset console.counter {
  meta { shares count }
  global { count = function(of) { ent:count } }
  rule hit {
    select when counter hit
    send_directive("hit", {"by": event:attrs{"by"}})
    fired { ent:count := ent:count.defaultsTo(0) + event:attrs{"by"}.as("Number") }
  }
}`;

test('a ruleset is written, its errors are marked, it is tried without a trace, and installed', async () => {
  const { page, wrong } = await open(browser, server, '#/picos?tab=editor');
  const text = page.getByLabel('The ruleset', { exact: true });
  await text.fill('ruleset a {\n  rule b {\n    select where\n  }\n}');
  await page.getByRole('list', { name: 'What is wrong' }).getByText('line 4').waitFor();
  assert.equal(await text.getAttribute('aria-invalid'), 'true');
  assert.equal(await page.locator('.editor-lines .bad').textContent(), '4\n');
  await accessible(page);
  await page.getByRole('list', { name: 'What is wrong' }).getByRole('button').first().click();
  const caret = await text.evaluate((element) => (element as HTMLTextAreaElement).selectionStart);
  assert.ok(caret > 'ruleset a {\n  rule b {\n'.length, 'the caret stands at the error');
  assert.equal(await page.getByRole('button', { name: 'Install', exact: true }).isDisabled(), true);

  await text.fill(COUNTER);
  await page.getByText('No errors.').waitFor();
  await page.getByLabel('by', { exact: true }).fill('5');
  await page.getByRole('button', { name: 'Try out' }).click();
  const came = page.getByRole('list', { name: 'What would come of it' });
  await came.getByText('"hit"').first().waitFor();
  await accessible(page);
  await page.getByRole('button', { name: 'Install', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Install' }).click();
  await page.getByText(/console.counter is installed/).waitFor();

  await page.getByRole('tab', { name: 'Try' }).click();
  await page.getByLabel('Ruleset to test').selectOption('console.counter');
  await page.getByLabel('by', { exact: true }).fill('7');
  await page.getByRole('button', { name: 'Send it' }).click();
  await page.getByRole('list', { name: 'Answer' }).getByText('"hit"').first().waitFor();
  await page.getByRole('tab', { name: 'Editor' }).click();
  await page.getByLabel('Begin with').selectOption('console.counter');
  await page.getByLabel('Event or query').selectOption('query count');
  await page.getByRole('button', { name: 'Try out' }).click();
  await page.getByRole('list', { name: 'What would come of it' }).getByText('7', { exact: true }).waitFor();
  await page.getByRole('tab', { name: /Channels/ }).click();
  await page
    .getByText(/Lets through/)
    .first()
    .click();
  await page.getByText('event counter:hit').first().waitFor();
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a subscription is a dashed line between two picos, and is said in words', async () => {
  const { eci } = await (await fetch(new URL('/api/ui-context', server.console))).json();
  const over = (path: string, body: object) =>
    fetch(new URL(`/c/${path}`, server.console), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }).then((answer) => answer.json());
  await over(`${eci}/event-wait/engine_ui/new`, { name: 'Ann' });
  const { children } = await over(`${eci}/query/io.picolabs.pico-engine-ui/box`, {});
  const wellKnown = await over(`${children.at(-1)}/query/io.picolabs.subscription/wellKnown_Rx`, {});
  const asked = { wellKnown_Tx: wellKnown.id, Rx_role: 'teacher', Tx_role: 'student', name: 's', channel_type: 't' };
  await over(`${eci}/event-wait/wrangler/subscription`, asked);
  await until('it is asked for', async () => {
    const inbound = await over(`${children.at(-1)}/query/io.picolabs.subscription/inbound`, {});
    if (!inbound[0]) return false;
    await over(`${children.at(-1)}/event-wait/wrangler/pending_subscription_approval`, { Id: inbound[0].Id });
    return true;
  });
  const { page, wrong } = await open(browser, server, '#/picos?tab=map');
  await page.getByRole('list', { name: 'Subscriptions' }).getByText('Ann').waitFor();
  assert.equal(await page.locator('.pico-map .subscription').count(), 1);
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

const CHOOSY = `ruleset console.choosy {
  rule always { select when choosy ask
    fired { ent:asked := ent:asked.defaultsTo(0) + 1 } }
  rule never { select when choosy ask
    if false then noop() }
}
`;

test('the log says which rules were selected and whether they fired; variables are shown', async () => {
  const { page, wrong } = await open(browser, server, '#/picos?tab=editor');
  await page.getByLabel('The ruleset', { exact: true }).fill(CHOOSY);
  await page.getByText('No errors.').waitFor();
  await page.getByRole('button', { name: 'Try out' }).click();
  const rules = page.getByRole('list', { name: 'Rules' });
  await rules.getByRole('listitem').filter({ hasText: 'never' }).getByText('not fired').waitFor();
  await page.getByRole('button', { name: 'Install', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Install' }).click();
  await page.getByText(/console.choosy is installed/).waitFor();
  await page.getByRole('tab', { name: 'Try' }).click();
  await page.getByLabel('Ruleset to test').selectOption('console.choosy');
  await page.getByRole('button', { name: 'Send it' }).click();
  await page.getByRole('list', { name: 'Answer' }).getByText('eid').waitFor();
  await page.getByRole('tab', { name: 'Log' }).click();
  await page
    .getByRole('button', { name: /choosy:ask/ })
    .first()
    .click();
  await rules.getByRole('listitem').filter({ hasText: 'always' }).getByText('fired', { exact: true }).waitFor();
  await rules.getByRole('listitem').filter({ hasText: 'never' }).getByText('not fired').waitFor();
  await accessible(page);
  await page.getByRole('tab', { name: 'Variables' }).click();
  await page.getByRole('list', { name: 'ent:asked of console.choosy' }).getByText('1', { exact: true }).waitFor();
  await accessible(page);
  await page.getByRole('link', { name: 'Go back in time' }).click();
  await page.getByRole('slider', { name: 'As of event' }).waitFor();
  assert.match(page.url(), /#\/entity\/pico\//);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a ruleset is painted, laid out and uninstalled', async () => {
  const { page, wrong } = await open(browser, server, '#/picos?tab=editor');
  const text = page.getByLabel('The ruleset', { exact: true });
  await text.fill('ruleset console.flat {\nrule only {\nselect when flat go // as it was typed\n}\n}');
  await page.getByText('No errors.').waitFor();
  assert.deepEqual(await page.locator('.editor-painted .krl-word').allTextContents(), [
    'ruleset',
    'rule',
    'select',
    'when',
  ]);
  assert.equal(await page.locator('.editor-painted .krl-comment').textContent(), '// as it was typed');
  await page.getByRole('button', { name: 'Format' }).click();
  await page.waitForFunction(() =>
    document.querySelector('textarea')?.value.includes('\n  rule only {\n    select when'),
  );
  await page.getByText('No errors.').waitFor();
  await page.getByRole('button', { name: 'Install', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Install' }).click();
  await page.getByText(/console.flat is installed/).waitFor();
  await page.getByRole('tab', { name: /Rulesets/ }).click();
  const ruleset = page
    .getByRole('list', { name: 'Rulesets' })
    .getByRole('listitem')
    .filter({ hasText: 'console.flat' });
  await ruleset.first().waitFor();
  await page.getByRole('button', { name: 'Uninstall console.flat' }).click();
  await accessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Uninstall' }).click();
  await page.getByText('console.flat is uninstalled.').waitFor();
  await ruleset.first().waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a pico without a name is told from others, is named, and is deleted', async () => {
  const { eci } = await (await fetch(new URL('/api/ui-context', server.console))).json();
  await fetch(new URL(`/c/${eci}/event-wait/engine_ui/new`, server.console), { method: 'POST' });
  const { page, wrong } = await open(browser, server, '#/picos');
  const family = page.getByRole('list', { name: 'Picos' });
  await family.getByRole('link', { name: 'Root pico' }).waitFor();
  await family
    .getByRole('link', { name: /^Pico [0-9a-f]{8}$/ })
    .first()
    .click();
  await page.getByRole('heading', { name: /^Pico [0-9a-f]{8}$/ }).waitFor();
  await page.getByLabel('Its name').fill('Cleo');
  await page.getByRole('button', { name: 'Rename' }).click();
  await page.getByRole('heading', { name: 'Cleo' }).waitFor();
  await family.getByRole('link', { name: 'Cleo' }).waitFor();
  await page.getByRole('button', { name: 'Delete the pico' }).click();
  await page.getByRole('dialog', { name: 'Delete Cleo?' }).waitFor();
  await accessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Delete the pico' }).click();
  await page.getByText('Cleo is deleted.').waitFor();
  await page.getByRole('heading', { name: 'Root pico' }).waitFor();
  await family.getByRole('link', { name: 'Cleo' }).waitFor({ state: 'detached' });
  assert.equal(await page.getByRole('button', { name: 'Delete the pico' }).count(), 0, 'the root pico stays');
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('each view of a pico fits a phone and is accessible in both themes', async () => {
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, server, '#/picos', { colorScheme, viewport: PHONE });
    await heading(page, 'Picos');
    const eci = await page.getByRole('list', { name: 'Picos' }).getByRole('link').first().getAttribute('href');
    for (const tab of ['rulesets', 'variables', 'editor', 'channels', 'map', 'log', 'try']) {
      await go(page, `${eci}?tab=${tab}`);
      await page.getByRole('tab', { selected: true, name: new RegExp(tab, 'i') }).waitFor();
      await page.getByText('Loading').waitFor({ state: 'detached' });
      await fits(page);
      await accessible(page);
    }
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('where no picos are served their screen says so and is not in the navigation', async () => {
  const other = await Server.serve('registration');
  try {
    const { page } = await open(browser, other, '#/picos');
    await page.getByText('No picos are served here').waitFor();
    assert.equal(
      await page.getByRole('navigation', { name: 'Console' }).getByRole('link', { name: 'Picos' }).count(),
      0,
    );
    await accessible(page);
  } finally {
    await other.end();
  }
});
