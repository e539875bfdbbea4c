/** Tokens of administration, one for each role. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, BrowserContextOptions } from 'playwright-core';
import { type Opened, open } from './browser';
import { program, Server } from './server';

export type Role = 'metrics' | 'viewer' | 'operator' | 'owner';

const ROLES: Role[] = ['metrics', 'viewer', 'operator', 'owner'];

/** A server whose administration knows `the-viewer` and the like. */
export class Guarded {
  private constructor(
    readonly server: Server,
    private readonly directory: string,
    private readonly tokens: Record<Role, string>,
  ) {}

  static async serve(app: string): Promise<Guarded> {
    const directory = mkdtempSync(join(tmpdir(), 'throng-roles-'));
    const file = join(directory, 'admin-tokens');
    const made = ROLES.map((role): [Role, string] => {
      const args = ['token', `the-${role}`, '--role', role, '--admin-tokens', file];
      const said = execFileSync(program(app), args, { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
      return [role, /throng_\S+/.exec(said)?.[0] ?? ''];
    });
    const server = await Server.serve(app, { args: ['--admin-tokens', file] });
    return new Guarded(server, directory, Object.fromEntries(made) as Record<Role, string>);
  }

  get file(): string {
    return join(this.directory, 'admin-tokens');
  }

  /** A page of somebody with this role. */
  async open(browser: Browser, role: Role, hash: string, options: BrowserContextOptions = {}): Promise<Opened> {
    const opened = await open(browser, this.server, hash, options);
    // The token is the tab's own.
    await opened.page.evaluate((token) => sessionStorage.setItem('throng-token', token), this.tokens[role]);
    await opened.page.reload();
    return opened;
  }

  ask(role: Role, path: string, method = 'GET', body?: object): Promise<Response> {
    const headers = { authorization: `Bearer ${this.tokens[role]}`, 'content-type': 'application/json' };
    const url = new URL(path, this.server.console);
    return fetch(url, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  }

  async end(): Promise<void> {
    await this.server.end();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
