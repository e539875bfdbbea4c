import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE } from './browser';
import { Server, until } from './server';

let browser: Browser;
let server: Server;
let locked: Server;

before(async () => {
  browser = await launch();
  const env = { THRONG_ADMIN_TOKEN: 'a-token-of-some-length-for-this-test' };
  [server, locked] = await Promise.all([Server.serve('registration'), Server.serve('registration', { env })]);
});

after(async () => {
  await browser?.close();
  await Promise.all([server?.end(), locked?.end()]);
});

test('the first command is a line that a shell takes as it stands', async () => {
  const fresh = await Server.serve('registration');
  try {
    const { page, wrong } = await open(browser, fresh);
    const line = (await page.locator('.copyable pre').textContent()) ?? '';
    assert.match(line, /^curl -X POST http:\/\/127\.0\.0\.1:\d+\/api\/section\/first\//);
    const answer = execFileSync('sh', ['-c', `${line} --silent --fail-with-body`]).toString();
    assert.ok(JSON.parse(answer), answer);
    const { seq } = await (await fetch(new URL('/admin/entity/section/first', fresh.console))).json();
    assert.equal(seq, 1);
    assert.deepEqual(wrong, []);
    await page.context().close();
  } finally {
    await fresh.end();
  }
});

test('what has failed is said until somebody closes it, and how much is in trouble stands in the title', async () => {
  const { page, wrong } = await open(browser, server);
  const of = { type: 'dead', kind: 'section', id: 'A', what: 'add', reason: 'it panics', since: null };
  const group = { kind: 'section', cause: 'it panics', count: 2, export: '/admin/dead/export?kind=x', actions: [] };
  await page.route('**/admin/trouble', (route) =>
    route.fulfill({
      json: {
        ...{ total: 2, totals: { dead: 2 }, uncounted: [], dead_groups: [group], more: false },
        items: ['1.1', '1.2'].map((number) => ({ ...of, count: 1, number, message: null, actions: [] })),
      },
    }),
  );
  await page.route('**/admin/dead/export?*', (route) => route.fulfill({ body: '{"number":"1.1"}\n' }));
  await page.clock.install();
  await go(page, '#/trouble');
  await page.waitForFunction(() => document.title.startsWith('(2) '));
  await page.getByRole('button', { name: /^Export all/ }).click();
  const toast = page.getByRole('alert').filter({ hasText: 'The export broke off.' });
  await toast.waitFor();
  await page.clock.fastForward(60_000);
  await toast.waitFor();
  await accessible(page);
  await toast.getByRole('button', { name: 'Close' }).click();
  await toast.waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
});

test('a console without its token says that it is locked, in words for people', async () => {
  const { page, wrong } = await open(browser, locked, '#/live', { viewport: PHONE });
  await heading(page, 'Enter the token');
  await page.getByText('This service asks for a token before it shows anything.').waitFor();
  assert.equal(await page.getByText('Authorization').count(), 0);
  assert.equal(await page.locator('.connection').textContent(), 'Locked');
  await page.getByLabel('Token for administration').fill('wrong');
  await page.getByRole('button', { name: 'Open the console' }).click();
  await heading(page, 'Wrong token');
  await page.getByText('The service does not take this token.').waitFor();
  await fits(page);
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('each row of a table is a card at 360 px, and nothing of it has to be scrolled to', async () => {
  await server.post('/api/section/0b5a1e0c-0000-4000-8000-000000000001/open', { capacity: 5 });
  const { page, wrong } = await open(browser, server, '#/journal', { viewport: PHONE });
  for (const [hash, title] of [
    ['#/journal', 'Journal'],
    ['#/map/section?as=list', 'section'],
  ] as const) {
    await go(page, hash);
    await heading(page, title);
    await page.locator('tbody tr').first().waitFor();
    await page.locator('tbody td[data-label]').first().waitFor();
    const beyond = await page
      .locator('.scroll')
      .evaluateAll((scrolled) => scrolled.map((one) => one.scrollWidth - one.clientWidth));
    assert.deepEqual(
      beyond.filter((pixels) => pixels > 0),
      [],
      title,
    );
    const label = await page
      .locator('tbody td[data-label="State"]')
      .first()
      .evaluate((cell) => getComputedStyle(cell, '::before').content);
    assert.equal(label, '"State"');
    await fits(page);
    await accessible(page);
  }
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('what was mended is gone from the number of troubles with the next points', async () => {
  assert.equal((await server.post('/api/section/T/open', { capacity: 5 })).status, 200);
  const page = await (await browser.newContext()).newPage();
  const points: { at: number; trouble: number }[] = [];
  page.on('websocket', (socket) =>
    socket.on('framereceived', ({ payload }) => {
      const frame = JSON.parse(String(payload));
      if (frame.type === 'point') points.push(frame);
    }),
  );
  await page.goto(server.console);
  const post = async (path: string) =>
    assert.equal((await fetch(new URL(path, server.console), { method: 'POST' })).status, 200);
  // As the number was looked at every five seconds, one round could be right by chance.
  for (let round = 0; round < 4; round++) {
    await post('/admin/quarantine?kind=section&id=T&reason=a+test');
    await until('it is counted', async () => points.at(-1)?.trouble === 1);
    await post('/admin/release?kind=section&id=T');
    const { now } = await (await fetch(new URL('/admin/overview', server.console))).json();
    const from = Date.parse(now) / 1000 + 2;
    await until('two points have come', async () => points.filter(({ at }) => at >= from).length >= 2);
    assert.deepEqual(
      points.filter(({ at, trouble }) => at >= from && trouble !== 0),
      [],
    );
  }
  await page.context().close();
});
