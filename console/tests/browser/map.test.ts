import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE, WIDE } from './browser';
import { driver, send } from './commands';
import { Server, until } from './server';

let browser: Browser;
let server: Server;
let few: Server;
let commands: Page;

/** More than are asked for at once, and than a phone has room for. */
const SECTIONS = 4_000;

before(async () => {
  browser = await launch();
  const args = ['--durability', 'os'];
  [server, few] = await Promise.all([
    Server.serve('registration', { sections: SECTIONS, args }),
    Server.serve('registration'),
  ]);
  commands = await driver(browser, server);
  assert.equal((await few.post('/api/section/A/open', { capacity: 5 })).status, 200);
});

after(async () => {
  await browser?.close();
  await Promise.all([server?.end(), few?.end()]);
});

/** Counts what is drawn on canvases of tiles, and on those of them that are in no page any more. Plots draw before they are in the page. */
function count(): void {
  const counts = { tiles: 0, detached: 0 };
  Object.assign(globalThis, { counts });
  const known = new WeakSet<HTMLCanvasElement>();
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    if (this.canvas.closest('.tiles')) {
      if (this.canvas.isConnected) counts.tiles++;
      known.add(this.canvas);
    }
    if (!this.canvas.isConnected && known.has(this.canvas)) counts.detached++;
    clear.apply(this, area);
  };
}

const counted = (page: Page) =>
  page.evaluate(() => ({ ...(globalThis as unknown as { counts: { tiles: number; detached: number } }).counts }));

async function shown(page: Page): Promise<void> {
  await heading(page, 'section');
  await page.getByRole('status').getByText('4,000 entities').waitFor();
  await page.getByRole('img', { name: /tiles, one an entity/ }).waitFor();
}

test('a double click opens the tile that was clicked first, and no tile moves', async () => {
  for (const viewport of [WIDE, { width: 1024, height: 768 }]) {
    const { page, wrong } = await open(browser, server, '#/map/section', { viewport });
    await shown(page);
    const canvas = page.getByRole('img', { name: /tiles, one an entity/ });
    const size = async () => canvas.evaluate((canvas) => canvas.getBoundingClientRect().toJSON());
    const before = await size();
    for (const [x, y] of [
      [0.1, 0.1],
      [0.9, 0.1],
      [0.5, 0.5],
      [0.97, 0.8],
    ] as const) {
      const position = { x: Math.round(before.width * x), y: Math.round(before.height * y) };
      await canvas.hover({ position });
      const pointed = ((await canvas.getAttribute('title')) ?? '').replace(/, \d.*/, '');
      assert.match(pointed, /^S\d+$/);
      await canvas.click({ position });
      await page.locator('.chosen h2').getByText(pointed, { exact: true }).waitFor();
      assert.deepEqual(await size(), before, 'the tiles stand where they stood');
      await page.getByRole('button', { name: 'Close' }).click();
      await canvas.dblclick({ position });
      await heading(page, pointed);
      await page.goBack();
      await shown(page);
    }
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('a map that is left draws nothing any more', async () => {
  const { page, wrong } = await open(browser, server, '#/live');
  await page.evaluate(count);
  await go(page, '#/map/section');
  await shown(page);
  // Frames come when the test wants them. One that was asked for before can still be cancelled: the browser's numbers are above 0.
  await page.evaluate(() => {
    const frames = new Map<number, FrameRequestCallback>();
    Object.assign(globalThis, { frames });
    const cancel = globalThis.cancelAnimationFrame;
    let numbers = 0;
    globalThis.requestAnimationFrame = (paint) => {
      frames.set(--numbers, paint);
      return numbers;
    };
    globalThis.cancelAnimationFrame = (number) => {
      if (!frames.delete(number)) cancel(number);
    };
  });
  await page.setViewportSize({ width: 1300, height: 800 });
  let read = 0;
  page.on('response', (response) => {
    if (new URL(response.url()).pathname === '/admin/map/section') read++;
  });
  // By then the next picture was asked for, if there is to be one.
  await until('it was read anew', async () => {
    await send(commands, [{ entity: 'S1', command: 'add', body: { student: 'ann' } }]);
    return read >= 3;
  });
  await go(page, '#/live');
  await heading(page, 'Live');
  for (let round = 0; round < 5; round++) {
    await page.evaluate(() => {
      const { frames } = globalThis as unknown as { frames: Map<number, FrameRequestCallback> };
      const due = [...frames.values()];
      frames.clear();
      for (const paint of due) paint(performance.now());
    });
  }
  assert.equal((await counted(page)).detached, 0);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a map on which nothing happens is not drawn again', async () => {
  const { page, wrong } = await open(browser, few, '#/live');
  await page.evaluate(count);
  await go(page, '#/map/section');
  await page.getByRole('img', { name: '1 tile, one an entity' }).waitFor();
  const frames = (number: number) =>
    page.evaluate(async (number) => {
      for (let frame = 0; frame < number; frame++) await new Promise(requestAnimationFrame);
    }, number);
  await until('it is cold and still', async () => {
    const before = await counted(page);
    await frames(90);
    return (await counted(page)).tiles === before.tiles;
  });
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('what is hot is asked once for all tiles, and reading a page lights up nothing', async () => {
  const { page, wrong } = await open(browser, server, '#/live');
  const asked: string[] = [];
  page.on('request', (request) => asked.push(new URL(request.url()).pathname));
  await page.route('**/admin/hot?*', (route) =>
    route.fulfill({ json: { hot: [{ kind: 'section', id: 'S7', per_second: 500, share: 1 }], per_second: 500 } }),
  );
  await go(page, '#/map/section');
  await shown(page);
  const drawn = () =>
    page.evaluate(() => {
      const canvas = document.querySelector<HTMLCanvasElement>('.tiles-light');
      const data = canvas?.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
      let [first, last] = [-1, -1];
      for (let at = 3; at < data.length; at += 4) {
        if (!data[at]) continue;
        if (first < 0) first = (at - 3) / 4;
        last = (at - 3) / 4;
      }
      const width = canvas?.width ?? 1;
      return { top: Math.floor(first / width), bottom: Math.floor(last / width), width, height: canvas?.height ?? 0 };
    });
  // All sections are at work alike, page after page; the server names one.
  const all = Array.from({ length: SECTIONS }, (_, place) => ({
    entity: `S${place}`,
    command: 'add',
    body: { student: 'ann' },
  }));
  const pages = () => asked.filter((path) => path === '/admin/map/section').length;
  const before = pages();
  await until('each page was read anew', async () => {
    await send(commands, all);
    return pages() >= before + 4;
  });
  const { top, bottom, height } = await drawn();
  assert.ok(top >= 0, 'the one that is hot glows');
  assert.ok(bottom - top < height / 4, `from ${top} to ${bottom} of ${height} something glows`);
  assert.ok(asked.includes('/admin/hot'));
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('whoever wants little motion sees one picture a point', async () => {
  const { page, wrong } = await open(browser, server, '#/live', { reducedMotion: 'reduce' });
  await page.evaluate(count);
  let asked = 0;
  await page.route('**/admin/hot?*', (route) => {
    asked++;
    return route.fulfill({
      json: { hot: [{ kind: 'section', id: 'S7', per_second: 500, share: 1 }], per_second: 500 },
    });
  });
  await go(page, '#/map/section');
  await shown(page);
  await until('it glows', async () => {
    await send(commands, [{ entity: 'S1', command: 'add', body: { student: 'ann' } }]);
    return asked >= 2;
  });
  const [before, askedBefore] = [(await counted(page)).tiles, asked];
  await until('points have come', async () => {
    await send(commands, [{ entity: 'S1', command: 'add', body: { student: 'ann' } }]);
    return asked >= askedBefore + 3;
  });
  const pictures = (await counted(page)).tiles - before;
  // For each answer: what glows, and the tile and the glow of what has changed.
  assert.ok(pictures <= 4 * (asked - askedBefore + 1), `${pictures} pictures for ${asked - askedBefore} points`);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a map of a few or none takes no more room than they need', async () => {
  for (const viewport of [WIDE, PHONE]) {
    const { page, wrong } = await open(browser, few, '#/map/section?q=nobody', { viewport });
    await page.getByText('No id begins with nobody').waitFor();
    const scroll = () => page.evaluate(() => document.documentElement.scrollHeight - innerHeight);
    assert.ok((await scroll()) <= 0, `${await scroll()} px of nothing below`);
    await go(page, '#/map/section');
    await page.getByRole('img', { name: /tiles?, one an entity/ }).waitFor();
    const height = await page.locator('.tiles').evaluate((tiles) => tiles.clientHeight);
    assert.ok(height < 200, `few tiles are ${height} px high`);
    await fits(page);
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('how many of all are shown is said', async () => {
  const { page } = await open(browser, server, '#/map/section', { viewport: PHONE });
  await page
    .getByRole('status')
    .getByText(/^The first [\d,]+ of 4,000$/)
    .waitFor();
  await page.context().close();
});

test('a list is ordered by events, and a map shows only what is in trouble', async () => {
  for (const viewport of [WIDE, PHONE]) {
    const { page, wrong } = await open(browser, server, '#/map/section?as=list', { viewport });
    await page.getByRole('columnheader', { name: 'Events' }).getByRole('button').click();
    const events = page.locator('tbody tr td:nth-child(3)');
    await until('the one with most events is the first', async () => {
      await send(commands, [{ entity: 'S3999', command: 'add', body: { student: String(Math.random()) } }]);
      const counts = (await events.allTextContents()).map(Number);
      return Number(counts[0]) > 1 && counts.every((count, place) => count <= Number(counts[place - 1] ?? count));
    });
    assert.match(page.url(), /by=events/);
    await fits(page);
    await accessible(page);
    await page.getByLabel('Which entities').selectOption('In trouble');
    await page.getByText('None of these is in trouble').waitFor();
    await fits(page);
    await accessible(page);
    await page.getByRole('button', { name: 'Show all' }).click();
    await events.first().waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});

test('an id of a UUID stands on one line of a list at 360 px', async () => {
  const id = '0b5a1e0c-0000-4000-8000-000000000001';
  assert.ok((await few.post(`/api/section/${id}/open`, { capacity: 5 })).status < 500);
  const { page, wrong } = await open(browser, few, '#/map/section?as=list', { viewport: PHONE });
  const link = page.getByRole('link', { name: `section/${id}` });
  await link.waitFor();
  const height = await link.evaluate((link) => link.getBoundingClientRect().height);
  assert.ok(height < 60, `the id is ${height} px high`);
  await fits(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('rows of small tiles are labelled with the ids they begin with, where there is room', async () => {
  for (const viewport of [WIDE, PHONE]) {
    const { page, wrong } = await open(browser, server, '#/map/section', { viewport });
    await page.getByText(/^(4,000 entities|The first .*)$/).waitFor();
    const labels = page.locator('.tiles-labels text');
    if (viewport === PHONE) {
      assert.equal(await page.locator('.tiles-labels').isVisible(), false);
    } else {
      await labels.nth(2).waitFor();
      // At one glance: while more is loaded, rows between two looks come and go.
      const said = await page
        .locator('.tiles-labels')
        .evaluate((svg) => [...svg.querySelectorAll('text')].map(({ textContent }) => textContent));
      assert.equal(said[0], 'S0');
      assert.deepEqual(said, [...said].sort());
    }
    await fits(page);
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
});
