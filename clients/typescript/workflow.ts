// Made from /openapi.json of `freehold workflow server` by its test `typescript`. Do not edit.

/** Where the server is, with the caller's token. */
export interface Connection {
  /** `https://workflow.example`; empty for the page's own server. */
  url?: string;
  token?: string;
  signal?: AbortSignal;
  fetch?: typeof fetch;
}

/** An answer other than 2xx. */
export class Refused extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason?: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | boolean | undefined>;

async function send(to: Connection, method: string, path: string, query: Query, body?: unknown): Promise<Response> {
  const given = Object.entries(query).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
  const search = given.length ? `?${new URLSearchParams(given)}` : '';
  const headers: Record<string, string> = {};
  if (to.token) headers['authorization'] = `Bearer ${to.token}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const init: RequestInit = { method, headers, credentials: 'same-origin' };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (to.signal) init.signal = to.signal;
  const answer = await (to.fetch ?? fetch)((to.url ?? '') + path + search, init);
  if (answer.ok) return answer;
  const status = (await answer.json().catch(() => ({}))) as Partial<Status>;
  throw new Refused(answer.status, status.message ?? answer.statusText, status.reason ?? undefined);
}

const part = encodeURIComponent;

export interface Account {
  name: string;
  role: Role;
}

export interface AccountPage {
  items: Account[];
  next?: string | null;
}

export interface Counts {
  failed: number;
  skipped: number;
  succeeded: number;
  total: number;
}

export interface Day {
  day: string;
  duration: Quantiles;
  failed: number;
  meanDurationMillis: number;
  meanQueueMillis: number;
  queue: Quantiles;
  stopped: number;
  succeeded: number;
  successRate?: number | null;
}

export interface DayPage {
  items: Day[];
  next?: string | null;
}

export interface LogPage {
  items: LogRecord[];
  next?: string | null;
}

export interface LogRecord {
  attempt: number;
  bytes: number;
  complete: boolean;
  container: string;
  lines: number;
  location: string;
  namespace: string;
  plane: string;
  pod: string;
  podUid: string;
  restart: number;
  run: string;
  task: string;
}

export interface Login {
  name: string;
  password: string;
}

export interface Match {
  line: number;
  offset: number;
  text: string;
}

export interface MatchPage {
  items: Match[];
  next?: string | null;
}

export interface NewAccount {
  name: string;
  password: string;
  role: Role;
}

export interface NewDecision {
  approved: boolean;
  message?: string | null;
}

export interface NewPassword {
  oldPassword: string;
  password: string;
}

export interface NewRun {
  name?: string | null;
  parameters?: Record<string, unknown> | null;
  priority?: number | null;
}

export type Object = Record<string, unknown>;

export interface ObjectPage {
  items: Object[];
  next?: string | null;
}

export type Phase = 'Pending' | 'Queued' | 'Running' | 'Suspended' | 'Succeeded' | 'Failed' | 'Skipped' | 'Stopped';

export interface Quantiles {
  p50: number;
  p95: number;
  p99: number;
}

export type Role = 'viewer' | 'editor' | 'admin';

export interface RunPage {
  items: RunRecord[];
  next?: string | null;
}

export interface RunRecord {
  counts: Counts;
  createdAt: number;
  dag: string;
  endedAt?: number | null;
  message: string;
  name: string;
  namespace: string;
  parameters: string;
  phase: Phase;
  plane: string;
  reason: string;
  restart: number;
  revision: number;
  startedAt?: number | null;
  trigger: string;
  uid: string;
}

export interface Status {
  code: number;
  message?: string | null;
  reason?: string | null;
  status: string;
}

export interface TaskPage {
  items: TaskRecord[];
  next?: string | null;
}

export interface TaskRecord {
  attempt: number;
  endedAt?: number | null;
  exitCode?: number | null;
  message: string;
  namespace: string;
  node: string;
  phase: Phase;
  plane: string;
  pod: string;
  podUid: string;
  queuedAt?: number | null;
  reason: string;
  restart: number;
  run: string;
  runCreatedAt: number;
  startedAt?: number | null;
  task: string;
}

export interface Token {
  expiresInSeconds: number;
  name?: string | null;
  role?: Role | null;
  token: string;
}

/** Lists local accounts. */
export async function listAccounts(to: Connection, query: { after?: string } = {}): Promise<AccountPage> {
  return (await (await send(to, 'GET', `/api/v1/accounts`, query)).json()) as AccountPage;
}

/** Creates a local account. */
export async function createAccount(to: Connection, body: NewAccount): Promise<Account> {
  return (await (await send(to, 'POST', `/api/v1/accounts`, {}, body)).json()) as Account;
}

/** Deletes a local account. */
export async function deleteAccount(to: Connection, name: string): Promise<void> {
  await send(to, 'DELETE', `/api/v1/accounts/${part(name)}`, {});
}

/** Issues a token for a name and a password. */
export async function login(to: Connection, body: Login): Promise<Token> {
  return (await (await send(to, 'POST', `/api/v1/auth/login`, {}, body)).json()) as Token;
}

/** Ends the caller's token. */
export async function logout(to: Connection): Promise<void> {
  await send(to, 'POST', `/api/v1/auth/logout`, {});
}

/** Sets the caller's password and ends all their tokens. */
export async function changePassword(to: Connection, body: NewPassword): Promise<void> {
  await send(to, 'POST', `/api/v1/auth/password`, {}, body);
}

/** Issues another token in place of the caller's. */
export async function rotateToken(to: Connection): Promise<Token> {
  return (await (await send(to, 'POST', `/api/v1/auth/rotate`, {})).json()) as Token;
}

/** Tells who the caller is. */
export async function getSelf(to: Connection): Promise<Account> {
  return (await (await send(to, 'GET', `/api/v1/auth/self`, {})).json()) as Account;
}

/** Lists DAGs of all namespaces. */
export async function listAllDags(to: Connection, query: { limit?: number; after?: string; labelSelector?: string } = {}): Promise<ObjectPage> {
  return (await (await send(to, 'GET', `/api/v1/dags`, query)).json()) as ObjectPage;
}

/** Lists recorded runs, newest first. */
export async function listHistory(to: Connection, query: { namespace?: string; dag?: string; name?: string; phase?: string; from?: string; to?: string; after?: string; limit?: number } = {}): Promise<RunPage> {
  return (await (await send(to, 'GET', `/api/v1/history/runs`, query)).json()) as RunPage;
}

/** Lists DAGs. */
export async function listDags(to: Connection, namespace: string, query: { limit?: number; after?: string; labelSelector?: string } = {}): Promise<ObjectPage> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/dags`, query)).json()) as ObjectPage;
}

/** Reads a DAG. */
export async function getDag(to: Connection, namespace: string, name: string): Promise<Object> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/dags/${part(name)}`, {})).json()) as Object;
}

/** Lets the schedule of a DAG go on. */
export async function resumeDag(to: Connection, namespace: string, name: string): Promise<Object> {
  return (await (await send(to, 'POST', `/api/v1/namespaces/${part(namespace)}/dags/${part(name)}/resume`, {})).json()) as Object;
}

/** Creates a run. */
export async function runDag(to: Connection, namespace: string, name: string, body: NewRun): Promise<Object> {
  return (await (await send(to, 'POST', `/api/v1/namespaces/${part(namespace)}/dags/${part(name)}/run`, {}, body)).json()) as Object;
}

/** Stops the schedule of a DAG. */
export async function suspendDag(to: Connection, namespace: string, name: string): Promise<Object> {
  return (await (await send(to, 'POST', `/api/v1/namespaces/${part(namespace)}/dags/${part(name)}/suspend`, {})).json()) as Object;
}

/** Reads a kept log, or a range of it. */
export async function getLog(to: Connection, namespace: string, podUid: string, container: string): Promise<Response> {
  return await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/history/logs/${part(podUid)}/${part(container)}`, {});
}

/** Finds lines of a kept log. */
export async function searchLog(to: Connection, namespace: string, podUid: string, container: string, query: { text?: string; from?: string; limit?: number } = {}): Promise<MatchPage> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/history/logs/${part(podUid)}/${part(container)}/search`, query)).json()) as MatchPage;
}

/** Reads a recorded run. */
export async function getHistory(to: Connection, namespace: string, uid: string): Promise<RunRecord> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/history/runs/${part(uid)}`, {})).json()) as RunRecord;
}

/** Lists kept logs of a run. */
export async function listLogs(to: Connection, namespace: string, uid: string, query: { task?: string } = {}): Promise<LogPage> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/history/runs/${part(uid)}/logs`, query)).json()) as LogPage;
}

/** Lists attempts of a run's tasks. */
export async function listAttempts(to: Connection, namespace: string, uid: string, query: { after?: string; limit?: number } = {}): Promise<TaskPage> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/history/runs/${part(uid)}/tasks`, query)).json()) as TaskPage;
}

/** Streams the log of a Pod. */
export async function getLiveLog(to: Connection, namespace: string, pod: string, query: { container?: string; follow?: boolean; tailLines?: number; timestamps?: boolean } = {}): Promise<Response> {
  return await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/pods/${part(pod)}/log`, query);
}

/** Lists runs. */
export async function listRuns(to: Connection, namespace: string, query: { limit?: number; after?: string; labelSelector?: string } = {}): Promise<ObjectPage> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/runs`, query)).json()) as ObjectPage;
}

/** Deletes a run. */
export async function deleteRun(to: Connection, namespace: string, name: string): Promise<Object> {
  return (await (await send(to, 'DELETE', `/api/v1/namespaces/${part(namespace)}/runs/${part(name)}`, {})).json()) as Object;
}

/** Reads a run. */
export async function getRun(to: Connection, namespace: string, name: string): Promise<Object> {
  return (await (await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/runs/${part(name)}`, {})).json()) as Object;
}

/** Suspends, resumes, stops, terminates or retries a run, or starts another like it (resubmit). */
export async function actOnRun(to: Connection, namespace: string, name: string, action: string): Promise<Object> {
  return (await (await send(to, 'POST', `/api/v1/namespaces/${part(namespace)}/runs/${part(name)}/actions/${part(action)}`, {})).json()) as Object;
}

/** Approves or rejects a task that waits. */
export async function decide(to: Connection, namespace: string, name: string, task: string, body: NewDecision): Promise<Object> {
  return (await (await send(to, 'POST', `/api/v1/namespaces/${part(namespace)}/runs/${part(name)}/tasks/${part(task)}/decision`, {}, body)).json()) as Object;
}

/** Streams changes of runs. */
export async function watchRuns(to: Connection, namespace: string, query: { resourceVersion?: string; labelSelector?: string } = {}): Promise<Response> {
  return await send(to, 'GET', `/api/v1/namespaces/${part(namespace)}/watch/runs`, query);
}

/** Lists runs of all namespaces. */
export async function listAllRuns(to: Connection, query: { limit?: number; after?: string; labelSelector?: string } = {}): Promise<ObjectPage> {
  return (await (await send(to, 'GET', `/api/v1/runs`, query)).json()) as ObjectPage;
}

/** Returns statistics per day. */
export async function listDays(to: Connection, query: { namespace?: string; dag?: string; from?: string; to?: string } = {}): Promise<DayPage> {
  return (await (await send(to, 'GET', `/api/v1/statistics/days`, query)).json()) as DayPage;
}

/** Streams changes of runs of all namespaces. */
export async function watchAllRuns(to: Connection, query: { resourceVersion?: string; labelSelector?: string } = {}): Promise<Response> {
  return await send(to, 'GET', `/api/v1/watch/runs`, query);
}

/** Tells that the server answers. */
export async function health(to: Connection): Promise<void> {
  await send(to, 'GET', `/healthz`, {});
}

/** Returns this document. */
export async function openapi(to: Connection): Promise<void> {
  await send(to, 'GET', `/openapi.json`, {});
}
