/** Commands in numbers, over the service's own socket. */

import type { Browser, Page } from 'playwright-core';
import type { Server } from './server';

/** A page of the service itself, from which its socket may be opened. */
export async function driver(browser: Browser, server: Server): Promise<Page> {
  const page = await (await browser.newContext()).newPage();
  await page.goto(`${server.service}/health/live`);
  return page;
}

export interface Command {
  entity: string;
  command: string;
  body: unknown;
}

/** Sends commands to sections and waits for the answers; how many of them were problems. */
export async function send(page: Page, commands: Command[]): Promise<number> {
  return page.evaluate(async (commands) => {
    const socket = new WebSocket(`ws://${location.host}/api/ws`, 'throng.v1');
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error('the socket does not open'));
    });
    let answered = 0;
    let failed = 0;
    const done = new Promise<void>((resolve, reject) => {
      socket.onclose = () => reject(new Error('the socket is closed'));
      socket.onmessage = ({ data }) => {
        for (const message of [JSON.parse(data)].flat()) {
          if (message.type === 'problem') failed++;
          if (message.type === 'problem' || message.type === 'reply') answered++;
        }
        if (answered === commands.length) resolve();
      };
    });
    for (let first = 0; first < commands.length; first += 1000) {
      const frame = commands
        .slice(first, first + 1000)
        .map((one) => ({ type: 'command', id: 1, kind: 'section', ...one }));
      socket.send(JSON.stringify(frame));
    }
    await done;
    socket.onclose = null;
    socket.close();
    return failed;
  }, commands);
}

/** Has the requests go by, over and over, in a surge that swells and ebbs, until the page is closed. */
export async function surge(page: Page, requests: Command[]): Promise<void> {
  await page.evaluate(async (requests) => {
    const socket = new WebSocket(`ws://${location.host}/api/ws`, 'throng.v1');
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = () => reject(new Error('the socket does not open'));
    });
    let place = 0;
    setInterval(() => {
      if (socket.bufferedAmount > 1_000_000) return;
      const now = Math.round(30 + 90 * (1 + Math.sin(Date.now() / 6000)));
      const some = Array.from({ length: now }, () => requests[place++ % requests.length]);
      socket.send(JSON.stringify(some.map((one) => ({ type: 'command', id: 1, kind: 'section', ...one }))));
    }, 100);
  }, requests);
}
