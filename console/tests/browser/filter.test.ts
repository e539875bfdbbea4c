import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE } from './browser';
import { Server } from './server';

let browser: Browser;
let server: Server;

before(async () => {
  browser = await launch();
  server = await Server.serve('registration');
  for (const [id, capacity] of [
    ['BIO 1', 3],
    ['CHEM 1', 1],
    ['C S 142', 1],
    ['ZOO 9', 40],
  ] as const) {
    const path = `/api/section/${encodeURIComponent(id)}`;
    assert.equal((await server.post(`${path}/open`, { capacity })).status, 200);
    assert.equal((await server.post(`${path}/add`, { student: 'ann' })).status, 200);
  }
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('entities are filtered by the fields that their kind names, and the list shows these', async () => {
  for (const viewport of [undefined, PHONE]) {
    const { page, wrong } = await open(browser, server, '#/map/section?as=list', { ...(viewport && { viewport }) });
    await heading(page, 'section');
    await page.getByText('Fields: capacity, taken, remaining, student').waitFor();
    const where = page.getByRole('textbox', { name: 'Where' });
    await where.fill('taken >= 1, remaining = 0');
    await where.press('Enter');
    await page.getByText('2 entities of 4 examined').waitFor();
    assert.match(page.url(), /where=taken/);
    assert.deepEqual(
      (await page.getByRole('table').getByRole('link').allTextContents()).filter((text) => text.startsWith('section/')),
      ['section/C S 142', 'section/CHEM 1'],
    );
    assert.ok((await page.getByRole('table').textContent())?.includes('remaining'));
    await fits(page);
    await accessible(page);
    await where.fill('seats = 1');
    await where.press('Enter');
    await page.getByRole('alert').getByText('the kind has no field "seats"').waitFor();
    await fits(page);
    await accessible(page);
    await where.fill('capacity > 100');
    await where.press('Enter');
    await page.getByText('No section matches').waitFor();
    await page.getByRole('button', { name: 'Show all' }).click();
    await page.getByText('4 entities').waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('the same filter again sees what has changed', async () => {
  const { page, wrong } = await open(browser, server, '#/map/section?where=taken%20%3D%202');
  await page.getByText('No section matches').waitFor();
  assert.equal((await server.post('/api/section/BIO%201/add', { student: 'bob' })).status, 200);
  await page.getByRole('button', { name: 'Filter again' }).click();
  await page.getByText('1 entity of 4 examined').waitFor();
  await go(page, '#/map/collection');
  await heading(page, 'collection');
  assert.equal(
    await page.getByRole('textbox', { name: 'Where' }).count(),
    0,
    'a kind that names no fields has no filter',
  );
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('the palette finds the sections of a student by the student alone', async () => {
  for (const id of ['BIO%201', 'ZOO%209'])
    assert.equal((await server.post(`/api/section/${id}/add`, { student: '10482213' })).status, 200);
  const { page, wrong } = await open(browser, server);
  await heading(page, 'Live');
  await page.keyboard.press('/');
  const palette = page.getByRole('dialog', { name: 'Find anything' });
  await palette.getByRole('combobox').fill('10482213');
  const group = palette.getByRole('group', { name: 'Entities with this in a field' });
  await group.getByRole('option', { name: 'section/ZOO 9' }).waitFor();
  assert.equal(await group.getByRole('option').count(), 2);
  await accessible(page);
  await palette.getByRole('combobox').fill('1048221');
  await palette.getByText('Nothing found').waitFor();
  await palette.getByRole('combobox').fill('section/10482213');
  await group.getByRole('option', { name: 'section/BIO 1' }).waitFor();
  await page.keyboard.press('Enter');
  await heading(page, 'BIO 1');
  await go(page, '#/map/section?as=list&where=student%20%3D%2010482213');
  await page.getByText('2 entities of 4 examined').waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});
