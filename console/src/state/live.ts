/** The socket of `/admin/live`: a point a second, and the events of entities that are followed. It comes back by itself. */

import { batch, signal } from '@preact/signals';
import * as calls from '../api/calls';
import { connection, epoch, Failure, token, wantsToken } from '../api/client';
import type { EntityEvent, Hot, Limits, Point } from '../api/types';
import { Series } from '../lib/series';
import * as service from './service';

const PROTOCOL = 'throng.console.v1';
/** From one attempt to connect to the next; it doubles up to the second. */
const RETRY_MS = 500;
const RETRY_MS_MAX = 8_000;
/** Without a point for so long the socket is taken for dead. */
const SILENCE_MS = 15_000;

export const series = new Series();
/** Rises with each point: who draws the series reads it. */
export const tick = signal(0);
export const limits = signal<Limits | null>(null);
export const hot = signal<Hot[]>([]);
export const loops = signal<string[]>([]);
/** The reasons of refusals there are. */
export const reasons = signal<string[]>([]);

interface Followed {
  kind: string;
  id: string;
  after: number;
  event: (event: EntityEvent) => void;
  ended: (reason: string) => void;
}

const followed = new Map<number, Followed>();
let numbers = 0;
let socket: WebSocket | undefined;
let retry = RETRY_MS;
let timer: ReturnType<typeof setTimeout> | undefined;

export function start(): void {
  void connect();
  // A changed token means another caller: all is asked anew.
  let known = epoch.value;
  epoch.subscribe((value) => {
    if (value === known) return;
    known = value;
    if (!comes) reconnect();
  });
  addEventListener('online', reconnect);
  // Somebody was answered while the socket still waits for its next try.
  connection.subscribe((state) => {
    if (state === 'up' && !socket && !isConnecting) reconnect();
  });
}

/** Whether the epoch has risen because a connection came about. */
let comes = false;

/** At once, whatever was planned. */
export function reconnect(): void {
  clearTimeout(timer);
  retry = RETRY_MS;
  socket?.close();
  socket = undefined;
  void connect();
}

let isConnecting = false;

async function connect(): Promise<void> {
  isConnecting = true;
  await answered();
  isConnecting = false;
}

/** Loads what has been, then opens the socket; what fails is tried again later. */
async function answered(): Promise<void> {
  try {
    const [page] = await Promise.all([calls.series(), service.load()]);
    if (wantsToken.value !== undefined) wantsToken.value = undefined;
    take(page);
  } catch (failure) {
    // Who is not let in is asked for a token, and only then tried again.
    if (failure instanceof Failure && wantsToken.value !== undefined) return;
    connection.value = 'lost';
    again();
    return;
  }
  comes = true;
  epoch.value++;
  comes = false;
  open();
}

function take(page: Awaited<ReturnType<typeof calls.series>>): void {
  series.clear();
  page.times.forEach((at, place) => {
    const of = (columns: Record<string, (number | null)[]>, group: string) =>
      Object.entries(columns).map(([name, column]) => [group + name, column[place] ?? null] as const);
    const all = [
      ...of(page.series, ''),
      ...of(page.refusals, 'refusals.'),
      ...of(page.memory, 'memory.'),
      ...of(page.loops, 'loops.'),
    ];
    series.add(at, Object.fromEntries(all));
  });
  batch(() => {
    limits.value = page.limits;
    loops.value = Object.keys(page.loops);
    reasons.value = Object.keys(page.refusals);
    tick.value++;
  });
}

function open(): void {
  const given = token();
  const protocols = given ? [PROTOCOL, `throng.bearer.${base64url(given)}`] : [PROTOCOL];
  const url = new URL('/admin/live', location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const opened = new WebSocket(url, protocols);
  socket = opened;
  let silence = setTimeout(() => opened.close(), SILENCE_MS);
  opened.onmessage = (message) => {
    clearTimeout(silence);
    silence = setTimeout(() => opened.close(), SILENCE_MS);
    if (socket === opened) hear(JSON.parse(String(message.data)) as Frame);
  };
  opened.onclose = (close) => {
    clearTimeout(silence);
    if (socket !== opened) return;
    socket = undefined;
    if (close.code === 4401) {
      wantsToken.value = 'The token is not taken any more.';
      return;
    }
    connection.value = 'lost';
    again();
  };
}

type Frame =
  | { type: 'hello' }
  | Point
  | { type: 'event'; subscription: number; event: EntityEvent }
  | { type: 'ended'; subscription: number; reason: string }
  | { type: 'problem'; detail: string };

function hear(frame: Frame): void {
  if (connection.value !== 'up') connection.value = 'up';
  switch (frame.type) {
    case 'hello':
      retry = RETRY_MS;
      for (const [number, wanted] of followed) subscribe(number, wanted);
      break;
    case 'point':
      point(frame);
      break;
    case 'event': {
      const wanted = followed.get(frame.subscription);
      if (!wanted) break;
      wanted.after = frame.event.seq;
      wanted.event(frame.event);
      break;
    }
    case 'ended':
      followed.get(frame.subscription)?.ended(frame.reason);
      followed.delete(frame.subscription);
      break;
    default:
      break;
  }
}

function point(frame: Point): void {
  const of = (values: Record<string, number | null>, group: string) =>
    Object.entries(values).map(([name, value]) => [group + name, value] as const);
  const all = [
    ...of(frame.series, ''),
    ...of(frame.refusals, 'refusals.'),
    ...of(frame.memory, 'memory.'),
    ...of(frame.loops, 'loops.'),
  ];
  series.add(frame.at, Object.fromEntries(all));
  batch(() => {
    limits.value = frame.limits;
    hot.value = frame.hot;
    service.troubles.value = frame.trouble;
    loops.value = same(loops.value, Object.keys(frame.loops));
    reasons.value = same(reasons.value, Object.keys(frame.refusals));
    tick.value++;
  });
}

/** The value there was, if the new one says the same: nothing is drawn anew then. */
function same(before: string[], now: string[]): string[] {
  return before.join() === now.join() ? before : now;
}

function again(): void {
  clearTimeout(timer);
  timer = setTimeout(() => void connect(), retry);
  retry = Math.min(RETRY_MS_MAX, retry * 2);
}

/** Events of an entity as they happen, after this one, until the returned function is called. */
export function follow(wanted: Followed): () => void {
  const number = ++numbers;
  followed.set(number, wanted);
  subscribe(number, wanted);
  return () => {
    followed.delete(number);
    send({ type: 'unsubscribe', subscription: number });
  };
}

function subscribe(number: number, { kind, id, after }: Followed): void {
  send({ type: 'subscribe', subscription: number, kind, id, after });
}

function send(frame: object): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
}

function base64url(text: string): string {
  const binary = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
