import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { accessible, go, heading, launch, open } from './browser';
import { Server } from './server';

let browser: Browser;

before(async () => {
  browser = await launch();
});

after(async () => browser?.close());

test('a server that goes away is said, and one that comes back is seen without a reload', async () => {
  const server = await Server.serve('registration');
  try {
    await server.post('/api/section/A/open', { capacity: 3 });
    const { page, wrong } = await open(browser, server, '#/entity/section/A');
    await heading(page, 'A');
    await page.getByText('Connected', { exact: true }).waitFor();
    await server.kill();
    await page.getByText('The server does not answer. What you see').waitFor();
    await page.getByText('Not connected').waitFor();
    await accessible(page);
    // Drawings that were not shown before are in the page.
    const lacks = await page.evaluate(() => {
      const drawn = [...document.querySelectorAll('use')].map((use) => use.getAttribute('href') ?? '');
      return drawn.filter((name) => !name.startsWith('#') || !document.querySelector(name));
    });
    assert.deepEqual(lacks, []);
    await server.start();
    await page.getByText('Connected', { exact: true }).waitFor();
    await page.getByRole('alert').waitFor({ state: 'detached' });
    await server.post('/api/section/A/add', { student: 'after' });
    await page.locator('.event.open').getByText('"after"').waitFor();
    assert.deepEqual(wrong, []);
  } finally {
    await server.end();
  }
});

const TOKEN = 'a-token-of-32-characters-0123456';

test('without a token it is asked for, a wrong one is said to be wrong, the right one opens and stays in its tab', async () => {
  const server = await Server.serve('registration', { env: { THRONG_ADMIN_TOKEN: TOKEN } });
  try {
    const { page, wrong } = await open(browser, server, '#/journal');
    await heading(page, 'Enter the token');
    await accessible(page);
    await page.getByLabel('Token for administration').fill('wrong');
    await page.getByRole('button', { name: 'Open the console' }).click();
    await heading(page, 'Wrong token');
    await page.getByLabel('Token for administration').fill(TOKEN);
    await page.keyboard.press('Enter');
    await heading(page, 'Journal');
    await page.getByText('Connected', { exact: true }).waitFor();
    // The socket, too, is let in by it: points come.
    await go(page, '#/live');
    await page.getByText('Commands a second').waitFor();
    assert.deepEqual(
      await page.evaluate(
        (token) => [
          sessionStorage.getItem('throng-token') === token,
          JSON.stringify(localStorage).includes(token),
          document.cookie,
        ],
        TOKEN,
      ),
      [true, false, ''],
    );
    await page.reload();
    await heading(page, 'Live');
    const other = await open(browser, server);
    await heading(other.page, 'Enter the token');
    assert.deepEqual(wrong, []);
  } finally {
    await server.end();
  }
});

test('the page holds to its own policy: nothing inline, nothing from elsewhere', async () => {
  const server = await Server.serve('registration');
  try {
    const answered = await fetch(server.console);
    const policy = answered.headers.get('content-security-policy') ?? '';
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe/);
    const { page } = await open(browser, server);
    const asked: string[] = [];
    page.on('request', (request) => asked.push(new URL(request.url()).host));
    await page.reload();
    await heading(page, 'Live');
    await page.getByText('Connected', { exact: true }).waitFor();
    assert.deepEqual([...new Set(asked)], [new URL(server.console).host]);
  } finally {
    await server.end();
  }
});
