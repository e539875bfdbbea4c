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

test('an axis of time has labels enough to read a time from it, and none meets another', async () => {
  const { page, wrong } = await open(browser, server, '#/map');
  await page.addInitScript(() => {
    const drawn: { text: string; x: number; y: number; width: number }[] = [];
    Object.assign(globalThis, { drawn });
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most) {
      if (/^\d\d:\d\d/.test(text)) drawn.push({ text, x, y, width: this.measureText(text).width });
      return most === undefined ? fill.call(this, text, x, y) : fill.call(this, text, x, y, most);
    };
  });
  for (const seconds of [55, 110, 280, 580, 890]) {
    await page.route('**/admin/series*', async (route) => {
      const now = Math.floor(Date.now() / 1000);
      const times = Array.from({ length: seconds }, (_, place) => now - seconds + place);
      const commands = times.map((_, place) => place % 7);
      const none = { refusals: {}, memory: {}, loops: { 0: commands }, limits: null };
      await route.fulfill({ json: { now, step_seconds: 1, times, series: { commands }, ...none } });
    });
    await go(page, '#/live');
    await page.reload();
    await page.locator('.plot canvas').first().waitFor();
    await page.waitForFunction(() => (globalThis as unknown as { drawn: unknown[] }).drawn.length > 0);
    const labels = await page.evaluate(() => {
      const all = (globalThis as unknown as { drawn: { text: string; x: number; y: number; width: number }[] }).drawn;
      // Those of the first plot that was drawn: up to the first that stands left of the one before.
      const end = all.findIndex(({ x }, place) => place > 0 && x <= (all[place - 1]?.x ?? 0));
      return end < 0 ? all : all.slice(0, end);
    });
    assert.ok(labels.length >= 3, `${seconds} s: ${labels.map(({ text }) => text).join()}`);
    for (const [place, label] of labels.entries()) {
      const next = labels[place + 1];
      if (next) assert.ok(label.x + (label.width + next.width) / 2 < next.x, `${label.text} meets ${next.text}`);
    }
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  }
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('an outcome that was sent is called so, not by the name the engine has for it', async () => {
  assert.equal((await server.post('/api/section/O/open', { capacity: 5 })).status, 200);
  const { page, wrong } = await open(browser, server);
  await page.route('**/admin/entity/section/O/history*', async (route) => {
    const response = await route.fetch();
    const history = (await response.json()) as { events: object[] };
    const sent = [{ to: { kind: 'section', id: 'P' }, name: '~heard', number: '1.1' }];
    await route.fulfill({
      response,
      json: { ...history, events: history.events.map((event) => ({ ...event, sent })) },
    });
  });
  await go(page, '#/entity/section/O?at=1');
  await page.locator('.event.open').getByText('sent the outcome to').waitFor();
  assert.equal(await page.getByText('~heard').count(), 0);
  assert.deepEqual(wrong, []);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
});

test('labels of figures stand on one line at each width', async () => {
  for (const width of [1440, 1280, 1024]) {
    const { page, wrong } = await open(browser, server, '#/live', { viewport: { width, height: 800 } });
    await page.locator('.figure').nth(5).waitFor();
    const heights = await page.locator('.figure dt').evaluateAll((all) => all.map((label) => label.clientHeight));
    assert.deepEqual(
      heights.filter((height) => height > 20),
      [],
      `${width} px`,
    );
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});
