import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { accessible, fits, go, heading, launch, type Theme } from './browser';
import { Guarded, type Role } from './roles';
import { until } from './server';

const IMAGES = fileURLToPath(new URL('../images', import.meta.url));

let browser: Browser;
let guarded: Guarded;
let picos: Guarded;

before(async () => {
  mkdirSync(IMAGES, { recursive: true });
  browser = await launch();
  [guarded, picos] = await Promise.all([Guarded.serve('registration'), Guarded.serve('picos')]);
  assert.ok((await guarded.server.post('/api/section/S/open', { capacity: 5 })).ok);
});

after(async () => {
  await browser?.close();
  await Promise.all([guarded?.end(), picos?.end()]);
});

const LACKS = (role: Role, needs: Role) => `the-${role} has the role ${role}, and this needs ${needs}.`;

/** Why a button does nothing; null where it does something. */
async function why(page: Page, name: string | RegExp): Promise<string | null> {
  const button = page.getByRole('button', { name, exact: true });
  await button.waitFor();
  return (await button.getAttribute('aria-disabled')) === 'true' ? button.getAttribute('title') : null;
}

test('a role that is too small has its buttons with the reason, and they do nothing', async () => {
  const seen: Record<string, (string | null)[]> = {};
  for (const role of ['viewer', 'operator', 'owner'] as const) {
    const { page, wrong } = await guarded.open(browser, role, '#/entity/section/S');
    await page.getByText(`the-${role}, ${role}`).waitFor();
    seen[role] = [await why(page, 'Quarantine'), await why(page, 'Erase')];
    // Somebody presses it all the same.
    await page.getByRole('button', { name: 'Erase' }).click({ force: true });
    if (role === 'owner') await page.getByRole('dialog').waitFor();
    else {
      await page
        .getByRole('alert')
        .filter({ hasText: LACKS(role, 'owner') })
        .waitFor();
      assert.equal(await page.getByRole('dialog').count(), 0);
    }
    await accessible(page);
    assert.deepEqual(wrong, []);
    await page.context().close();
  }
  assert.deepEqual(seen, {
    viewer: [LACKS('viewer', 'operator'), LACKS('viewer', 'owner')],
    operator: [null, LACKS('operator', 'owner')],
    owner: [null, null],
  });
});

test('a viewer tries a command and cannot send it, by its button or by a key', async () => {
  const { page, wrong } = await guarded.open(browser, 'viewer', '#/entity/section/S?tab=command');
  const { page: other } = await guarded.open(browser, 'operator', '#/entity/section/S?tab=command');
  assert.equal(await why(other, 'Send'), null);
  assert.equal(await why(page, 'Send'), LACKS('viewer', 'operator'));
  await page.getByRole('combobox', { name: 'Command' }).selectOption('add');
  await page.getByLabel('student').fill('ann');
  await page.getByRole('button', { name: 'What if' }).click();
  await page.getByText('It would be done.').waitFor();
  await page.getByLabel('student').fill('bob');
  await page.getByLabel('student').press('Enter');
  await page.getByText('It would be done.').waitFor();
  const { seq } = await (await guarded.ask('viewer', '/admin/entity/section/S')).json();
  assert.equal(seq, 1, 'nothing was sent');
  // Nobody creates what they may not create.
  await page.keyboard.press('Control+k');
  const palette = page.getByRole('dialog', { name: 'Find anything' });
  await palette.getByRole('combobox').fill('Change the theme');
  await palette.getByRole('group', { name: 'Actions' }).waitFor();
  await palette.getByRole('combobox').fill('Create a');
  await palette.getByText('Nothing found').waitFor();
  assert.deepEqual(wrong, []);
  await Promise.all([page.context().close(), other.context().close()]);
});

test('a token of metrics opens no screen, and is told why', async () => {
  const { page, wrong } = await guarded.open(browser, 'metrics', '#/live');
  await heading(page, 'Not with this token');
  await page.getByText('the-metrics has the role metrics in administration, and this needs viewer.').waitFor();
  await accessible(page);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a role that was taken back while the page is open stops its actions, not its sight', async () => {
  const { page, wrong } = await guarded.open(browser, 'operator', '#/entity/section/S');
  assert.equal(await why(page, 'Quarantine'), null);
  await page.getByRole('button', { name: 'Quarantine' }).click();
  await page.getByLabel(/^Why/).fill('too late');
  const before = readFileSync(guarded.file, 'utf8');
  writeFileSync(guarded.file, before.replace('operator the-operator', 'viewer the-operator'));
  const release = () => guarded.ask('operator', '/admin/release?kind=section&id=S', 'POST');
  await until('the role is smaller', async () => (await release()).status === 403);
  await page.getByRole('dialog').getByRole('button', { name: 'Quarantine' }).click();
  await page.getByRole('alert').filter({ hasText: 'the-operator has the role viewer' }).waitFor();
  await page.keyboard.press('Escape');
  await heading(page, 'S');
  await page.locator('button[aria-disabled="true"]', { hasText: 'Quarantine' }).waitFor();
  writeFileSync(guarded.file, before);
  await until('the role is there again', async () => (await release()).status !== 403);
  assert.deepEqual(wrong, []);
  await page.context().close();
});

test('a viewer of picos sees them, and has nothing that changes or tries them', async () => {
  const { page: other } = await picos.open(browser, 'operator', '#/picos');
  await other.getByRole('tab', { name: 'Editor' }).waitFor();
  await other.getByRole('button', { name: 'Install' }).waitFor();
  const { page, wrong } = await picos.open(browser, 'viewer', '#/picos?tab=try');
  await page.getByText(`Nothing of it can be changed or tried here: ${LACKS('viewer', 'operator')}`).waitFor();
  await page.getByRole('list', { name: 'Rulesets' }).waitFor();
  for (const tab of ['Variables', 'Channels', 'Log', 'Map']) await page.getByRole('tab', { name: tab }).click();
  assert.equal(await page.getByRole('tab', { name: /^(Editor|Try)$/ }).count(), 0);
  assert.equal(await page.getByRole('button', { name: /^(Install|Rename|Make a child)$/ }).count(), 0);
  await accessible(page);
  assert.deepEqual(wrong, []);
  await Promise.all([page.context().close(), other.context().close()]);
});

test('buttons by role fit and are accessible in both themes at each width', async () => {
  for (const theme of ['light', 'dark'] as Theme[]) {
    for (const width of [360, 1024, 1440]) {
      const viewport = { width, height: 900 };
      const { page, wrong } = await guarded.open(browser, 'viewer', '#/entity/section/S', {
        colorScheme: theme,
        viewport,
      });
      // By force: a button that says it is disabled is pressed all the same.
      await page.getByRole('button', { name: 'Erase' }).click({ force: true });
      await page
        .getByRole('alert')
        .filter({ hasText: LACKS('viewer', 'owner') })
        .waitFor();
      await fits(page);
      await accessible(page);
      await page.screenshot({ path: join(IMAGES, `roles-${theme}-${width}.png`) });
      await go(page, '#/entity/section/S?tab=command');
      await page.getByRole('button', { name: 'Send' }).waitFor();
      await accessible(page);
      await page.screenshot({ path: join(IMAGES, `roles-command-${theme}-${width}.png`) });
      assert.deepEqual(wrong, []);
      await page.context().close();
    }
  }
});
