import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { accessible, fits, heading, launch, type Theme } from './browser';
import { Guarded } from './roles';

const IMAGES = fileURLToPath(new URL('../images', import.meta.url));

let browser: Browser;
let guarded: Guarded;

before(async () => {
  mkdirSync(IMAGES, { recursive: true });
  browser = await launch();
  guarded = await Guarded.serve('registration');
  for (const id of ['S 1', 'T 2']) {
    assert.ok((await guarded.server.post(`/api/section/${encodeURIComponent(id)}/open`, { capacity: 5 })).ok);
  }
});

after(async () => {
  await browser?.close();
  await guarded?.end();
});

const of = (id: string, reason: string) =>
  `kind=section&id=${encodeURIComponent(id)}&reason=${encodeURIComponent(reason)}`;

test('the audit says who did what, to which entity, why, and how it ended', async () => {
  const empty = await guarded.open(browser, 'viewer', '#/audit');
  await empty.page.getByText('Nothing has been done yet').waitFor();
  await accessible(empty.page);

  await guarded.ask('operator', `/admin/quarantine?${of('S 1', 'it multiplies <b>')}`, 'POST');
  await guarded.ask('owner', `/admin/release?${of('S 1', 'it is mended')}`, 'POST');
  const refused = await guarded.ask('owner', '/admin/projection/rebuild?name=nothing', 'POST');
  assert.equal(refused.ok, false);
  const command = { name: 'add', body: { student: 'ann' } };
  assert.ok((await guarded.ask('operator', '/admin/entity/section/T%202/command', 'POST', command)).ok);

  // A page that is open sees what is done meanwhile.
  const row = (text: string) => empty.page.getByRole('row').filter({ hasText: text });
  await row('it multiplies <b>').getByText('the-operator').waitFor();
  await row('it multiplies <b>').getByText('quarantine', { exact: true }).waitFor();
  await row('it multiplies <b>').getByText('127.0.0.1').waitFor();
  await row('it is mended').getByText('the-owner').waitFor();
  await row('projection/rebuild').getByText('malformed').waitFor();
  await row('projection/rebuild').getByText('nothing').waitFor();
  await row('add').getByText('done').waitFor();
  assert.deepEqual(empty.wrong, []);
  await row('it multiplies <b>').getByRole('link', { name: 'section/S 1' }).click();
  await heading(empty.page, 'S 1');
  await empty.page.context().close();
});

test('the audit is filtered by person, action and entity, as its address says', async () => {
  await guarded.ask('owner', `/admin/quarantine?${of('S 1', 'filtered')}`, 'POST');
  await guarded.ask('owner', `/admin/release?${of('S 1', 'filtered again')}`, 'POST');
  await guarded.ask('operator', `/admin/quarantine?${of('T 2', 'of the operator')}`, 'POST');
  await guarded.ask('operator', `/admin/release?${of('T 2', 'of the operator, too')}`, 'POST');
  const { page, wrong } = await guarded.open(browser, 'viewer', '#/audit');
  const table = page.getByRole('table');
  await table.getByText('filtered again').waitFor();
  await page.getByLabel('Person').selectOption('the-owner');
  await table.getByText('of the operator', { exact: true }).waitFor({ state: 'detached' });
  await page.getByLabel('Action').selectOption('quarantine');
  await table.getByText('filtered again').waitFor({ state: 'detached' });
  await table.getByText('filtered', { exact: true }).waitFor();
  assert.match(page.url(), /by=the-owner&action=quarantine/);
  await page.getByLabel('Entity').fill('section/t');
  await page.getByText('0 actions shown').waitFor();
  await page.getByLabel('Person').selectOption('the-operator');
  await table.getByText('of the operator', { exact: true }).waitFor();
  await page.reload();
  await table.getByText('of the operator', { exact: true }).waitFor();
  assert.equal(await table.getByRole('row').count(), 2, 'its head and the action');
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('the audit is exported as lines, and older actions are found', async () => {
  // More events than one page of the API has.
  for (let count = 0; count < 130; count++) await guarded.ask('operator', '/admin/compact', 'POST');
  await guarded.ask('owner', `/admin/quarantine?${of('S 1', 'after all of them')}`, 'POST');
  await guarded.ask('owner', `/admin/release?${of('S 1', 'after all of them')}`, 'POST');
  const { page, wrong } = await guarded.open(browser, 'viewer', '#/audit?action=command', { acceptDownloads: true });
  await page.getByRole('row').filter({ hasText: 'add' }).waitFor();
  await page.getByLabel('Action').selectOption('');
  await page.getByText('100 actions shown').waitFor();
  await page.getByRole('button', { name: 'Look further back' }).click();
  await page.getByText('it multiplies <b>').waitFor();
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Export all' }).click();
  const lines = readFileSync(await (await downloading).path(), 'utf8')
    .trim()
    .split('\n');
  const { exported } = JSON.parse(lines.at(-1) ?? '');
  assert.equal(lines.length, exported + 1);
  assert.equal(JSON.parse(lines[0] ?? '').payload.reason, 'it multiplies <b>');
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('the audit fits and is accessible in both themes at each width', async () => {
  for (const theme of ['light', 'dark'] as Theme[]) {
    for (const width of [360, 1024, 1440]) {
      const viewport = { width, height: 900 };
      const { page, wrong } = await guarded.open(browser, 'viewer', '#/audit', { colorScheme: theme, viewport });
      await page.getByText('100 actions shown').waitFor();
      await fits(page);
      await accessible(page);
      await page.screenshot({ path: join(IMAGES, `audit-${theme}-${width}.png`) });
      assert.deepEqual(wrong, []);
      await page.context().close();
    }
  }
});
