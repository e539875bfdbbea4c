/**
 * The console of pico-engine 1.x against `throng serve --app picos`. Its files are in no package: they are the directory
 * `packages/pico-engine/public` of the repository Picolab/pico-engine. Without ORIGINAL_CONSOLE, which names a copy, this is skipped.
 */

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { launch } from './browser';
import { PATIENCE_MS, Server, until } from './server';

const FILES = process.env.ORIGINAL_CONSOLE;
const skip = FILES === undefined && 'ORIGINAL_CONSOLE names no directory with the files of the original console';

const COUNTER = `ruleset original.counter {
  meta { version "1.2.3" shares count }
  global { count = function(of) { ent:count.defaultsTo(0) } }
  rule hit {
    select when counter hit
    send_directive("hit", {"by": event:attrs{"by"}})
    fired { ent:count := ent:count.defaultsTo(0) + event:attrs{"by"}.as("Number") }
  }
}`;

let browser: Browser;
let server: Server;
let rulesets: string;

before(async () => {
  if (!FILES) return;
  rulesets = mkdtempSync(join(tmpdir(), 'throng-rulesets-'));
  writeFileSync(join(rulesets, 'counter.krl'), COUNTER);
  browser = await launch();
  server = await Server.serve('picos', { env: { THRONG_PICOS_CONSOLE: FILES, THRONG_PICOS_FILES: rulesets } });
});

after(async () => {
  await browser?.close();
  await server?.end();
  if (rulesets) rmSync(rulesets, { recursive: true, force: true });
});

/** A page of the original console, and the errors of its scripts. */
async function original(): Promise<{ page: Page; wrong: string[] }> {
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  await page.goto(server.service);
  return { page, wrong };
}

const tab = (page: Page, name: string) => page.getByRole('link', { name, exact: true }).click();
const add = (page: Page, within: string) =>
  page.locator('form', { has: page.locator(within) }).getByRole('button', { name: 'Add' });

test('each tab of the original console does what it is for', { skip }, async () => {
  const { page, wrong } = await original();
  await page.locator('.pico-name-open-btn').click();

  // About: a child is made, renamed and deleted.
  const children = page.locator('form', { has: page.getByRole('button', { name: 'Add' }) });
  for (const name of ['Ann', 'Bob']) {
    await children.locator('input[type=text]').fill(name);
    await children.getByRole('button', { name: 'Add' }).click();
    await page.getByRole('listitem').filter({ hasText: name }).getByRole('button', { name: 'delete' }).waitFor();
  }
  await page.getByRole('listitem').filter({ hasText: 'Bob' }).getByRole('button', { name: 'delete' }).click();
  await page.getByRole('listitem').filter({ hasText: 'Bob' }).waitFor({ state: 'detached' });
  await page.locator('.card.open .card-body li', { hasText: 'Ann' }).getByRole('link').click();
  await page.getByText('Parent:').waitFor();
  const eciOfChild = page.url().split('/').at(-1);
  const own = page.locator('form', { has: page.getByRole('button', { name: 'Save' }) });
  await own.locator('input[type=text]').fill('Carl');
  await own.getByRole('button', { name: 'Save' }).click();
  await page.locator('.card-header-pico-name', { hasText: 'Carl' }).waitFor();

  // Rulesets: one that is not there is told, one that is there is installed and flushed.
  await tab(page, 'Rulesets');
  const url = page.getByLabel('URL');
  const install = page.getByRole('button', { name: /Install/ });
  await url.fill(`file://${rulesets}/missing.krl`);
  await install.click();
  await page.locator('.text-danger', { hasText: 'missing.krl' }).waitFor();
  await url.fill(`file://${rulesets}/counter.krl`);
  await install.click();
  await page.getByLabel('original.counter@1.2.3').check();
  await page.getByRole('button', { name: 'flush' }).click();
  await page.getByText('Last flushed:').waitFor();
  assert.deepEqual(wrong, []);

  // Channels: one is made with policies, looked into and deleted.
  await tab(page, 'Channels');
  await page.getByLabel('Tags').fill('One, two');
  await page.getByLabel('Event Policy').fill('allow counter:*\ndeny counter:drop');
  await page.getByLabel('Query Policy').fill('allow original.counter/*');
  await add(page, '#new-chann-tags').click();
  const made = page.locator('.form-check', { has: page.locator('.badge', { hasText: /^one$/ }) });
  await made.locator('input').check();
  await page.locator('.ml-3 .badge-danger', { hasText: 'deny' }).waitFor();
  assert.equal(await made.locator('.badge').count(), 2, 'its tags');

  // Testing: over that channel an event and a query of the ruleset's own.
  await tab(page, 'Testing');
  const eci = await page.locator('select option', { hasText: '#one' }).getAttribute('value');
  await page.locator('select').selectOption(eci);
  await page.getByLabel('original.counter').check();
  await page.getByPlaceholder('by').fill('5');
  await page.locator('form.border-warning').getByRole('button').click();
  await page.locator('pre', { hasText: '"hit"' }).waitFor();
  await page
    .locator('form.border-primary', { has: page.getByRole('button', { name: 'count' }) })
    .getByRole('button')
    .click();
  await page.locator('pre', { hasText: /^5$/ }).waitFor();

  // Logging: what has been done stands there.
  await tab(page, 'Logging');
  await page
    .locator('label', { hasText: 'counter:hit' })
    .or(page.locator('label', { hasText: 'counter hit' }))
    .first()
    .click();
  await page.locator('.pico-logging-tab pre').first().waitFor();

  await tab(page, 'Channels');
  await made.getByRole('button', { name: 'delete' }).click();
  await made.waitFor({ state: 'detached' });

  // Subscriptions: the parent asks the child, which accepts.
  await tab(page, 'Subscriptions');
  const heading = await page
    .getByRole('heading', { name: /^Subscriptions - / })
    .filter({ hasText: /[0-9a-f]{48}/ })
    .textContent();
  await page.getByRole('link', { name: 'Close' }).click();

  // The canvas: a pico stays where it was dragged to.
  const card = page.locator('.card.pico', { hasText: 'Carl' });
  // Waits until it stands still.
  await card.hover({ position: { x: 10, y: 90 } });
  await page.mouse.down();
  const before = await card.boundingBox();
  assert.ok(before);
  await page.mouse.move(before.x + 210, before.y + 190, { steps: 5 });
  await page.mouse.up();
  const child = `${server.service}/c/${eciOfChild}/query/io.picolabs.pico-engine-ui/box`;
  await until('the place is kept', async () => (await (await fetch(child)).json()).x > 200);
  await page.reload();
  await page.locator('.pico-name-open-btn', { hasText: 'Pico' }).click();
  await tab(page, 'Subscriptions');
  await page.getByPlaceholder('wellKnown_Tx').fill(heading?.split(' - ')[1] ?? '');
  await page.getByPlaceholder('Rx_role').fill('teacher');
  await page.getByPlaceholder('Tx_role').fill('student');
  await add(page, '[placeholder=wellKnown_Tx]').click();
  await page.getByRole('heading', { name: 'Outbound' }).waitFor();
  await page.getByRole('link', { name: 'Close' }).click();
  await page.locator('.pico-name-open-btn', { hasText: 'Carl' }).click();
  await tab(page, 'Subscriptions');
  await page.getByRole('heading', { name: 'Inbound' }).waitFor();
  await page.locator('input[id^=sub-]').check();
  await page.getByRole('button', { name: 'Accept' }).click();
  await page.getByRole('heading', { name: 'Established' }).waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});
