import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, open, PHONE, type Theme, WIDE } from './browser';
import { Server } from './server';

/** Pictures of the screen, to be looked at. */
const IMAGES = fileURLToPath(new URL('../images', import.meta.url));
const HOSTILE = '<img src=x onerror=alert(1)>';

let browser: Browser;
let server: Server;

before(async () => {
  browser = await launch();
  server = await Server.serve('registration');
  mkdirSync(IMAGES, { recursive: true });
});

after(async () => {
  await browser?.close();
  await server?.end();
});

const drain = (name: string) => ({
  ...{ name: 'drain', label: 'Drain', method: 'POST', path: `/admin/cluster/drain?name=${name}`, needs_reason: false },
  confirm: `${name} gives its 128 shards to the others.`,
});

interface Node {
  name: string;
  state?: string;
  shards: string;
  owns: number;
  commands?: number;
}

function node(number: number, { name, state = 'serving', shards, owns, commands }: Node) {
  const series = { commands: commands ?? null, queries: 3, latency_p99_ms: number, in_flight: 2 };
  return {
    ...{ node: number, name, state, shards, owns, connected: true, wants_drain: false, apart: null },
    ...{ http: `http://127.0.0.1:808${number}`, peer: `127.0.0.1:740${number}`, program: 'registration 1.4.0' },
    silent_ms: number === 1 ? null : 10,
    console: `${server.console}?node=${number}`,
    now:
      commands === undefined ? null : { at: 1, series, memory: 91_000_000, busiest_loop: 0.4 * number, limits: 'loop' },
    actions: state === 'serving' ? [drain(name)] : [],
  };
}

const whole = {
  ...{ cluster: 'x', node: 1, shards: 256, unowned: '', lease_ms: 3000, reaches: [2, 3], changes: 1 },
  ...{ last_change_ms: 2, asked: 0, not_here: 0, unknown: 0, two_primaries: null },
};

const three = () => ({
  ...{ ...whole, version: 1, pinned: { b: '100-109' } },
  nodes: [
    node(1, { name: 'a', shards: '0-99', owns: 100, commands: 900 }),
    node(2, { name: 'b', shards: '100-199', owns: 100, commands: 1_100 }),
    node(3, { name: 'c', shards: '200-255', owns: 56, commands: 500 }),
  ],
});

/** Has the page see a cluster. */
async function clustered(page: Page, answer: () => object): Promise<void> {
  await page.route('**/admin/overview', async (route) => {
    const response = await route.fetch();
    const found = (await response.json()) as { console: object };
    await route.fulfill({ response, json: { ...found, console: { ...found.console, cluster: true } } });
  });
  await page.route('**/admin/cluster/nodes', (route) => route.fulfill({ json: answer() }));
  await page.reload();
}

async function end(page: Page): Promise<void> {
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
}

test('all nodes of a cluster stand on one page, in each theme and width', async () => {
  for (const colorScheme of ['light', 'dark'] as Theme[]) {
    for (const viewport of [WIDE, { width: 1024, height: 800 }, PHONE]) {
      const { page, wrong } = await open(browser, server, '#/cluster', { colorScheme, viewport });
      await clustered(page, three);
      await heading(page, 'Cluster');
      const figure = (label: string) =>
        page.locator('.figure', { has: page.getByText(label, { exact: true }) }).locator('dd');
      await figure('Commands a second').filter({ hasText: '2.50 k' }).waitFor();
      await figure('Slowest p99').filter({ hasText: 'c' }).waitFor();
      await figure('Nodes that serve').filter({ hasText: '3 of 3' }).waitFor();
      const rows = page.getByRole('region', { name: 'Nodes' }).locator('tbody tr');
      assert.equal(await rows.count(), 3);
      await rows.nth(1).getByText('1.10 k').waitFor();
      await page.locator('.plot canvas').waitFor();
      assert.equal(await page.locator('.lane').count(), 3);
      assert.equal(await page.locator('.lane').nth(1).locator('.pinned').count(), 1);
      await fits(page);
      await accessible(page);
      const picture = join(IMAGES, `cluster-${viewport.width}-${colorScheme}.png`);
      await page.screenshot({ path: picture, fullPage: true });
      assert.deepEqual(wrong, []);
      await end(page);
    }
  }
});

test('nodes that have ended or are not connected are told apart, and pins to nobody are told', async () => {
  const seen = () => ({
    ...{ ...whole, version: 1, reaches: [2], unowned: '254', pinned: { b: '0-9,17', [HOSTILE]: '200-201' } },
    nodes: [
      node(1, { name: 'a', shards: '10-16,18-253', owns: 243, commands: 1 }),
      node(2, { name: 'b', shards: '0-9,17', owns: 11 }),
      node(3, { name: 'c', state: 'left', shards: '', owns: 0 }),
      node(4, { name: 'd', state: 'dead', shards: '255', owns: 1 }),
      { ...node(5, { name: 'e', shards: '', owns: 0 }), connected: false },
    ],
  });
  for (const viewport of [WIDE, PHONE]) {
    const { page, wrong } = await open(browser, server, '#/cluster', { viewport });
    await clustered(page, seen);
    const rows = page.getByRole('region', { name: 'Nodes' }).locator('tbody tr');
    for (const [name, state] of [
      ['a', 'serving'],
      ['b', 'serving'],
      ['c', 'left'],
      ['d', 'dead'],
      ['e', 'gone?'],
    ] as const) {
      await rows
        .filter({ hasText: `http://127.0.0.1:808${'abcde'.indexOf(name) + 1}` })
        .getByText(state, { exact: true })
        .waitFor();
    }
    await page.getByText('Nobody owns the shards 254 now.').waitFor();
    await page.getByText(`2 shards (200-201) pinned to ${HOSTILE}, and no node of that name lives`).waitFor();
    await page.getByText('Without b, e: it does not say what it does.').waitFor();
    await page.locator('.lane').nth(1).getByText('Which').click();
    await page.getByText('11 shards pinned to it').waitFor();
    await fits(page);
    await accessible(page);
    assert.deepEqual(wrong, []);
    await end(page);
  }
});

test('a drain asks before it is done, and the shards that move then are named', async () => {
  const { page, wrong } = await open(browser, server, '#/cluster');
  const asked: string[] = [];
  await clustered(page, () => {
    const seen = three();
    if (asked.length === 0) return seen;
    seen.version = 2;
    seen.nodes = [
      node(1, { name: 'a', shards: '0-149', owns: 150, commands: 900 }),
      node(2, { name: 'b', state: 'draining', shards: '', owns: 0, commands: 0 }),
      node(3, { name: 'c', shards: '150-255', owns: 106, commands: 500 }),
    ];
    return seen;
  });
  await page.route('**/admin/cluster/drain?*', (route) => {
    asked.push(new URL(route.request().url()).search);
    return route.fulfill({ json: { asked: 'b' } });
  });
  await page.getByText('Nothing has moved').waitFor();
  await page.getByRole('button', { name: 'Drain: b' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('b gives its 128 shards to the others.').waitFor();
  assert.deepEqual(asked, []);
  await accessible(page);
  await dialog.getByRole('button', { name: 'Drain' }).click();
  const told = page.getByRole('list', { name: 'Moves' });
  await told.getByText('50 shards from b to a').waitFor();
  await told.getByText('50 shards from b to c').waitFor();
  assert.deepEqual(asked, ['?name=b']);
  assert.deepEqual(wrong, []);
  await end(page);
});

test('shards are pinned to a node after a look at how many they are', async () => {
  const { page, wrong } = await open(browser, server, '#/cluster', { viewport: PHONE });
  await clustered(page, three);
  const asked: string[] = [];
  await page.route('**/admin/cluster/pin?*', (route) => {
    asked.push(new URL(route.request().url()).search);
    return route.fulfill({ json: { pinned: '0-9,17', to: 'c' } });
  });
  const field = page.getByLabel('Shards', { exact: true });
  const pin = page.getByRole('button', { name: /^Pin/ });
  await field.fill('0-256');
  await page.getByText('These are none').waitFor();
  assert.equal(await pin.isDisabled(), true);
  await field.fill('0-9, 17');
  await page.getByLabel('To', { exact: true }).selectOption('c');
  await pin.click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('11 shards: 0-9, 17').waitFor();
  await dialog.getByText('Their owners give them to c at once.').waitFor();
  await dialog.getByRole('button', { name: 'Pin', exact: true }).click();
  await page.getByText('Pin: done.').waitFor();
  assert.deepEqual(asked, ['?shards=0-9%2C17&to=c']);
  assert.deepEqual(wrong, []);
  await end(page);
});

test('another node is chosen on every screen, and its console opens at the same place', async () => {
  const { page, wrong } = await open(browser, server);
  await clustered(page, () => {
    const seen = three();
    const last = seen.nodes[2];
    if (last) last.console = null as unknown as string;
    return seen;
  });
  const choice = page.getByLabel('Node', { exact: true });
  for (const hash of ['#/live', '#/map', '#/entity', '#/trouble', '#/journal', '#/cluster']) {
    await go(page, hash);
    await choice.waitFor();
    assert.equal(await choice.locator('option:checked').textContent(), 'a');
  }
  assert.equal(await choice.locator('option', { hasText: 'reached on its own machine only' }).isDisabled(), true);
  await go(page, '#/trouble');
  await heading(page, 'Trouble');
  await choice.selectOption('2');
  await page.waitForURL(/\?node=2#\/trouble$/);
  assert.deepEqual(wrong, []);
  await end(page);
});

test('a service without nodes has neither the screen of a cluster nor a choice of nodes', async () => {
  const { page } = await open(browser, server);
  await heading(page, 'Live');
  await page.getByRole('navigation', { name: 'Console' }).getByText('Trouble').waitFor();
  assert.equal(await page.getByRole('link', { name: 'Cluster' }).count(), 0);
  assert.equal(await page.getByLabel('Node', { exact: true }).count(), 0);
  await page.context().close();
});
