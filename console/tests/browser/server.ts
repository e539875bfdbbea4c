/** A server of the project on a free port, with a directory of its own; it ends with the test. */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const PROGRAMS = process.env.THRONG_PROGRAMS ?? join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'debug');

/** A program of the project. */
export const program = (name: string): string => join(PROGRAMS, name);

/** How long anything may take on a busy machine. */
export const PATIENCE_MS = Number(process.env.PATIENCE_MS ?? 120_000);
const LOOK_AGAIN_MS = 50;

export interface Options {
  args?: string[];
  env?: Record<string, string>;
  /** So many sections, each with one event, are there before it starts. */
  sections?: number;
}

export class Server {
  private child: ChildProcess | undefined;
  private said = '';

  /** The ports it took at its first start; it has them again at the next. */
  private ports = { service: '0', admin: '0' };

  private constructor(
    private readonly directory: string,
    private readonly command: string[],
    private readonly env: Record<string, string>,
  ) {}

  /** `APP serve`, once it answers. */
  static async serve(app: string, { args = [], env = {}, sections = 0 }: Options = {}): Promise<Server> {
    const directory = mkdtempSync(join(tmpdir(), 'throng-console-'));
    const data = join(directory, 'data');
    if (sections > 0) fill(data, sections);
    const server = new Server(directory, [program(app), 'serve', '--data', data, ...args], env);
    try {
      await server.start();
    } catch (error) {
      // One that is left would keep the test from its end.
      await server.end();
      throw error;
    }
    return server;
  }

  get console(): string {
    return `http://127.0.0.1:${this.ports.admin}/console/`;
  }

  get service(): string {
    return `http://127.0.0.1:${this.ports.service}`;
  }

  async start(): Promise<void> {
    const [name = '', ...args] = this.command;
    const { service, admin } = this.ports;
    const listen = ['--listen', `127.0.0.1:${service}`, '--admin-listen', `127.0.0.1:${admin}`];
    this.said = '';
    const child = spawn(name, [...args, ...listen], {
      env: { ...process.env, ...this.env, NO_COLOR: '1' },
      cwd: this.directory,
    });
    child.stdout?.on('data', (data: Buffer) => this.hear(data));
    child.stderr?.on('data', (data: Buffer) => this.hear(data));
    this.child = child;
    await until(`the server answers`, async () => {
      if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}:\n${this.said}`);
      this.ports = { service: this.saidPort('listening'), admin: this.saidPort('administration and metrics') };
      const answered = await fetch(`${this.service}/health/ready`).catch(() => undefined);
      return answered?.ok === true;
    });
  }

  /** As a power loss would: nothing is said to anybody. */
  async kill(): Promise<void> {
    const child = this.child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await ended;
  }

  /** Stops, changes what is recorded line by line, and starts again. */
  async rewrite(change: (line: string) => string): Promise<void> {
    await this.kill();
    const [name = '', , , data = ''] = this.command;
    const file = join(this.directory, 'export.jsonl');
    execFileSync(name, ['journal', 'export', data, '--output', file], { stdio: 'ignore' });
    const lines = readFileSync(file, 'utf8').split('\n');
    writeFileSync(file, lines.map(change).join('\n'));
    rmSync(data, { recursive: true });
    execFileSync(name, ['journal', 'import', '--unchecked', '--input', file, '--to', data], { stdio: 'ignore' });
    await this.start();
  }

  async end(): Promise<void> {
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** A command over the service's own API. */
  async post(path: string, body: unknown = {}): Promise<Response> {
    const headers = { 'content-type': 'application/json' };
    return fetch(this.service + path, { method: 'POST', headers, body: JSON.stringify(body) });
  }

  private saidPort(what: string): string {
    return new RegExp(`${what} on https?://[0-9.]+:(\\d+)`).exec(this.said)?.[1] ?? '0';
  }

  private hear(data: Buffer): void {
    this.said = (this.said + data.toString()).slice(-20_000);
  }
}

/** Writes sections S0, S1, … without a server. */
function fill(data: string, sections: number): void {
  const what = ['yardstick', 'fill', '--data', data, '--sections', String(sections), '--events', '0'];
  execFileSync(program('throng-lab'), what, { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** Waits for a condition; says what was waited for if it does not come about. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const begin = Date.now();
  while (!(await holds())) {
    if (Date.now() - begin > PATIENCE_MS) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}
