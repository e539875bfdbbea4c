/**
 * The connection: what has been is loaded, then the socket of `/admin/live` brings a point a second and the events of entities that are followed.
 * It comes back by itself. Where no socket is let through, the points are asked for.
 */

import * as calls from '../api/calls';
import { connection, epoch, token, wantsToken } from '../api/client';
import type { EntityEvent, Point } from '../api/types';
import * as exact from '../lib/exact';
import { series, takeAll, takeMore, takePoint } from './points';
import * as service from './service';

const PROTOCOL = 'throng.console.v1';
/** From one try to connect to the next; it doubles up to the second. */
const RETRY_MS = 500;
const RETRY_MS_MAX = 8_000;
/** Without a frame for so long the socket is taken for dead. */
const SILENCE_MS = 15_000;
/** How often points are asked for while there is no socket, and how long until one is tried again. */
const POLL_MS = 2_000;
const POLLS_MAX = 10;

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
/** The latest try to connect; what an earlier one comes to is nobody's. */
let attempt = 0;
/** Whether the epoch rises because a connection came about. */
let comes = false;

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
}

/** At once, whatever was planned. */
export function reconnect(): void {
  retry = RETRY_MS;
  const before = socket;
  socket = undefined;
  before?.close();
  void connect();
}

async function connect(): Promise<void> {
  clearTimeout(timer);
  const mine = ++attempt;
  try {
    const [page] = await Promise.all([calls.series(), service.load()]);
    if (mine !== attempt) return;
    takeAll(page, service.overview.value?.started_at);
  } catch {
    // Who is not let in is asked for a token, and only then tried again.
    if (mine === attempt && wantsToken.value === undefined) lost();
    return;
  }
  comes = true;
  epoch.value++;
  comes = false;
  open();
}

function lost(): void {
  connection.value = 'lost';
  clearTimeout(timer);
  timer = setTimeout(() => void connect(), retry);
  retry = Math.min(RETRY_MS_MAX, retry * 2);
}

function open(): void {
  const given = token();
  const protocols = given ? [PROTOCOL, `throng.bearer.${base64url(given)}`] : [PROTOCOL];
  const url = new URL('/admin/live', location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const opened = new WebSocket(url, protocols);
  socket = opened;
  let wasHeard = false;
  let silence = setTimeout(() => opened.close(), SILENCE_MS);
  opened.onmessage = (message) => {
    wasHeard = true;
    clearTimeout(silence);
    silence = setTimeout(() => opened.close(), SILENCE_MS);
    if (socket === opened) hear(exact.parse(String(message.data)) as unknown as Frame);
  };
  opened.onclose = (close) => {
    clearTimeout(silence);
    if (socket !== opened) return;
    socket = undefined;
    if (close.code === 4401) {
      wantsToken.value = { title: 'Wrong token', reason: 'The token is not taken any more.' };
    } else if (wasHeard) lost();
    else void poll(POLLS_MAX);
  };
}

/** Asks for the points that have come, as no socket brings them; then the socket is tried again. */
async function poll(left: number): Promise<void> {
  const mine = attempt;
  try {
    takeMore(await calls.series(series.at.at(-1)));
  } catch {
    if (mine === attempt && wantsToken.value === undefined) lost();
    return;
  }
  if (mine !== attempt) return;
  timer = setTimeout(() => (left > 0 ? void poll(left - 1) : open()), POLL_MS);
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
      takePoint(frame);
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

/** Events of an entity as they happen, after this one, until the returned function is called. */
export function follow(wanted: Followed): () => void {
  const number = ++numbers;
  followed.set(number, wanted);
  subscribe(number, wanted);
  return () => {
    if (followed.delete(number)) send({ type: 'unsubscribe', subscription: number });
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
