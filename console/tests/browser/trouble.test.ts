import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { accessible, fits, launch, open, PHONE, type Theme } from './browser';
import { Server, until } from './server';

/** Where pictures go that are for whoever changes a screen. */
const IMAGES = fileURLToPath(new URL('../images', import.meta.url));

let browser: Browser;
let picos: Server;
let shows: Server;

before(async () => {
  mkdirSync(IMAGES, { recursive: true });
  browser = await launch();
  [picos, shows] = await Promise.all([Server.serve('picos'), Server.serve('shows', { args: ['--keep', 'show=1'] })]);
});

after(async () => {
  await browser?.close();
  await Promise.all([picos?.end(), shows?.end()]);
});

/** Of a show of its own. */
const QUARANTINED = '0b5a1e0c-0000-4000-8000-000000000002';

const admin = (server: Server, path: string) => fetch(new URL(path, server.console)).then((answer) => answer.json());

/** A message to a pico that nobody has made: it is dead. */
async function die(): Promise<void> {
  const before = (await admin(picos, '/admin/dead')).messages.length;
  const { eci } = await admin(picos, '/api/ui-context');
  const nobody = 'f'.repeat(48);
  const asked = { wellKnown_Tx: nobody, Rx_role: 'a', Tx_role: 'b', name: 'nobody', channel_type: 'test' };
  await picos.post(`/sky/event/${eci}/1/wrangler/subscription`, asked);
  await until('a message is dead', async () => {
    const { messages } = await admin(picos, '/admin/dead');
    return messages.length > before;
  });
}

test('a dead message is dropped for a reason, and the journal keeps it', async () => {
  await die();
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, picos, '#/trouble', { colorScheme, viewport: PHONE });
    await page.getByRole('button', { name: /^Drop/ }).first().click();
    await page.getByRole('dialog').waitFor();
    await fits(page);
    await accessible(page);
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
  const { page, wrong } = await open(browser, picos, '#/trouble');
  await page.getByRole('button', { name: /^Drop/ }).first().click();
  const drop = page.getByRole('dialog').getByRole('button', { name: 'Drop' });
  assert.equal(await drop.isDisabled(), true, 'not without a reason');
  await page.getByLabel(/^Why/).fill('nobody will ever be there <b>');
  await drop.click();
  await page.getByText('All is well').waitFor();
  assert.deepEqual((await admin(picos, '/admin/dead')).messages, []);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('all dead messages of one cause are exported, tried again and dropped', async () => {
  for (let count = 0; count < 3; count++) await die();
  await until('three are counted', async () => (await admin(picos, '/admin/trouble')).dead_groups[0]?.count === 3);
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, picos, '#/trouble', { colorScheme, viewport: PHONE });
    await page.getByRole('list', { name: 'By cause' }).getByText('3 messages to pico').waitFor();
    await fits(page);
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
  const { page, wrong } = await open(browser, picos, '#/trouble', { acceptDownloads: true });
  const causes = page.getByRole('list', { name: 'By cause' });
  const dialog = page.getByRole('dialog');
  const downloading = page.waitForEvent('download');
  await causes.getByRole('button', { name: /^Export all/ }).click();
  const lines = readFileSync(await (await downloading).path(), 'utf8')
    .trim()
    .split('\n');
  assert.deepEqual([lines.length, lines.at(-1)], [4, '{"exported":3}']);
  await page.getByText('Export all: 3 messages.').waitFor();
  await causes.getByRole('button', { name: /^Try all again/ }).click();
  await dialog.getByText('3 when they were counted last').waitFor();
  await accessible(page);
  let go = () => {};
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  await page.route('**/admin/dead/retry*', async (route) => {
    await held;
    await route.continue();
  });
  await dialog.getByRole('button', { name: 'Try all again' }).click();
  await dialog.getByText('3 of 3 left').waitFor();
  await accessible(page);
  go();
  await page.getByText('Try all again: 0 taken, 0 refused, 3 dead again.').waitFor();
  await causes.getByRole('button', { name: /^Drop all/ }).click();
  await dialog.getByText('3 when they were counted last').waitFor();
  const drop = dialog.getByRole('button', { name: 'Drop all' });
  assert.equal(await drop.isDisabled(), true, 'not without a reason');
  await page.getByLabel(/^Why/).fill('nobody will ever be there <b>');
  await drop.click();
  await page.getByText('Drop all: 3 dropped.').waitFor();
  await page.getByText('All is well').waitFor();
  assert.deepEqual((await admin(picos, '/admin/dead')).messages, []);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('an entity is quarantined for a reason, emptied, released and erased', async () => {
  const created = await shows.post('/shows', { showId: QUARANTINED, title: 'Carmen', maxSeats: 3 });
  assert.ok(created.ok, await created.text());
  const address = `#/entity/show/${QUARANTINED}`;
  const shown = () => admin(shows, `/admin/entity/show/${QUARANTINED}`);
  const { page, wrong } = await open(browser, shows, address);
  const dialog = page.getByRole('dialog');
  await page.getByRole('button', { name: 'Quarantine' }).click();
  const quarantine = dialog.getByRole('button', { name: 'Quarantine' });
  assert.equal(await quarantine.isDisabled(), true, 'not without a reason');
  await page.getByLabel(/^Why/).fill('it multiplies <b>');
  await accessible(page);
  await quarantine.click();
  await page.getByText('Quarantined by local: it multiplies <b>').waitFor();
  assert.equal((await shown()).quarantine.by, 'local');
  await page.screenshot({ path: join(IMAGES, 'quarantined.png') });
  await page.goto(`${shows.console}#/trouble`);
  await page.getByRole('button', { name: /^Drop its messages/ }).click();
  await page.getByLabel(/^Why/).fill('it multiplies');
  await dialog.getByRole('button', { name: 'Drop its messages' }).click();
  await page.getByText('Drop its messages: done.').waitFor();
  await page.getByRole('button', { name: /^Release/ }).click();
  await dialog.getByRole('button', { name: 'Release' }).click();
  await page.getByText('All is well').waitFor();
  assert.equal((await shown()).quarantine, null);
  await page.goto(shows.console + address);
  await page.getByRole('button', { name: 'Erase' }).click();
  await page.getByText('There is no way back').waitFor();
  await dialog.getByRole('button', { name: 'Erase' }).click();
  await page.getByText('Erase: done.').waitFor();
  await until('it has ended', async () => (await shown()).ended);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a read model is rebuilt while the service runs', async () => {
  const { page, wrong } = await open(browser, shows, '#/journal');
  await page.getByRole('button', { name: 'Rebuild: available-shows' }).click();
  await page.getByText('lists from it are not complete').waitFor();
  await accessible(page);
  await page.getByRole('dialog').getByRole('button', { name: 'Rebuild' }).click();
  await page.getByText('Rebuild: done.').waitFor();
  await until('the rows are complete again', async () => {
    const { projections } = await admin(shows, '/admin/journal');
    return projections.length > 0 && projections.every((one: { is_rebuilding: boolean }) => !one.is_rebuilding);
  });
  assert.deepEqual(wrong, []);
  await page.context().close();
});

const SHOW = '0b5a1e0c-0000-4000-8000-000000000001';

/** A read model that meets an event it cannot apply: what came before it was removed. */
async function stop(): Promise<void> {
  const post = (path: string) => fetch(new URL(path, shows.console), { method: 'POST' });
  const created = await shows.post('/shows', { showId: SHOW, title: 'Faust', maxSeats: 3 });
  assert.ok(created.ok, await created.text());
  const reserve = async (seat: number) => {
    const change = { method: 'PATCH', headers: { 'content-type': 'application/json' }, body: '{"action":"RESERVE"}' };
    const reserved = await fetch(`${shows.service}/shows/${SHOW}/seats/${seat}`, change);
    assert.ok(reserved.ok, await reserved.text());
  };
  await reserve(0);
  // What a segment holds that is still written to stays.
  await shows.kill();
  await shows.start();
  await reserve(1);
  await until('the first events are removed', async () => {
    const pruned = await post('/admin/prune');
    assert.ok(pruned.ok);
    return (await pruned.json()).commits > 0;
  });
  assert.ok((await post('/admin/projection/rebuild?name=available-shows')).ok);
}

test('a projection that has stopped is told to go past the event, and it is shown who did it and why', async () => {
  await stop();
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, shows, '#/trouble', { colorScheme, viewport: PHONE });
    await page.getByRole('button', { name: /^Skip the event/ }).click();
    await page.getByText('and no other').waitFor();
    await fits(page);
    await accessible(page);
    await page.screenshot({ path: join(IMAGES, `skip-${colorScheme}.png`) });
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
  const { page, wrong } = await open(browser, shows, '#/trouble');
  await page.getByText('the show would have -1 seats left').first().waitFor();
  await page.screenshot({ path: join(IMAGES, 'skip-wide.png') });
  await page.getByRole('button', { name: /^Skip the event/ }).click();
  const skip = page.getByRole('dialog').getByRole('button', { name: 'Skip the event' });
  assert.equal(await skip.isDisabled(), true, 'not without a reason');
  await page.getByLabel(/^Why/).fill('its show was removed <b>');
  await skip.click();
  await page.getByText('the show would have -1 seats left').first().waitFor({ state: 'hidden' });
  // It goes on, and has missed what was removed before it was rebuilt.
  await page.getByText('lacks history of show').first().waitFor();
  await page.evaluate(() => {
    location.hash = '#/journal';
  });
  await page.getByText('1 event was skipped').click();
  await page.getByText('by local: its show was removed <b>').waitFor();
  await accessible(page);
  await fits(page);
  await page.screenshot({ path: join(IMAGES, 'skipped-wide.png'), fullPage: true });
  assert.deepEqual(wrong, []);
  await page.context().close();
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, shows, '#/journal', { colorScheme, viewport: PHONE });
    await page.getByText('1 event was skipped').click();
    await fits(page);
    await accessible(page);
    await page.getByText('1 event was skipped').scrollIntoViewIfNeeded();
    await page.screenshot({ path: join(IMAGES, `skipped-${colorScheme}.png`) });
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});
