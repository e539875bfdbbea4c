import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { fits, heading, launch, open } from './browser';
import { driver, send } from './commands';
import { Server } from './server';

let browser: Browser;
let server: Server;
let commands: Page;

before(async () => {
  browser = await launch();
  server = await Server.serve('registration', { args: ['--durability', 'os'] });
  commands = await driver(browser, server);
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('an entity with a state of a mebibyte is shown, and no more of it is in the page than is open', async () => {
  const { page, wrong } = await open(browser, server);
  const names = Array.from({ length: 4_400 }, (_, place) => ({
    entity: 'large',
    command: 'add',
    body: { student: `${place} ${'x'.repeat(240)}` },
  }));
  assert.equal(await send(commands, [{ entity: 'large', command: 'open', body: { capacity: 10_000 } }, ...names]), 0);
  await page.evaluate(() => {
    location.hash = '#/entity/section/large';
  });
  await heading(page, 'large');
  await page.getByText(/1\.\d\d MiB/).waitFor();
  await page.getByRole('button', { name: /4,400 elements/ }).click();
  await page.getByRole('button', { name: 'Show more of 4,300 others' }).waitFor();
  const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
  assert.ok(nodes < 5_000, `the page has ${nodes} elements`);
  await fits(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('an entity with a hundred thousand events is travelled through by pages', async () => {
  const { page, wrong } = await open(browser, server);
  const changes = Array.from({ length: 100_000 }, (_, place) => ({
    entity: 'long',
    command: place % 2 === 0 ? 'add' : 'drop',
    body: { student: 'ann' },
  }));
  assert.equal(await send(commands, [{ entity: 'long', command: 'open', body: { capacity: 5 } }, ...changes]), 0);
  await page.evaluate(() => {
    location.hash = '#/entity/section/long';
  });
  await heading(page, 'long');
  await page.getByText('Now of 100,001').waitFor();
  await page.getByRole('slider').fill('50002');
  await page.getByRole('heading', { name: 'State as of event 50,002' }).waitFor();
  await page.locator('.event.open').getByText('Added').waitFor();
  await page.getByRole('list', { name: 'State', exact: true }).getByText('"ann"').waitFor();
  await page.getByRole('button', { name: 'Older events' }).click();
  await page
    .getByText(/^49,9\d\d$/)
    .first()
    .waitFor();
  const rows = await page.locator('.event').count();
  assert.ok(rows <= 500, `${rows} events are in the page`);
  assert.deepEqual(wrong, []);
  await page.context().close();
});
