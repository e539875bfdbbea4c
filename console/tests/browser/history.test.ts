import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { accessible, fits, heading, launch, open, PHONE, type Theme } from './browser';
import { Server } from './server';

/** The directory of pictures for the author of a screen. */
const IMAGES = fileURLToPath(new URL('../images', import.meta.url));
/** Its sections cannot be brought back. */
const BAD = ['C 1', 'C 2', 'C 3'];

let browser: Browser;
let server: Server;

before(async () => {
  mkdirSync(IMAGES, { recursive: true });
  browser = await launch();
  server = await Server.serve('registration');
  const post = async (id: string, command: string, body: object) => {
    const path = `/api/section/${encodeURIComponent(id)}/${command}`;
    assert.equal((await server.post(path, body)).status, 200);
  };
  for (const id of ['A', ...BAD]) {
    await post(id, 'open', { capacity: 30 });
    for (const student of ['ann', 'bob', 'cid']) await post(id, 'add', { student });
    await post(id, 'drop', { student: 'bob' });
  }
  // An event that no program understands, and one behind it.
  await server.rewrite((line) =>
    /"id":"C \d","seq":3,/.test(line) ? line.replace('"student":"bob"', '"nobody":1') : line,
  );
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('a history is filtered by event, text and time, and the address has the filter', async () => {
  const { page, wrong } = await open(browser, server, '#/entity/section/A');
  const events = page.getByRole('list').filter({ has: page.locator('.event') });
  const shown = () => events.locator('.event-seq').allTextContents();
  await events.locator('.event').nth(4).waitFor();
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByLabel('Event', { exact: true }).selectOption('Added');
  await page.getByText('3 events found in 5').waitFor();
  assert.deepEqual(await shown(), ['4', '3', '2']);
  await page.getByLabel('Text in name or payload').fill('BOB');
  await page.getByText('1 event found in 5').waitFor();
  assert.deepEqual(await shown(), ['3']);
  await accessible(page);
  assert.match(page.url(), /name=Added&text=BOB/);
  await page.reload();
  await page.getByText('1 event found in 5').waitFor();
  await page.getByLabel('From').fill('2100-01-01T00:00:00');
  await page.getByText('0 events found').waitFor();
  await page.getByLabel('From').fill('');
  await page.getByLabel('Until').fill('2000-01-01T00:00:00');
  await page.getByText('0 events found').waitFor();
  await page.getByRole('button', { name: 'Show all' }).click();
  await events.locator('.event').nth(4).waitFor();
  await page.getByLabel('Event', { exact: true }).selectOption('Added');
  await page.getByText('3 events found in 5').waitFor();
  assert.equal((await server.post('/api/section/A/add', { student: 'dan' })).status, 200);
  await page.getByRole('button', { name: 'Look also at 1 newer event' }).click();
  await page.getByText('4 events found in 6').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('one goes to an event by its number or its time', async () => {
  const { page, wrong } = await open(browser, server, '#/entity/section/A');
  const goTo = async (goal: string) => {
    await page.getByLabel('Go to').fill(goal);
    await page.getByRole('button', { name: 'Go', exact: true }).click();
  };
  await goTo('2');
  await page.getByText('As of event 2', { exact: true }).waitFor();
  const at = await page.locator('.event.open .event-at').textContent();
  await goTo('2100-01-01');
  await page.getByText('Now', { exact: true }).waitFor();
  await goTo('2000-01-01 10:00:00 UTC');
  await page.getByText('before the first event').waitFor();
  // The list shows it so.
  await goTo(`${at}`);
  await page.getByText(/^As of event [12]$/).waitFor();
  await goTo('the day before');
  await page.getByText('An event is a number').waitFor();
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('an event and a state are copied, and shown as JSON', async () => {
  const { page, wrong } = await open(browser, server, '#/entity/section/A?at=2', {
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  await page.getByRole('button', { name: 'Copy event 2 as JSON' }).click();
  await page.getByText('Copied: event 2.').waitFor();
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  assert.deepEqual([copied.seq, copied.payload], [2, { student: 'ann' }]);
  await page.getByRole('button', { name: 'Raw JSON of the state as of event 2' }).click();
  assert.deepEqual(JSON.parse((await page.locator('.raw').textContent()) ?? ''), { capacity: 30, roster: ['ann'] });
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('what if, from any event, says what would change and not the whole state', async () => {
  const { page, wrong } = await open(browser, server, '#/entity/section/A?at=3');
  await page.getByRole('button', { name: 'What if from here, event 3' }).click();
  await page.getByRole('heading', { name: 'What if, as of event 3' }).waitFor();
  await page.getByRole('combobox', { name: 'Command' }).selectOption('drop');
  await page.getByLabel('student').fill('ann');
  await page.getByRole('button', { name: 'What if' }).click();
  const changes = page.getByRole('list', { name: 'What would change' });
  await changes.getByText('"ann"').waitFor();
  assert.equal(await changes.getByRole('listitem').count(), 1);
  assert.equal(await page.getByRole('list', { name: 'State then' }).count(), 0);
  await page.getByRole('button', { name: 'The whole state then' }).click();
  await page.getByRole('list', { name: 'State then' }).getByText('"bob"').waitFor();
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a quarantined entity opens at the last good event, with the bad one marked', async () => {
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    for (const viewport of [PHONE, { width: 1440, height: 900 }]) {
      const { page, wrong } = await open(browser, server, '#/entity/section/C%201', { colorScheme, viewport });
      await page.getByText('As of event 2', { exact: true }).waitFor();
      await page.getByRole('list', { name: 'State', exact: true }).getByText('"ann"').waitFor();
      const bad = page.locator('.event.bad');
      await bad.getByText('cannot be applied').waitFor();
      assert.equal(await bad.locator('.event-seq').textContent(), '3');
      // Also what came after it is there.
      await page.locator('.event').nth(4).waitFor();
      await fits(page);
      await accessible(page);
      await page.screenshot({ path: join(IMAGES, `bad-${viewport.width}-${colorScheme}.png`), fullPage: true });
      await bad.getByRole('button', { name: /^Load again/ }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Load again' }).click();
      await page.getByRole('dialog').getByText('It still cannot be brought back').waitFor();
      assert.deepEqual(wrong, []);
      await page.context().close();
    }
  }
});

test('all quarantined for one reason are loaded again at once, with progress, and exported', async () => {
  for (const id of BAD) await fetch(new URL(`/admin/entity/section/${encodeURIComponent(id)}`, server.console));
  const { page, wrong } = await open(browser, server, '#/trouble');
  await heading(page, 'Trouble');
  await page.getByText('3 entities of one reason').waitFor();
  await accessible(page);
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: /^Export all 3/ }).click(),
  ]);
  const exported: string[] = [];
  for await (const chunk of await download.createReadStream()) exported.push(String(chunk));
  const ids = exported
    .join('')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line).id);
  assert.deepEqual(ids.sort(), BAD);
  await page.getByRole('button', { name: /^Load again, all 3/ }).click();
  const dialog = page.getByRole('dialog', { name: 'Load again, all 3?' });
  await dialog.getByRole('button', { name: 'Load again, all' }).click();
  await dialog.getByText('3 of 3 tried: 0 done, 3 as before.').waitFor();
  assert.equal(await dialog.getByRole('progressbar').evaluate((bar) => (bar as HTMLProgressElement).value), 3);
  await dialog.getByRole('list', { name: 'As before' }).getByRole('link', { name: 'section/C 2' }).waitFor();
  await accessible(page);
  await page.screenshot({ path: join(IMAGES, 'all-of-one-reason.png') });
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.getByText('3 entities of one reason').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});
