import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, go, heading, launch, open } from './browser';
import { Server } from './server';

let browser: Browser;
let server: Server;

before(async () => {
  browser = await launch();
  server = await Server.serve('registration');
  for (const id of ['A 1', 'A 2', 'B 1']) {
    await server.post(`/api/section/${encodeURIComponent(id)}/open`, { capacity: 5 });
  }
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('two keys lead to each screen', async () => {
  const { page, wrong } = await open(browser, server);
  await heading(page, 'Live');
  for (const [key, title] of [
    ['m', 'Map'],
    ['e', 'Entity'],
    ['t', 'Trouble'],
    ['j', 'Journal'],
    ['a', 'Audit'],
    ['l', 'Live'],
  ] as const) {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await heading(page, title);
  }
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('help opens with a key, holds the focus, and gives it back', async () => {
  const { page } = await open(browser, server);
  await heading(page, 'Live');
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.closest('dialog')?.open), true);
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.context().close();
});

test('two keys open the palette on any screen, and it opens what is found', async () => {
  const { page, wrong } = await open(browser, server);
  const palette = page.getByRole('dialog', { name: 'Find anything' });
  const found = (name: string | RegExp) => palette.getByRole('option', { name });
  for (const [hash, key] of [
    ['#/live', '/'],
    ['#/trouble', 'Control+k'],
    ['#/journal', '/'],
    ['#/map', 'Control+k'],
  ] as const) {
    await go(page, hash);
    await heading(page, /^(Live|Trouble|Journal|Map)$/);
    await page.keyboard.press(key);
    await palette.waitFor();
    await page.keyboard.type('section/B');
    await found('section/B 1').waitFor();
    await page.keyboard.press('Enter');
    await heading(page, 'B 1');
  }
  // Ctrl-K also where somebody types, and what was viewed comes first.
  await page.getByLabel('Go to').focus();
  await page.keyboard.press('Control+k');
  await page.keyboard.type('B');
  await palette.getByRole('group', { name: 'Recently viewed' }).getByRole('option', { selected: true }).waitFor();
  await palette.getByRole('combobox').fill('jour');
  await found(/Journal/).waitFor();
  await page.keyboard.press('Enter');
  await heading(page, 'Journal');
  // Kinds and actions, by any part and with the arrows.
  await page.keyboard.press('/');
  await palette.getByRole('combobox').fill('collection');
  await palette.getByRole('group', { name: 'Kinds' }).getByRole('option', { selected: true }).waitFor();
  await page.keyboard.press('ArrowDown');
  await palette.getByRole('group', { name: 'Actions' }).getByRole('option', { selected: true }).waitFor();
  await accessible(page);
  await page.keyboard.press('Enter');
  await heading(page, 'Create a collection');
  await page.keyboard.press('/');
  await palette.getByRole('combobox').fill('no such thing');
  await palette.getByText('Nothing found').waitFor();
  await accessible(page);
  await page.keyboard.press('Escape');
  await palette.waitFor({ state: 'detached' });
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('an entity is found, opened, and taken back in time without a mouse', async () => {
  const { page, wrong } = await open(browser, server, '#/map/section');
  await heading(page, 'section');
  await page.getByRole('group', { name: 'All of section' }).waitFor();
  await page.getByRole('searchbox').fill('A');
  await page.getByText('2 entities').waitFor();
  await page.getByRole('group', { name: 'All of section' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await heading(page, 'A 2');
  await page.getByRole('slider').focus();
  await page.keyboard.press('ArrowLeft');
  await page.getByText('before the first event').waitFor();
  await page.getByRole('tab', { name: 'State and history' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('tab', { name: 'What if', selected: true }).waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('all that can be reached by tab shows where the focus is', async () => {
  const { page } = await open(browser, server, '#/entity/section/A%201');
  await heading(page, 'A 1');
  await page.getByRole('list', { name: 'State', exact: true }).waitFor();
  const unseen: string[] = [];
  for (let steps = 0; steps < 40; steps++) {
    await page.keyboard.press('Tab');
    const found = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return undefined;
      const { outlineStyle, outlineWidth } = getComputedStyle(element);
      return outlineStyle === 'none' || outlineWidth === '0px' ? element.outerHTML.slice(0, 200) : '';
    });
    if (found === undefined) break;
    if (found !== '') unseen.push(found);
  }
  assert.deepEqual(unseen, []);
  await page.context().close();
});
