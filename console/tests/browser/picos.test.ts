import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE, type Theme } from './browser';
import { Server } from './server';

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

test('each view of a pico fits a phone and is accessible in both themes', async () => {
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    const { page, wrong } = await open(browser, server, '#/picos', { colorScheme, viewport: PHONE });
    await heading(page, 'Picos');
    const eci = await page.getByRole('list', { name: 'Picos' }).getByRole('link').first().getAttribute('href');
    for (const tab of ['rulesets', 'channels', 'log', 'try']) {
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
