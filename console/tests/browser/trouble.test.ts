import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, launch, open, PHONE, type Theme } from './browser';
import { Server, until } from './server';

let browser: Browser;
let picos: Server;
let shows: Server;

before(async () => {
  browser = await launch();
  [picos, shows] = await Promise.all([Server.serve('picos'), Server.serve('shows')]);
});

after(async () => {
  await browser?.close();
  await Promise.all([picos?.end(), shows?.end()]);
});

const admin = (server: Server, path: string) => fetch(new URL(path, server.console)).then((answer) => answer.json());

/** A message to a pico that nobody has made: it is dead. */
async function die(): Promise<void> {
  const { eci } = await admin(picos, '/api/ui-context');
  const nobody = 'f'.repeat(48);
  const asked = { wellKnown_Tx: nobody, Rx_role: 'a', Tx_role: 'b', name: 'nobody', channel_type: 'test' };
  await picos.post(`/sky/event/${eci}/1/wrangler/subscription`, asked);
  await until('a message is dead', async () => {
    const { messages } = await admin(picos, '/admin/dead');
    return messages.length > 0;
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
