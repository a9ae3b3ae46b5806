// Requests to the gateway. The browser has a cookie and nothing else; the gateway asks the API with the user's own rights.

import { t } from '../i18n/index.svelte';

export interface Meta {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
  managedFields?: unknown[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Fields = Record<string, any>;

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Meta;
  spec?: Fields;
  status?: Fields;
  [field: string]: unknown;
}

export interface Column {
  name: string;
  type: string;
  format?: string;
  description?: string;
  priority: number;
}

export interface TableRow {
  cells: unknown[];
  object: KubeObject;
}

/** A refusal or failure, as a Kubernetes Status. */
export class Failure extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

export interface Session {
  user: string;
  groups: string[];
  method: string;
  expiresInSeconds: number;
  version: string;
  server: string;
  certificateAuthority: string;
  /** Where the person signed in, if that was at an issuer. */
  issuer: Issuer | null;
}

export interface Issuer {
  url: string;
  clientId: string;
  scopes: string[];
}

const ROOT = '/console/api';
const MARK = { 'X-Freehold-Console': '1' };
export const TABLE = 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json';

/** What to do when a session has ended. */
let onSignedOut: () => void = () => undefined;
export function whenSignedOut(then: () => void) {
  onSignedOut = then;
}

/** Sends a request to the gateway. Paths below `/k8s` are those of the API. */
export async function send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(ROOT + path, {
      ...init,
      method,
      credentials: 'same-origin',
      redirect: 'error',
      headers: { ...MARK, ...(init.headers as Record<string, string> | undefined) },
    });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Failure(0, 'Unreachable', t('unreachable'));
  }
  if (answer.ok) return answer;
  const failure = await statusOf(answer);
  if (failure.code === 401 && !path.startsWith('/login')) onSignedOut();
  throw failure;
}

async function statusOf(answer: Response): Promise<Failure> {
  try {
    const status = (await answer.json()) as { reason?: string; message?: string };
    return new Failure(answer.status, status.reason ?? '', status.message ?? answer.statusText);
  } catch {
    return new Failure(answer.status, '', answer.statusText);
  }
}

export async function json<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const init: RequestInit = { signal };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { 'Content-Type': 'application/json' };
  }
  const answer = await send(method, path, init);
  const text = await answer.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** Reads something of the Kubernetes API. */
export async function get<T>(path: string, signal?: AbortSignal, accept?: string): Promise<T> {
  const headers = { Accept: accept ?? 'application/json' };
  return (await send('GET', `/k8s${path}`, { signal, headers })).json() as Promise<T>;
}

export const post = <T>(path: string, body: unknown) => json<T>('POST', `/k8s${path}`, body);
export const put = <T>(path: string, body: unknown) => json<T>('PUT', `/k8s${path}`, body);

export async function patch<T>(path: string, body: unknown, type = 'application/merge-patch+json'): Promise<T> {
  const init = { body: JSON.stringify(body), headers: { 'Content-Type': type } };
  return (await send('PATCH', `/k8s${path}`, init)).json() as Promise<T>;
}

export async function remove(path: string, propagation: 'Background' | 'Foreground' | 'Orphan' = 'Background') {
  return json('DELETE', `/k8s${path}`, { apiVersion: 'v1', kind: 'DeleteOptions', propagationPolicy: propagation });
}

/** A kind of resource, as it stands in paths. */
export interface Type {
  group: string;
  version: string;
  resource: string;
  kind: string;
  namespaced: boolean;
  verbs: string[];
  shortNames?: string[];
}

const e = encodeURIComponent;

/** The path of a collection, or of one object of it. */
export function pathOf(
  base: string,
  type: Pick<Type, 'group' | 'version' | 'resource'>,
  namespace?: string,
  name?: string,
  subresource?: string,
): string {
  const root = type.group ? `/apis/${e(type.group)}/${e(type.version)}` : `/api/${e(type.version)}`;
  const scope = namespace ? `/namespaces/${e(namespace)}` : '';
  const object = name ? `/${e(name)}` : '';
  return `${base}${root}${scope}/${e(type.resource)}${object}${subresource ? `/${subresource}` : ''}`;
}

const RM = { group: 'resourcemanager.freehold.dev', version: 'v1alpha1' };
const IAM = { group: 'iam.freehold.dev', version: 'v1alpha1' };
const QUOTA = { group: 'quota.freehold.dev', version: 'v1alpha1' };
const all = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];
const type = (of: { group: string; version: string }, resource: string, kind: string, namespaced: boolean): Type => ({
  ...of,
  resource,
  kind,
  namespaced,
  verbs: all,
});

/** Freehold's own kinds that have pages. */
export const types = {
  organization: type(RM, 'organizations', 'Organization', false),
  project: type(RM, 'projects', 'Project', false),
  membership: type(RM, 'organizationmemberships', 'OrganizationMembership', true),
  snapshot: type(RM, 'projectsnapshots', 'ProjectSnapshot', true),
  restore: type(RM, 'projectrestores', 'ProjectRestore', true),
  planeClass: type(RM, 'controlplaneclasses', 'ControlPlaneClass', false),
  invitation: type(IAM, 'userinvitations', 'UserInvitation', true),
  role: type(IAM, 'roles', 'Role', true),
  binding: type(IAM, 'policybindings', 'PolicyBinding', true),
  group: type(IAM, 'groups', 'Group', true),
  groupMembership: type(IAM, 'groupmemberships', 'GroupMembership', true),
  serviceAccount: type(IAM, 'serviceaccounts', 'ServiceAccount', true),
  serviceAccountKey: type(IAM, 'serviceaccountkeys', 'ServiceAccountKey', true),
  bucket: type(QUOTA, 'allowancebuckets', 'AllowanceBucket', true),
  secret: type({ group: '', version: 'v1' }, 'secrets', 'Secret', true),
  event: type({ group: '', version: 'v1' }, 'events', 'Event', true),
};

export const organizationNamespace = (name: string) => `organization-${name}`;

export const condition = (object: KubeObject | undefined, name: string): Condition | undefined =>
  ((object?.status?.conditions ?? []) as Condition[]).find((c) => c.type === name);
