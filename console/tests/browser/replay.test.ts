import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE } from './browser';
import { type Command, driver, send, surge } from './commands';
import { program, Server, until } from './server';

/** Where pictures go: the book's own only when they are asked for, since no two runs make the same. */
const IMAGES = process.env.CONSOLE_IMAGES ?? fileURLToPath(new URL('../images', import.meta.url));

let browser: Browser;
let server: Server;
/** The section with the most requests of the day. */
let busiest = '';
/** Of it this is shown. */
const SHOWN = 12;
/** The map reads so many pages, one a second. */
const PAGES = 6;

interface Requests {
  sections: Command[];
  requests: Command[];
}

/** The built-in registration day: 5,393 sections, 44,504 requests. */
function day(): Requests {
  const directory = mkdtempSync(join(tmpdir(), 'throng-day-'));
  const [capacities, requests] = [join(directory, 'capacities'), join(directory, 'requests')];
  execFileSync(program('throng'), ['trace', 'generate', '--capacities', capacities, '--requests', requests], {
    stdio: 'ignore',
  });
  const lines = (file: string) =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => line !== '');
  const found: Requests = {
    sections: lines(capacities).map((line) => {
      const [entity = '', seats = '0'] = line.split('\t');
      return { entity, command: 'open', body: { capacity: Number(seats) } };
    }),
    requests: lines(requests).map((line) => {
      const [student = '', entity = '', , , operation = ''] = line.split(',');
      return { entity, command: operation.trim().toLowerCase().startsWith('d') ? 'drop' : 'add', body: { student } };
    }),
  };
  rmSync(directory, { recursive: true, force: true });
  return found;
}

before(async () => {
  browser = await launch();
  server = await Server.serve('registration', { args: ['--durability', 'os'] });
  const { sections, requests } = day();
  const asked = new Map<string, number>();
  for (const { entity } of requests) asked.set(entity, (asked.get(entity) ?? 0) + 1);
  busiest = [...asked].reduce((one, other) => (other[1] > one[1] ? other : one))[0];
  const page = await driver(browser, server);
  assert.equal(await send(page, sections), 0);
  await surge(page, requests);
});

after(async () => {
  await browser?.close();
  await server?.end();
});

test('5,393 sections are drawn during a replay, and those at work glow', async () => {
  const { page, wrong } = await open(browser, server, '#/map/section');
  await page.getByText('5,393 entities').waitFor();
  const hues = () =>
    page.evaluate(() => {
      const seen = new Set<string>();
      // The tiles, and what glows above them.
      for (const canvas of document.querySelectorAll<HTMLCanvasElement>('.tiles canvas')) {
        const pixels = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data ?? [];
        for (let place = 0; place < pixels.length; place += 4 * 7) seen.add(pixels.slice(place, place + 4).join());
      }
      return seen.size;
    });
  await until('tiles of many shades are drawn', async () => (await hues()) > 50);
  await page.getByRole('group', { name: 'All of section' }).focus();
  await page.keyboard.press('End');
  await page.getByRole('link', { name: 'Open' }).waitFor();
  await accessible(page);
  await fits(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('the curves rise while the day goes by, and the hot sections are named', async () => {
  const { page, wrong } = await open(browser, server, '#/live');
  await until(
    'commands are counted',
    async () => Number(((await page.locator('.figure dd').first().textContent()) ?? '').replace(/\D/g, '')) > 0,
  );
  await until('a plot is drawn', async () => (await page.locator('.u-over').count()) >= 8);
  await page.locator('.hot-list a').first().waitFor();
  assert.deepEqual(wrong, []);
  await page.context().close();
});

interface Shown {
  console: string;
  hasBegun: () => Promise<boolean>;
  hasEnded: () => Promise<boolean>;
  end: () => void;
}

/** Where the pictures are taken: the midnight of `throng demo` for the book, the requests of this test for all others. */
async function shown(): Promise<Shown> {
  if (!process.env.CONSOLE_IMAGES) {
    const is = async () => true;
    return { console: server.console, hasBegun: is, hasEnded: is, end: () => undefined };
  }
  const data = mkdtempSync(join(tmpdir(), 'throng-midnight-'));
  const child = spawn(program('throng'), ['demo', '--pace', 'midnight', '--durability', 'os', '--data', data]);
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text: Buffer) => {
      said += text.toString();
    });
  }
  const console = () => /console +(http:\S+)/.exec(said)?.[1];
  await until('the demo names its console', async () => console() !== undefined);
  const end = () => {
    child.kill('SIGKILL');
    rmSync(data, { recursive: true, force: true });
  };
  const says = (what: RegExp) => async () => what.test(said);
  // In its last seconds: then the engine is started again.
  return { console: `${console()}/`, hasBegun: says(/replaying/), hasEnded: says(/ \d s left|replayed/), end };
}

test('pictures for the book are made of a surge, in both themes and at the width of a phone', async () => {
  mkdirSync(IMAGES, { recursive: true });
  const size = { width: 1280, height: 800 };
  const day = await shown();
  const of = { console: day.console } as Server;
  const themes = ['light', 'dark'] as const;
  const opened = await Promise.all(
    themes.map((colorScheme) => open(browser, of, '#/map/section', { viewport: size, colorScheme })),
  );
  const phone = await open(browser, of, '#/map/section', { viewport: PHONE });
  try {
    const each = async (take: (page: Page, suffix: string) => Promise<void>) => {
      for (const [place, { page }] of opened.entries()) await take(page, themes[place] === 'dark' ? '-dark' : '');
    };
    await each(async (page) => page.getByText('5,393 entities').waitFor());
    await until('the surge has begun', day.hasBegun);
    const second = async () => (await (await fetch(new URL('/admin/series', day.console))).json()).now;
    const begun = await second();
    await until('all pages of the map were read again', async () => (await second()) >= begun + PAGES);
    await each(async (page, suffix) => {
      await page.waitForFunction(() => document.querySelector('canvas')?.width ?? 0 > 100);
      await page.screenshot({ path: join(IMAGES, `console-map${suffix}.png`) });
    });
    await heading(phone.page, 'section');
    await fits(phone.page);
    await phone.page.screenshot({ path: join(IMAGES, 'console-phone.png') });
    await until('the busiest section has the events that are shown', async () => {
      const history = `/admin/entity/section/${encodeURIComponent(busiest)}/history?after=${SHOWN}&limit=1`;
      const { events } = await (await fetch(new URL(history, day.console))).json();
      return events.length > 0;
    });
    await each(async (page, suffix) => {
      await go(page, `#/entity/section/${encodeURIComponent(busiest)}?at=${SHOWN}`);
      await page.getByRole('heading', { name: `State as of event ${SHOWN}` }).waitFor();
      await page.locator('.event.open').waitFor();
      await page.screenshot({ path: join(IMAGES, `console-entity${suffix}.png`) });
      await go(page, '#/live');
      await page.locator('.plot canvas').first().waitFor();
    });
    await until('the midnight is over', day.hasEnded);
    await each((page, suffix) =>
      page.screenshot({ path: join(IMAGES, `console-live${suffix}.png`) }).then(() => undefined),
    );
    assert.deepEqual(
      [...opened, phone].flatMap(({ wrong }) => wrong),
      [],
    );
  } finally {
    for (const { page } of [...opened, phone]) await page.context().close();
    day.end();
  }
});
