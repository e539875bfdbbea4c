import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE } from './browser';
import { Server } from './server';

let browser: Browser;
let server: Server;

before(async () => {
  browser = await launch();
  server = await Server.serve('registration');
  assert.equal((await server.post('/api/section/A/open', { capacity: 30 })).status, 200);
});

after(async () => {
  await browser?.close();
  await server?.end();
});

/** Has the server's answer changed on its way to the page. */
async function answers(page: Page, path: string, change: (answer: Record<string, unknown>) => object): Promise<void> {
  await page.route(path, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: change((await response.json()) as Record<string, unknown>) });
  });
}

const LARGE = '9007199254740993';

test('a number beyond 2^53 is shown and sent as it was typed', async () => {
  const { page, wrong } = await open(browser, server);
  await page.route('**/admin/entity/section/A', async (route) => {
    const text = await (await route.fetch()).text();
    await route.fulfill({
      body: text.replace('"capacity":30', `"capacity":${LARGE}`),
      contentType: 'application/json',
    });
  });
  const sent: string[] = [];
  await page.route('**/admin/entity/section/A/command', (route) => {
    sent.push(route.request().postData() ?? '');
    return route.fulfill({ body: `{"reply":{"left":18446744073709551615},"seq":2}`, contentType: 'application/json' });
  });
  await go(page, '#/entity/section/A?tab=command');
  await page.getByRole('list', { name: 'State', exact: true }).getByText(LARGE).waitFor();
  await page.getByRole('combobox', { name: 'Command' }).selectOption('open');
  await page.getByLabel('capacity').fill(LARGE);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('list', { name: 'Reply' }).getByText('18446744073709551615').waitFor();
  assert.match(sent[0] ?? '', new RegExp(`"capacity":${LARGE}[,}]`));
  assert.deepEqual(wrong, []);
  // An answer may be on its way still.
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
});

test('an answer in the documentation of the API keeps its digits', async () => {
  const page = await (await browser.newContext()).newPage();
  await page.route('**/api/section/A', (route) =>
    route.fulfill({ body: `{"a":[],"b":{"c":${LARGE}}}`, contentType: 'application/json' }),
  );
  await page.goto(`${server.service}/docs`);
  const route = page
    .locator('details')
    .filter({ has: page.locator('summary .path', { hasText: /^\/api\/section\/\{id\}$/ }) });
  await route.locator('summary').click();
  await route.locator('form input').first().fill('A');
  await route.getByRole('button', { name: 'Send' }).click();
  assert.equal(await route.locator('form pre').textContent(), `{\n  "a": [],\n  "b": {\n    "c": ${LARGE}\n  }\n}`);
  await page.context().close();
});

test('the documentation of the API fits into 360 px', async () => {
  const page = await (await browser.newContext({ viewport: PHONE })).newPage();
  await page.goto(`${server.service}/docs`);
  await page.locator('details').first().waitFor();
  await fits(page);
  for (const route of await page.locator('details').all()) await route.locator('summary').click();
  await fits(page);
  await page.context().close();
});

test('a disk of which the free space is not known is not said to have room for ever', async () => {
  const { page, wrong } = await open(browser, server);
  const known = { used_bytes: 1, budget_bytes: null, free_bytes: 10, total_bytes: 100 };
  const unknown = { ...known, free_bytes: null, total_bytes: null };
  const rate = { growth_bytes_per_day: 5_000_000_000, full_at: null };
  for (const [disk, growth, says] of [
    [unknown, rate, 'not known: the free space is not'],
    [known, { ...rate, growth_bytes_per_day: null }, 'not known: its growth is not'],
    [known, rate, 'not within ten years at this rate'],
  ] as const) {
    await answers(page, '**/admin/journal', (journal) => ({ ...journal, ...growth, disk }));
    await go(page, '#/live');
    await heading(page, 'Live');
    await go(page, '#/journal');
    const full = page.locator('dt', { hasText: /^Full$/ }).locator('xpath=following-sibling::dd[1]');
    await full.filter({ hasText: says }).waitFor();
    await page.unrouteAll({ behavior: 'wait' });
  }
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('the time of an event has its date and its zone', async () => {
  for (const [timezoneId, zone] of [
    ['Asia/Kolkata', '+05:30'],
    ['America/St_Johns', /-0[23]:30/],
    ['UTC', 'UTC'],
  ] as const) {
    const { page, wrong } = await open(browser, server, '#/entity/section/A', { timezoneId, viewport: PHONE });
    const told = page.locator('.event time').first();
    await told.filter({ hasText: /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} / }).waitFor();
    await told.filter({ hasText: zone }).waitFor();
    await fits(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('the curves survive a restart of the server, and the gap is marked', async () => {
  const own = await Server.serve('registration');
  try {
    const { page, wrong } = await open(browser, own);
    await page.locator('.plot canvas').first().waitFor();
    const gaps = page.getByRole('list', { name: 'Gaps in the curves' });
    assert.equal(await gaps.count(), 0);
    await own.kill();
    await page.getByText('Not connected').waitFor();
    await page.getByText(', when it was last seen').waitFor();
    await accessible(page);
    await own.start();
    await gaps.getByText(/No points from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ until \d\d:\d\d:\d\d:/).waitFor();
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  } finally {
    await own.end();
  }
});

const OF = 'kind=section&id=A';
const trouble = (item: object) => ({
  ...{ total: 1, totals: { quarantined: 0, stuck: 0, dead: 0 }, uncounted: [], dead_groups: [], more: false },
  items: [{ kind: 'section', id: 'A', since: '2026-11-26T10:00:00Z', count: 1, number: null, message: null, ...item }],
});
const action = { method: 'POST', confirm: null, needs_reason: false };

test('an entity that still cannot be loaded is said to be so, and stays in the list', async () => {
  const { page, wrong } = await open(browser, server);
  const load = { ...action, name: 'release', label: 'Load again', path: `/admin/release?${OF}` };
  const item = { type: 'quarantined', what: 'event 7', reason: 'event "paid" version 3', actions: [load] };
  let tries = 0;
  await page.route('**/admin/trouble', (route) => route.fulfill({ json: trouble(item) }));
  await page.route(`**/admin/release?${OF}`, (route) => {
    const isLoaded = ++tries > 1;
    const came = isLoaded ? { loaded: true, reason: null } : { loaded: false, reason: 'event "paid" version 3' };
    return route.fulfill({ json: { released: true, ...came } });
  });
  await go(page, '#/trouble');
  await page.getByRole('button', { name: /^Load again/ }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Load again' }).click();
  await dialog.getByRole('alert').getByText('It still cannot be brought back: event "paid" version 3').waitFor();
  assert.equal(await page.locator('.toast').count(), 0);
  await accessible(page);
  await dialog.getByRole('button', { name: 'Load again' }).click();
  await page.getByText('Load again: it is loaded again.').waitFor();
  assert.equal(await dialog.count(), 0);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a dead message is read before it is dropped', async () => {
  const drop = {
    ...action,
    name: 'drop',
    label: 'Drop',
    path: `/admin/dead/drop?${OF}&number=17.3`,
    needs_reason: true,
  };
  const message = {
    name: 'deposit',
    sender: { kind: 'transfer', id: '9' },
    attempts: 2,
    died_at: '2026-11-26T11:00:00Z',
  };
  const item = { type: 'dead', what: 'deposit from transfer/9', reason: 'it panics', number: '17.3', actions: [drop] };
  for (const viewport of [undefined, PHONE]) {
    const { page, wrong } = await open(browser, server, '#/live', viewport && { viewport });
    let body: object | null = { cents: 17, to: '<b>ann</b>' };
    await page.route('**/admin/trouble', (route) =>
      route.fulfill({ json: trouble({ ...item, message: { ...message, body, body_bytes: 2_500 } }) }),
    );
    await page.route('**/admin/dead/export?*', (route) =>
      route.fulfill({
        body: `{"number":"17.2","command":1}\n{"number":"17.3","command":{"cents":${LARGE}}}\n{"exported":2}\n`,
      }),
    );
    await go(page, '#/trouble');
    await page.getByText('17.3, 2 attempts').waitFor();
    await page.getByText('{"cents":17,"to":"<b>ann</b>"}').waitFor();
    await page.getByRole('button', { name: /^Drop/ }).click();
    const dialog = page.getByRole('dialog');
    for (const shown of ['17.3', 'deposit', 'transfer/9', '2 attempts', '"<b>ann</b>"']) {
      await dialog.getByText(shown).first().waitFor();
    }
    await fits(page);
    await accessible(page);
    await page.keyboard.press('Escape');
    // A large one comes when somebody wants to see it.
    body = null;
    await page.getByText('17.3, 2 attempts: 2.44 KiB').waitFor();
    const opened = page.locator('.dead-message');
    await opened.locator('summary').click();
    await opened.getByRole('button', { name: 'Show 2.44 KiB' }).click();
    await opened.getByText(LARGE).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});
