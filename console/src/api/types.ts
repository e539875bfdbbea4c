/** What the server answers: docs/console-api.md, member by member. */

import type { Json } from '../lib/diff';
import type { Role } from '../lib/roles';

export interface Address {
  kind: string;
  id: string;
}

export interface Command {
  name: string;
  is_public: boolean;
  description: string | null;
  schema: Json;
}

export interface Kind {
  name: string;
  is_actor: boolean;
  is_hidden: boolean;
  keep: string;
  /** The fields by which its entities are filtered. */
  fields?: string[];
  state_version: number;
  entities: number | null;
  entities_exact: boolean;
  resident: number | null;
  commands: Command[];
  queries: { name: string; schema: Json }[];
}

export interface Overview {
  service: string;
  /** Where clients reach it; its host may be a wildcard. */
  url: string;
  version: string | null;
  throng: string;
  started_at: string;
  now: string;
  ready: boolean;
  reason: string | null;
  troubles: string[];
  stands_by: boolean;
  console: { by: string; role: string; picos: boolean; cluster: boolean };
  /** Actions are audited. */
  audit: boolean;
  shards: number;
  loops: number;
  loops_max: number;
  cores: number;
  memory_bytes_max: number | null;
  journal: { medium: Medium; place: string | null; durability: string; position: string | null; bytes: number | null };
  kinds: Kind[];
  definitions: { [name: string]: Json };
  projections: string[];
  /** The calls outside of this process, by their workers. */
  calls?: WorkerCalls[];
}

export interface WorkerCalls {
  worker: string;
  kind: string;
  /** All without an outcome, in memory or not. */
  open: number;
  under_way: number;
  /** Those that wait in memory. */
  waiting: number;
  attempts_minute: number;
  failed_minute: number;
}

export type Medium = 'directory' | 'postgresql' | 'object-storage' | 'memory';

export interface Limits {
  code: string;
  name: string | null;
  sentence: string;
  share: number | null;
}

type Columns = Record<string, (number | null)[]>;

export interface SeriesPage {
  now: number;
  step_seconds: number;
  times: number[];
  series: Columns;
  refusals: Columns;
  memory: Columns;
  loops: Columns;
  limits: Limits | null;
}

type Values = Record<string, number | null>;

export interface Point {
  type: 'point';
  at: number;
  series: Values;
  refusals: Values;
  memory: Values;
  loops: Values;
  limits: Limits | null;
  hot: Hot[];
  /** Null while it is not known. */
  trouble: number | null;
  missed: number;
}

export interface Hot extends Address {
  per_second: number;
}

export interface MapKind {
  name: string;
  entities: number | null;
  entities_exact: boolean;
  resident: number | null;
  quarantined: number;
  stuck: number;
  per_second: number | null;
}

export type EntityStatus = 'resident' | 'passivated' | 'quarantined' | 'stuck' | 'ended';

export interface MapEntity {
  kind?: string;
  id: string;
  /** Null where it is not known without bringing it back. */
  seq: number | null;
  state: EntityStatus;
  per_second: number;
  children: number | null;
  parent?: Address | null;
  /** The values of its kind's fields, where entities are filtered. */
  fields?: { [name: string]: Json };
}

export interface MapPage {
  entities: MapEntity[];
  next: string | null;
  /** Of a filter: how many were examined, and of how many of them the fields are not known. */
  examined?: number;
  unknown?: number;
}

export interface ChildrenPage {
  parent: Address | null;
  total: number | null;
  children: MapEntity[];
  next: string | null;
}

export interface Group {
  prefix: string;
  first: string;
  is_leaf: boolean;
}

export interface Timer {
  name: string;
  at: string;
  every_ms: number | null;
  command: string;
  body: Json;
  tries: number;
  retry_at: string | null;
}

export interface Pending {
  number: string;
  to?: Address;
  from?: Address;
  name: string;
  sent: string | null;
}

export interface Quarantine {
  seq: number;
  reason: string;
  since: string | null;
  refused: number;
  /** The operator who has quarantined it; null: it cannot be brought back. */
  by: string | null;
  /** About how many messages wait for it. */
  waiting: number | null;
}

export interface Entity extends Address {
  shard: number;
  seq: number;
  status: EntityStatus;
  ended: boolean;
  state: Json;
  state_bytes: number | null;
  state_version: number | null;
  at_seq: number;
  at?: string | null;
  quarantine: Quarantine | null;
  /** Of the present only. */
  actions?: Action[];
  family?: { parent: Address | null; children: number };
  keys?: number | null;
  timers?: Timer[];
  pending_out?: Pending[];
  pending_in?: Pending[];
  dead?: number;
  events_removed?: number | null;
  per_second?: number;
}

/** Who or what caused an event. All members are always there, null where they mean nothing. */
export interface Cause {
  type: 'command' | 'message' | 'outcome' | 'timer' | 'unknown';
  /** The journal does not always say where the records of a command begin. */
  is_certain: boolean;
  name: string | null;
  body: Json;
  caller: string | null;
  /** What an asker gave along with its request, of an outcome. */
  note: Json;
  has_key: boolean;
  from: Address | null;
  number: string | null;
  sent: string | null;
  from_seq: number | null;
}

export interface EntityEvent {
  seq: number;
  name: string;
  version: number;
  at: string;
  position: string;
  payload: Json;
  cause?: Cause | null;
  sent?: { to: Address; name: string; number: string }[];
  timers?: { name: string; set: boolean }[];
}

export interface History {
  events: EntityEvent[];
  next: number | null;
  removed: number;
}

export interface WhatIf {
  at_seq: number;
  outcome: 'done' | 'refused' | 'failed';
  reply: Json;
  refusal: string | null;
  effects: { what: string; content: Json }[];
  state: Json;
}

export interface Action {
  name: string;
  label: string;
  method: 'POST';
  path: string;
  confirm: string | null;
  /** Whoever does it says why: `&reason=` is added to the path. */
  needs_reason: boolean;
  needs_role: Role;
}

export interface Trouble {
  type: string;
  kind: string | null;
  id: string | null;
  what: string;
  reason: string;
  since: string | null;
  count: number;
  number: string | null;
  /** Of a dead message: what it is. */
  message: DeadContent | null;
  actions: Action[];
}

/** What somebody decides about who has a dead message tried again or dropped. */
export interface DeadContent {
  name: string;
  sender: Address;
  /** That have failed. */
  attempts: number;
  /** The last time; `since` of its trouble is the first. */
  died_at: string;
  /** Null where it is too large to be shown among others. */
  body: Json;
  body_bytes: number;
}

/** Dead messages to a kind that died of the same. */
export interface DeadGroup {
  kind: string;
  cause: string;
  /** As they were counted last. */
  count: number;
  /** All of them with their content, as lines of JSON. */
  export: string;
  actions: Action[];
}

export interface Troubles {
  total: number;
  /** How many entities there are of these types, listed or not. */
  totals: Record<string, number>;
  /** Types of which there are more than was counted. */
  uncounted: string[];
  dead_groups: DeadGroup[];
  items: Trouble[];
  more: boolean;
}

export interface Projection {
  name: string;
  kind: string | null;
  is_sink: boolean;
  state: 'running' | 'elsewhere' | 'retrying' | 'stopped';
  reason: string | null;
  /** Its rows are not complete. */
  is_rebuilding: boolean;
  actions: Action[];
  reached: string | null;
  lag_commits: number | null;
  lag_seconds: number | null;
  behind_seconds: number | null;
  events: number | null;
  /** Events its rows are without, and the newest of them. */
  skipped: number;
  last_skipped: Skipped[];
}

export interface Skipped {
  number: number;
  event: string;
  why: string;
  at: string;
  by: string;
  reason: string;
}

/** The newest point of a node, in short. */
export interface NodeNow {
  at: number;
  series: Values;
  memory: number | null;
  busiest_loop: number | null;
  limits: string | null;
}

export interface ClusterNode {
  node: number;
  name: string;
  state: string;
  owns: number;
  shards: string;
  http: string;
  peer: string;
  program: string;
  connected: boolean;
  /** An operator has asked it to give away all it owns. */
  wants_drain: boolean;
  /** Why it may own nothing. */
  apart: string | null;
  /** Null where it does not answer. */
  now: NodeNow | null;
  /** Null where only its own machine reaches it. */
  console: string | null;
  actions: Action[];
  /** How long it has not said that it lives; null for the one that is asked and for those that have ended. */
  silent_ms: number | null;
}

/** The nodes of a cluster, as the one that is asked sees them. */
export interface Cluster {
  cluster: string;
  /** Raised by every change of owners or of nodes' states. */
  version: number;
  /** The one that is asked. */
  node: number;
  shards: number;
  /** As ranges; empty where each has an owner. */
  unowned: string;
  /** Names of nodes with the shards that are pinned to them, as ranges. */
  pinned: Record<string, string>;
  nodes: ClusterNode[];
  /** A node uses another server of the database. */
  two_primaries: string | null;
  /** After 1.25 times this a silent node is taken for dead. */
  lease_ms: number;
  /** Nodes it is connected to. */
  reaches: number[];
  changes: number;
  last_change_ms: number;
  asked: number;
  not_here: number;
  unknown: number;
}

export interface Journal {
  medium: Medium;
  place: string | null;
  durability: string;
  position: string | null;
  writer: number | null;
  bytes: number | null;
  /** Since the start, as is `commit_bytes`. */
  commits: number | null;
  commit_bytes: number | null;
  disk: {
    used_bytes: number | null;
    budget_bytes: number | null;
    free_bytes: number | null;
    total_bytes: number | null;
  } | null;
  growth_bytes_per_day: number | null;
  full_at: string | null;
  checkpoint: {
    covers: string | null;
    at: string | null;
    age_seconds: number | null;
    took_ms: number | null;
    commits_behind: number | null;
    every_seconds: number | null;
    is_failing: boolean;
  } | null;
  sync: {
    p50_ms: number | null;
    p99_ms: number | null;
    max_ms: number | null;
    commits_in_flight: number | null;
  } | null;
  retention: { kind: string; keep: string }[];
  /** Nothing where the engine is alone. */
  cluster: Omit<Cluster, 'nodes'> | null;
  projections: Projection[];
}

/** Who has written, and what that stands in. */
export interface JournalParts {
  writers: {
    writer: number;
    node: string;
    last: number;
    is_open: boolean;
    begun_at: string | null;
    ended_at: string | null;
    segments: number | null;
  }[];
  writers_total: number;
  parts: {
    name: string;
    first: string | null;
    begun_at: string | null;
    rows: number | null;
    bytes: number;
  }[];
  parts_total: number;
}
