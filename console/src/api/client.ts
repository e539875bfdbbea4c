/** Requests to the server, with the token if there is one. Says whether the server answers and whether it wants a token. */

import { signal } from '@preact/signals';
import * as exact from '../lib/exact';

/** Problem details (RFC 9457), as the server sends them. */
export interface Problem {
  type?: string;
  title?: string;
  detail?: string;
  status?: number;
  field?: string;
  rejection?: unknown;
}

/** The server said no, or said nothing. `status` is 0 if it did not answer. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
    this.name = 'Failure';
  }
}

export type Connection = 'connecting' | 'up' | 'lost';

/** Whether the server answers. */
export const connection = signal<Connection>('connecting');
/** The server wants a token, or another one. */
export interface Locked {
  title: string;
  reason: string;
}

export const wantsToken = signal<Locked | undefined>(undefined);
/** Grows with each connection: screens that show it load anew. */
export const epoch = signal(0);

const TOKEN = 'throng-token';
const NONE: Locked = {
  title: 'Enter the token',
  reason: 'This service asks for a token before it shows anything.',
};
const WRONG: Locked = { title: 'Wrong token', reason: 'The service does not take this token.' };
/** The longest a request may take before the server counts as away. */
const PATIENCE_MS = 20_000;

/** The token for administration; it ends with the tab. */
export function token(): string | undefined {
  return sessionStorage.getItem(TOKEN) ?? undefined;
}

export function setToken(value: string | undefined): void {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
  wantsToken.value = undefined;
  epoch.value++;
}

export interface Ask {
  method?: 'GET' | 'POST';
  query?: Record<string, string | number | boolean | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** How long the answer may take. */
  patienceMs?: number;
}

/** Answers with the JSON the server sent, or throws a `Failure`. */
export async function ask<T>(path: string, asked: Ask = {}): Promise<T> {
  return parse(await askText(path, asked)) as T;
}

/** Answers with what the server sent, or throws a `Failure`. */
export async function askText(
  path: string,
  { method = 'GET', query, body, headers = {}, signal, patienceMs = PATIENCE_MS }: Ask = {},
): Promise<string> {
  const url = address(path, query);
  const given = token();
  const init: RequestInit = {
    method,
    headers: { accept: 'application/json', ...headers },
    signal: within(patienceMs, signal),
    cache: 'no-store',
  };
  if (given) (init.headers as Record<string, string>).authorization = `Bearer ${given}`;
  if (method === 'POST') {
    (init.headers as Record<string, string>)['content-type'] = 'application/json';
    init.body = exact.write(body ?? {});
  }
  const response = await send(url, init, signal);
  const text = await response.text();
  if (response.ok) return text;
  const answer = parse(text);
  const problem = (typeof answer === 'object' && answer !== null ? answer : {}) as Problem;
  const isAction = method === 'POST' && path.startsWith('/admin/');
  if (response.status === 401) wantsToken.value = given ? WRONG : NONE;
  // The role has become smaller since the page asked for it: what it may do is asked anew, what it may see stays.
  else if (response.status === 403 && isAction) epoch.value++;
  else if (response.status === 403 && path.startsWith('/admin/')) {
    wantsToken.value = { title: 'Not with this token', reason: problem.detail ?? 'Administration is closed here.' };
  }
  throw new Failure(response.status, problem);
}

function address(path: string, query: Ask['query'] = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) search.set(name, String(value));
  }
  return search.size > 0 ? `${path}?${search}` : path;
}

function within(patienceMs: number, signal: AbortSignal | undefined): AbortSignal {
  const patience = AbortSignal.timeout(patienceMs);
  return signal ? AbortSignal.any([signal, patience]) : patience;
}

async function send(url: string, init: RequestInit, signal: AbortSignal | undefined): Promise<Response> {
  try {
    const response = await fetch(url, init);
    if (connection.value !== 'up') connection.value = 'up';
    return response;
  } catch (error) {
    if (signal?.aborted) throw error;
    connection.value = 'lost';
    throw new Failure(0, { detail: 'The server does not answer.' });
  }
}

function parse(text: string): unknown {
  try {
    return exact.parse(text);
  } catch {
    return text === '' ? undefined : { detail: text.slice(0, 500) };
  }
}
