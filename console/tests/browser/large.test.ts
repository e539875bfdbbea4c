import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, open } from './browser';
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

/** Fewer where a million are too many for the machine. */
const ENTITIES = Number(process.env.CONSOLE_ENTITIES ?? 1_000_000);
/** What the page's objects may take, whatever it has shown. */
const HEAP_BYTES_MAX = 100 << 20;

/** Bytes of the page's live objects. */
async function heapBytes(page: Page): Promise<number> {
  const debug = await page.context().newCDPSession(page);
  await debug.send('HeapProfiler.collectGarbage');
  const { usedSize } = await debug.send('Runtime.getHeapUsage');
  await debug.detach();
  return usedSize;
}

test('a million entities are searched and paged through, and the page holds those it shows', async (t: TestContext) => {
  const many = await Server.serve('registration', { sections: ENTITIES });
  try {
    const { page, wrong } = await open(browser, many, '#/map');
    await page.getByRole('link', { name: /section/ }).waitFor();
    const status = page.getByRole('status').filter({ hasText: /entit|first|to / });
    const timed = async (what: string, shown: RegExp | string) => {
      const begin = performance.now();
      await status.filter({ hasText: shown }).waitFor();
      t.diagnostic(`${what}: ${Math.round(performance.now() - begin)} ms`);
    };
    await go(page, '#/map/section');
    await timed('the first page', /^The first [\d,]+/);
    await page.getByRole('navigation', { name: 'Beginnings of ids' }).getByText('S1…').waitFor();
    const first = await heapBytes(page);
    for (let round = 1; round <= 4; round++) {
      const before = (await status.last().textContent()) ?? '';
      await page.getByRole('button', { name: 'The next ones' }).click();
      await page.waitForFunction(
        (before) =>
          [...document.querySelectorAll('[role=status]')].some(
            (one) => / to /.test(one.textContent ?? '') && one.textContent !== before,
          ),
        before,
      );
      await page.getByText('Loading …').waitFor({ state: 'detached' });
    }
    const last = await heapBytes(page);
    t.diagnostic(`objects: ${first >> 20} MiB, after five pages ${last >> 20} MiB`);
    assert.ok(last < HEAP_BYTES_MAX, `the page holds ${last} bytes`);

    const box = page.getByRole('searchbox');
    const named = (prefix: string) => {
      let count = 0;
      for (let number = Number(prefix), width = 1; number < ENTITIES; number *= 10, width *= 10)
        count += Math.min(width, ENTITIES - number);
      return count;
    };
    for (const prefix of ['77', '777', '7777', '77777']) {
      const count = named(prefix);
      await box.fill(`S${prefix}`);
      const text =
        count >= 10_000 ? /^(The first [\d,]+|[\d,]+ entit)/ : new RegExp(`^${count.toLocaleString('en')} entit`);
      await timed(`ids that begin with S${prefix}, ${count}`, text);
    }
    await box.fill('');
    await go(page, '#/map/section?as=list');
    await page.getByRole('link', { name: 'section/S0', exact: true }).waitFor();
    const rows = () => page.locator('tbody tr').count();
    assert.ok((await rows()) <= 200, 'not all are in the page at once');
    await page.getByRole('button', { name: /^Show 200 more/ }).click();
    await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 400);
    await fits(page);
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  } finally {
    await many.end();
  }
});
