import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE, type Theme } from './browser';
import { Server } from './server';

let browser: Browser;
let empty: Server;
let filled: Server;

/** Markup and the like as names: shown as it is, or the page runs it and the test sees that. */
const HOSTILE = [
  '<img src=x onerror=alert(1)>',
  '"><script>alert(2)</script>',
  "javascript:alert('3')//",
  '../../etc?at=1#x%',
  '𝕊🎓 Ünïcödé\u202e',
];

before(async () => {
  browser = await launch();
  [empty, filled] = await Promise.all([Server.serve('registration'), Server.serve('registration')]);
  for (const id of ['C S 142-1', 'C S 142-2', 'MATH 113-1', ...HOSTILE]) {
    const path = `/api/section/${encodeURIComponent(id)}`;
    assert.equal((await filled.post(`${path}/open`, { capacity: 30 })).status, 200);
    for (const student of ['ann', 'bob', ...HOSTILE]) await filled.post(`${path}/add`, { student });
    await filled.post(`${path}/drop`, { student: 'bob' });
  }
});

after(async () => {
  await browser?.close();
  await Promise.all([empty?.end(), filled?.end()]);
});

const SCREENS: [name: string, hash: string, heading: string][] = [
  ['live', '#/live', 'Live'],
  ['map', '#/map', 'Map'],
  ['map of a kind', '#/map/section', 'section'],
  ['list of a kind', '#/map/section?as=list', 'section'],
  ['choice of an entity', '#/entity', 'Entity'],
  ['trouble', '#/trouble', 'Trouble'],
  ['journal', '#/journal', 'Journal'],
  ['audit', '#/audit', 'Audit'],
];

const OF_AN_ENTITY: typeof SCREENS = [
  ['entity', '#/entity/section/C%20S%20142-1', 'C S 142-1'],
  ['entity in the past', '#/entity/section/C%20S%20142-1?at=3&with=1', 'C S 142-1'],
  ['command of an entity', '#/entity/section/C%20S%20142-1?tab=command', 'C S 142-1'],
  ['family of an entity', '#/entity/section/C%20S%20142-1?tab=around', 'C S 142-1'],
];

for (const theme of ['light', 'dark'] as Theme[]) {
  for (const isPhone of [false, true]) {
    const how = `${theme}, ${isPhone ? '360 px' : 'wide'}`;
    const options = { colorScheme: theme, ...(isPhone && { viewport: PHONE }) };

    test(`every screen of an empty system is shown, fits and is accessible: ${how}`, async () => {
      const { page, wrong } = await open(browser, empty, '#/live', options);
      for (const [name, hash, title] of SCREENS) {
        await go(page, hash);
        await heading(page, title);
        await page.getByText('Loading').waitFor({ state: 'detached' });
        await fits(page);
        await accessible(page);
        assert.deepEqual(wrong, [], name);
      }
      await page.context().close();
    });

    test(`every screen of a system at work is shown, fits and is accessible: ${how}`, async () => {
      const { page, wrong } = await open(browser, filled, '#/live', options);
      for (const [name, hash, title] of [...SCREENS, ...OF_AN_ENTITY]) {
        await go(page, hash);
        await heading(page, title);
        await page.getByText('Loading').waitFor({ state: 'detached' });
        await fits(page);
        await accessible(page);
        assert.deepEqual(wrong, [], name);
      }
      await page.context().close();
    });
  }
}

test('an empty system says what will appear and how', async () => {
  const { page, wrong } = await open(browser, empty);
  await page.getByText('Nothing has been asked yet').waitFor();
  await go(page, '#/map/section');
  await page.getByText('No section yet').waitFor();
  await go(page, '#/trouble');
  await page.getByText('All is well').waitFor();
  await go(page, '#/journal');
  await page.getByText('No projections').waitFor();
  await go(page, '#/entity/section/none');
  await page.getByText('Not found').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('hostile names and payloads are text wherever they are shown', async () => {
  const { page, wrong } = await open(browser, filled, '#/map/section?as=list');
  for (const id of HOSTILE) {
    await go(page, '#/map/section?as=list');
    await page.getByRole('link', { name: id, exact: false }).first().click();
    await heading(page, id);
    await page.getByRole('list', { name: 'State', exact: true }).getByText(id, { exact: false }).first().waitFor();
    assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script').length), 0);
  }
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a command is sent from its form, and what came of it is seen at once', async () => {
  const { page, wrong } = await open(browser, filled, '#/entity/section/MATH%20113-1?tab=command');
  await page.getByRole('combobox', { name: 'Command' }).selectOption('add');
  await page.getByLabel('student').fill('zoe');
  await page.getByRole('button', { name: 'What if' }).click();
  await page.getByText('It would be done.').waitFor();
  const before = await (await fetch(`${filled.service}/api/section/MATH%20113-1`)).json();
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('Done.').waitFor();
  const then = await (await fetch(`${filled.service}/api/section/MATH%20113-1`)).json();
  assert.notDeepEqual(before, then);
  await page.getByRole('tab', { name: 'State and history' }).click();
  await page.locator('.event.open').getByText('"zoe"').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a number that is none is said at its field, and nothing is sent', async () => {
  const { page } = await open(browser, filled, '#/entity/section/new');
  await page.getByRole('combobox', { name: 'Command' }).selectOption('open');
  await page.getByLabel('capacity').fill('many');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('expected a number').waitFor();
  assert.equal(await page.getByLabel('capacity').getAttribute('aria-invalid'), 'true');
  await page.context().close();
});

test('the slider shows the state as of an event, and its place is in the address', async () => {
  const { page, wrong } = await open(browser, filled, '#/entity/section/C%20S%20142-2');
  const state = page.getByRole('list', { name: 'State', exact: true });
  await state.getByText('"ann"').waitFor();
  await page.getByRole('slider').fill('1');
  await page.getByRole('heading', { name: 'State as of event 1' }).waitFor();
  await state.getByText('"ann"').waitFor({ state: 'detached' });
  assert.match(page.url(), /at=1$/);
  await page.getByRole('button', { name: 'Compare' }).click();
  await page.getByLabel('Compared with event').fill('2');
  await page.getByRole('list', { name: 'What differs from event 1 to event 2' }).getByText('"ann"').waitFor();
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByRole('heading', { name: 'State', exact: true }).waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('what happens is followed as it happens', async () => {
  const { page, wrong } = await open(browser, filled, '#/entity/section/C%20S%20142-1');
  await page.getByText('Now of 9').waitFor();
  await filled.post('/api/section/C%20S%20142-1/add', { student: 'follower' });
  await page.locator('.event.open').getByText('"follower"').waitFor();
  await page.locator('.event.open').getByText('caused by').waitFor();
  await page.getByText('Now of 10').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('ids are found as they are typed', async () => {
  const { page } = await open(browser, filled, '#/map/section?as=list');
  await page.getByRole('link', { name: 'section/MATH 113-1' }).waitFor();
  await page.getByRole('searchbox').fill('C S');
  await page.getByRole('link', { name: 'section/MATH 113-1' }).waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'section/C S 142-1' }).waitFor();
  await page.getByRole('searchbox').fill('Nobody');
  await page.getByText('No id begins with Nobody').waitFor();
  await page.context().close();
});
