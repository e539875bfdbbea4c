/** Pages of the system's Chromium that fail a test by what goes wrong in them: errors, refused scripts, styles or requests. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page, type Route } from 'playwright-core';
import { PATIENCE_MS, type Server } from './server';

export type Theme = 'light' | 'dark';

export const WIDE = { width: 1440, height: 900 };
export const PHONE = { width: 360, height: 740 };

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Work on the page without building the program each time: scripts and styles come from this directory, all else from the server. */
const FILES = process.env.CONSOLE_FILES;

async function own(route: Route, directory: string): Promise<void> {
  const name = new URL(route.request().url()).pathname.slice('/console/'.length);
  await route.fulfill({ path: join(directory, name) });
}

export async function launch(): Promise<Browser> {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--force-color-profile=srgb'] });
}

export interface Opened {
  page: Page;
  /** What went wrong in the page so far. */
  wrong: string[];
}

export async function open(
  browser: Browser,
  server: Server,
  hash = '#/live',
  options: BrowserContextOptions = {},
): Promise<Opened> {
  const context = await browser.newContext({ viewport: WIDE, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  if (FILES) await context.route('**/console/*.*', (route) => own(route, FILES));
  const wrong: string[] = [];
  page.on('pageerror', (error) => wrong.push(`${error.message}\n${error.stack ?? ''}`));
  page.on('console', (message) => {
    // That a request was answered with a problem, or not at all, is what some tests are about.
    if (message.type() === 'error' && !/Failed to load resource|WebSocket connection/.test(message.text()))
      wrong.push(message.text());
  });
  page.on('dialog', (dialog) => {
    wrong.push(`a script said ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(server.console + hash);
  return { page, wrong };
}

/** Goes to another place of the page. */
export async function go(page: Page, hash: string): Promise<void> {
  await page.evaluate((to) => {
    location.hash = to;
  }, hash);
}

/** The page has no violation that axe finds. */
export async function accessible(page: Page): Promise<void> {
  // By the debugger: the page's own policy lets no script in.
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => {
    const axe = (globalThis as unknown as { axe: { run: (what: Document) => Promise<{ violations: Violation[] }> } })
      .axe;
    interface Violation {
      id: string;
      help: string;
      nodes: { html: string; failureSummary?: string }[];
    }
    const { violations } = await axe.run(document);
    return violations.map(
      ({ id, help, nodes }) =>
        `${id}: ${help}\n${nodes.map((node) => `${node.html}\n${node.failureSummary ?? ''}`).join('\n')}`,
    );
  });
  assert.deepEqual(violations, []);
}

/** Nothing stands beyond the right edge. */
export async function fits(page: Page): Promise<void> {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok((content ?? 0) <= (window ?? 0), `the page is ${content} wide in a window of ${window}`);
}

export async function heading(page: Page, name: string | RegExp): Promise<void> {
  await page.getByRole('heading', { level: 1, name }).waitFor();
}
