import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser } from 'playwright-core';
import { accessible, fits, launch, open, PHONE, type Theme, WIDE } from './browser';
import { Server, until } from './server';

const IMAGES = fileURLToPath(new URL('../images', import.meta.url));

let browser: Browser;
let bank: Server;

before(async () => {
  browser = await launch();
  bank = await Server.serve('bank');
  mkdirSync(IMAGES, { recursive: true });
  for (const [path, body] of [
    ['ann/open', {}],
    ['bob/open', {}],
    ['ann/deposit', { cents: 100 }],
    ['ann/transfer', { to: 'bob', cents: 30 }],
  ] as const) {
    assert.ok((await bank.post(`/api/account/${path}`, body)).ok, path);
  }
  await until('the transfer has ended', async () => {
    const { seq } = await (await fetch(new URL('/admin/entity/account/ann', bank.console))).json();
    return seq === 4;
  });
});

after(async () => {
  await browser?.close();
  await bank?.end();
});

test('all that a transfer has brought about stands on one timeline, from whichever account one comes', async () => {
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    for (const viewport of [WIDE, { width: 1024, height: 800 }, PHONE]) {
      const { page, wrong } = await open(browser, bank, '#/entity/account/bob?at=2', { colorScheme, viewport });
      await page.getByRole('link', { name: 'Timeline of its cause' }).click();
      const steps = page.getByRole('list', { name: 'Timeline of one cause' }).getByRole('listitem');
      await steps.nth(2).waitFor();
      const said = await steps.allTextContents();
      assert.equal(said.length, 3);
      assert.match(said[0] ?? '', /account\/ann.*transfer_started/);
      assert.match(said[1] ?? '', /account\/bob.*received.*this one/);
      assert.match(said[2] ?? '', /account\/ann.*transfer_finished.*by the outcome/);
      await page.getByText('3 events of 2 entities').waitFor();
      const tops = await steps.evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
      assert.deepEqual(
        tops,
        [...tops].sort((one, other) => one - other),
      );
      await fits(page);
      await accessible(page);
      await page.screenshot({ path: join(IMAGES, `trace-${viewport.width}-${colorScheme}.png`) });
      assert.deepEqual(wrong, []);
      await page.context().close();
    }
  }
});

test('an outcome shows the note of its request', async () => {
  const { page, wrong } = await open(browser, bank, '#/entity/account/ann?at=4');
  await page.getByText('caused by the answer of account/bob, asked with the note 1').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});
