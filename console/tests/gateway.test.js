// The gateway as any client sees it, at a real server: what it describes, limits, records and may do.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import https from 'node:https';
import { after, before, describe, test } from 'node:test';
import { request, seed, start, until } from './server.js';

const IAM = 'iam.freehold.dev/v1alpha1';
const HOME = `/apis/${IAM}/namespaces/organization-acme`;
const CONFIGMAPS = '/projects/web/api/v1/namespaces/shop/configmaps';
const JSON_TYPE = { 'Content-Type': 'application/json' };

/** What of a value is not as a schema says. */
function problems(value, schema, root, at = '$') {
  if (schema.$ref) return problems(value, schema.$ref.slice(2).split('/').reduce((node, part) => node[part], root), root, at);
  const kind = value === null ? 'null' : Array.isArray(value) ? 'array' : Number.isInteger(value) ? 'integer' : typeof value;
  if (schema.type && ![schema.type].flat().includes(kind)) return [`${at} is ${kind}`];
  if (schema.enum && !schema.enum.includes(value)) return [`${at} is ${value}`];
  if ('const' in schema && schema.const !== value) return [`${at} is ${value}`];
  if (kind === 'array') return value.flatMap((item, index) => problems(item, schema.items ?? {}, root, `${at}[${index}]`));
  if (kind !== 'object') return [];
  const known = schema.properties ?? {};
  return [
    ...(schema.required ?? []).filter((name) => !(name in value)).map((name) => `${at}.${name} is missing`),
    ...Object.entries(value).flatMap(([name, inside]) =>
      known[name] ? problems(inside, known[name], root, `${at}.${name}`) : schema.additionalProperties === false ? [`${at}.${name} is not described`] : [],
    ),
  ];
}

/** Connections of a server's process to its own port: those of the gateway and of controllers. */
function toItself({ pid, url }) {
  const sockets = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
    } catch {
      return undefined;
    }
  });
  const port = Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0');
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n').map((line) => line.trim().split(/\s+/));
  return lines.filter(([, , remote, state, , , , , , inode]) => remote?.endsWith(`:${port}`) && state === '01' && sockets.includes(inode)).length;
}

describe('gateway', () => {
  let server, made, agent, token;
  const own = { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-origin' };
  const ask = (method, path, body, headers = {}) => request(agent, server.url, method, `/console/api${path}`, body, { ...own, ...(body ? JSON_TYPE : {}), ...headers });
  const signIn = async (way, body) => {
    const answer = await ask('POST', `/login/${way}`, body);
    assert.equal(answer.code, 200, JSON.stringify(answer.body));
    return { Cookie: answer.headers['set-cookie'][0].split(';')[0] };
  };
  const bySession = (user) => signIn('link', { code: new URL(server.link(...(user ? [user] : []))).hash.slice('#code='.length) });

  /** A stream of a session: its name, and its frames as they come. */
  function openStream(headers) {
    return new Promise((done, fail) => {
      const sent = https.request(`${server.url}/console/api/watch`, { agent, headers: { ...own, ...headers } }, (answer) => {
        const stream = { code: answer.statusCode, type: answer.headers['content-type'], frames: [], isOver: false, end: () => sent.destroy() };
        let rest = '';
        answer.on('data', (bytes) => {
          const parts = (rest + bytes).split('\n\n');
          rest = parts.pop();
          for (const part of parts.filter((one) => one.startsWith('event: '))) {
            const [event, data] = part.split('\n');
            stream.frames.push({ event: event.slice(7), data: JSON.parse(data.slice(6)) });
          }
          stream.name = stream.frames[0]?.data.stream;
          if (stream.name) done(stream);
        });
        answer.on('end', () => (stream.isOver = true));
        answer.on('error', () => (stream.isOver = true));
      });
      sent.on('error', fail);
      sent.end();
    });
  }

  before(async () => {
    server = await start();
    made = await seed(server);
    agent = new https.Agent({ rejectUnauthorized: false, keepAlive: true, maxSockets: 64 });
    await made.make(`${HOME}/serviceaccounts`, { apiVersion: IAM, kind: 'ServiceAccount', metadata: { name: 'robot' } });
    await made.make(`${HOME}/policybindings`, {
      apiVersion: IAM,
      kind: 'PolicyBinding',
      metadata: { name: 'robot' },
      spec: { roleRef: { name: 'viewer', namespace: 'freehold-system' }, subjects: [{ kind: 'ServiceAccount', name: 'robot' }], target: { kind: 'Organization', name: 'acme' } },
    });
    const key = await made.make(`${HOME}/serviceaccountkeys`, { apiVersion: IAM, kind: 'ServiceAccountKey', metadata: { name: 'robot-1' }, spec: { serviceAccountRef: { name: 'robot' } } });
    token = key.status.token;
  });
  after(async () => {
    agent?.destroy();
    await server?.stop();
  });

  test('the description is OpenAPI 3.1, and answers are as it says', async () => {
    const { code, headers, body: document } = await request(agent, server.url, 'GET', '/console/api/openapi.json');
    assert.equal(code, 200);
    assert.match(headers['content-type'], /json/);
    assert.match(document.openapi, /^3\.1\./);
    const session = await bySession();
    const stream = await openStream(session);
    assert.equal(stream.code, 200);
    assert.match(stream.type, /^text\/event-stream/);
    const configmap = { metadata: { name: 'described' }, data: { a: 'b' } };
    const at = (template, values) => template.replace(/\{(\w+)\}/g, (_, name) => values[name]);
    const of = { stream: stream.name, watch: 'a', terminal: 'b' };
    const k8s = (path) => ({ path: path.slice(1) });
    const none = '0'.repeat(43);
    // Each operation once as it is meant, and once as it is refused.
    const requests = [
      ['GET', '/login', {}],
      ['POST', '/login/link', {}, { code: 'x' }, 401],
      ['POST', '/login/token', {}, { token }],
      ['POST', '/login/token', {}, { token: 'x' }, 401],
      ['POST', '/login/oidc', {}, { landing: '/' }, 404],
      ['GET', '/login/callback', {}, undefined, 303],
      ['GET', '/session', {}],
      ['GET', '/session', {}, undefined, 401, { Cookie: '' }],
      ['PUT', '/watch/{stream}/{watch}', of, { path: CONFIGMAPS }, 202],
      ['PUT', '/watch/{stream}/{watch}', { ...of, stream: none }, { path: CONFIGMAPS }, 404],
      ['DELETE', '/watch/{stream}/{watch}', of, undefined, 204],
      ['PUT', '/exec/{stream}/{terminal}', of, { path: '/projects/web/api/v1/namespaces/shop/pods/none/exec', command: ['sh'] }, 202],
      ['POST', '/exec/{stream}/{terminal}', { ...of, stream: none }, { text: 'a' }, 404],
      ['DELETE', '/exec/{stream}/{terminal}', of, undefined, 204],
      ['POST', '/k8s/{path}', k8s(CONFIGMAPS), configmap, 201],
      ['GET', '/k8s/{path}', k8s(`${CONFIGMAPS}/described`)],
      ['PUT', '/k8s/{path}', k8s(`${CONFIGMAPS}/described`), { ...configmap, data: { a: 'c' } }],
      ['PATCH', '/k8s/{path}', k8s(`${CONFIGMAPS}/described`), { data: { a: 'd' } }, 200, { 'Content-Type': 'application/merge-patch+json' }],
      ['DELETE', '/k8s/{path}', k8s(`${CONFIGMAPS}/described`)],
      ['GET', '/k8s/{path}', { path: 'planes/core/api' }, undefined, 404],
      ['GET', '/openapi.json', {}],
      ['DELETE', '/session', {}, undefined, 403, { 'X-Freehold-Console': undefined }],
    ];
    // Signing in with a session's cookie would end that session.
    for (const [method, template, values, body, wanted = 200, extra = {}] of requests) {
      const what = `${method} ${template}`;
      const operation = document.paths[template]?.[method.toLowerCase()];
      assert.ok(operation, `${what} is not described`);
      const sent = Object.fromEntries(Object.entries({ ...own, ...(template.startsWith('/login') ? {} : session), ...(body ? JSON_TYPE : {}), ...extra }).filter(([, value]) => value !== undefined));
      const answer = await request(agent, server.url, method, `/console/api${at(template, values)}`, body, sent);
      assert.equal(answer.code, wanted, `${what}: ${JSON.stringify(answer.body)}`);
      const described = operation.responses[answer.code] ?? operation.responses.default;
      assert.ok(described, `${what}: ${answer.code} is not described`);
      assert.ok(answer.headers['audit-id'], what);
      const schema = described.content?.['application/json']?.schema;
      if (schema) assert.deepEqual(problems(answer.body, schema, document), [], what);
    }
    // What no request above is about is described alone: the stream itself and its end.
    const asked = new Set([...requests.map(([method, template]) => `${method.toLowerCase()} ${template}`), 'get /watch']);
    const all = Object.entries(document.paths).flatMap(([path, methods]) => Object.keys(methods).filter((name) => name !== 'parameters').map((method) => `${method} ${path}`));
    assert.deepEqual(all.filter((one) => !asked.has(one)), []);
    stream.end();
  });

  test('one stream carries many watches, and ends with its session', async () => {
    const session = await bySession();
    const stream = await openStream(session);
    const paths = { maps: CONFIGMAPS, pods: '/projects/web/api/v1/namespaces/shop/pods', core: '/apis/resourcemanager.freehold.dev/v1alpha1/projects' };
    for (const [name, path] of Object.entries(paths)) {
      const table = name === 'pods';
      assert.equal((await ask('PUT', `/watch/${stream.name}/${name}`, { path, table }, session)).code, 202);
    }
    const of = (watch) => stream.frames.filter((one) => one.event === 'change' && one.data.watch === watch);
    await until('each watch has begun with what is there', () => Object.keys(paths).every((name) => of(name).length > 0));
    assert.equal(of('pods')[0].data.event.object.kind, 'Table');
    await made.make(CONFIGMAPS, { metadata: { name: 'multiplexed' } });
    const added = (watch) => of(watch).some(({ data: { event } }) => event.object.metadata?.name === 'multiplexed');
    await until('the watch tells of it', () => added('maps'));
    assert.ok(!added('core'));
    // Somebody else's stream is as good as none.
    assert.equal((await ask('PUT', `/watch/${stream.name}/x`, { path: CONFIGMAPS }, await bySession('olga'))).code, 404);
    assert.equal((await ask('PUT', `/watch/${stream.name}/x`, { path: '/api/v1/pods?watch=true' }, session)).code, 400);
    assert.equal((await ask('DELETE', '/session', undefined, session)).code, 200);
    await until('the stream has ended', () => stream.isOver);
  });

  test('sessions that began with links share connections to the server, and have rights of their own', async () => {
    // The connections of those who are not signed in are there.
    const first = await bySession('olga');
    assert.equal((await ask('GET', `/k8s${CONFIGMAPS}`, undefined, first)).code, 200);
    const before = toItself(server);
    const sessions = await Promise.all(['jane', 'olga', undefined, 'nobody'].flatMap((user) => Array.from({ length: 5 }, async () => [user, await bySession(user)])));
    const streams = await Promise.all(sessions.map(([, session]) => openStream(session)));
    const codes = await Promise.all(sessions.map(async ([user, session], index) => {
      assert.equal((await ask('PUT', `/watch/${streams[index].name}/a`, { path: CONFIGMAPS }, session)).code, 202);
      const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
      const who = await ask('POST', '/k8s/apis/authentication.k8s.io/v1/selfsubjectreviews', review, session);
      assert.equal(who.body.status.userInfo.username, user ?? 'admin');
      return [user, (await ask('GET', `/k8s${CONFIGMAPS}`, undefined, session)).code];
    }));
    for (const [user, code] of codes) assert.equal(code, user === 'nobody' ? 403 : 200, user);
    await until('each watch has begun, or was refused', () => streams.every(({ frames }) => frames.length > 1));
    for (const [index, [user]] of sessions.entries()) assert.equal(streams[index].frames[1].event, user === 'nobody' ? 'end' : 'change', user);
    const more = toItself(server) - before;
    assert.ok(more <= 2, `${more} connections more for ${sessions.length} sessions`);
    streams.forEach((stream) => stream.end());
  });

  test('a revoked certificate ends the one session that began with it', async () => {
    const both = await Promise.all([bySession('otto'), bySession('otto')]);
    const spec = { organizationRef: { name: 'acme' }, userRef: { name: 'otto' }, roles: ['viewer'] };
    await made.make(`/apis/resourcemanager.freehold.dev/v1alpha1/namespaces/organization-acme/organizationmemberships`, { apiVersion: 'resourcemanager.freehold.dev/v1alpha1', kind: 'OrganizationMembership', metadata: { name: 'otto' }, spec });
    const streams = await Promise.all(both.map(openStream));
    for (const [index, session] of both.entries()) {
      assert.equal((await ask('PUT', `/watch/${streams[index].name}/a`, { path: CONFIGMAPS }, session)).code, 202);
    }
    await until('both see what is there', () => streams.every(({ frames }) => frames.some((one) => one.event === 'change')));
    const review = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
    const who = await ask('POST', '/k8s/apis/authentication.k8s.io/v1/selfsubjectreviews', review, both[0]);
    const credentials = who.body.status.userInfo.extra['authentication.kubernetes.io/credential-id'];
    assert.match(credentials[0], /^X509SHA256=[0-9a-f]{64}$/);
    await made.make(`/apis/${IAM}/users`, { apiVersion: IAM, kind: 'User', metadata: { name: 'otto' }, spec: { revokedCredentials: credentials } });
    await until('its watch has ended', () => streams[0].frames.some((one) => one.event === 'end'), 5000);
    assert.equal((await ask('GET', `/k8s${CONFIGMAPS}`, undefined, both[0])).code, 401);
    await made.make(CONFIGMAPS, { metadata: { name: 'after-revocation' } });
    await until('the other one goes on', () => streams[1].frames.some((one) => one.data.event?.object.metadata?.name === 'after-revocation'));
    assert.ok(!streams[1].frames.some((one) => one.event === 'end'));
    assert.ok(!streams[0].frames.some((one) => one.data.event?.object.metadata?.name === 'after-revocation'));
    streams.forEach((stream) => stream.end());
  });

  test('requests beyond the rate of a session get 429, and others are served', async () => {
    const [busy, other] = await Promise.all([bySession('jane'), bySession('olga')]);
    const codes = await Promise.all(Array.from({ length: 1200 }, async () => (await ask('GET', '/session', undefined, busy)).code));
    assert.ok(codes.filter((code) => code === 429).length > 200, `${codes.filter((code) => code === 200).length} were served`);
    assert.equal((await ask('GET', '/session', undefined, other)).code, 200);
    await until('it is served again', async () => (await ask('GET', '/session', undefined, busy)).code === 200);
  });

  test('a request has one identifier in its answer and in the audit trail, where it is the user’s own', async () => {
    const session = await bySession('olga');
    const id = `console-${process.pid}`;
    const answer = await ask('POST', `/k8s${CONFIGMAPS}`, { metadata: { name: 'audited' } }, { ...session, 'Audit-ID': id });
    assert.deepEqual([answer.code, answer.headers['audit-id']], [201, id]);
    const event = await until('the trail has it', async () => {
      let next = '';
      do {
        const { body } = await server.api('GET', `/organizations/acme/apis/audit.k8s.io/v1/events${next && `?continue=${encodeURIComponent(next)}`}`);
        const found = body.items.find((one) => one.auditID === id);
        if (found) return found;
        next = body.metadata.continue ?? '';
      } while (next);
      return undefined;
    });
    assert.deepEqual([event.user.username, event.verb, event.objectRef.name], ['olga', 'create', 'audited']);
    assert.match(event.userAgent, /^freehold-console\//);
  });

  test('what the gateway may is what its user may, request by request', async () => {
    const session = await signIn('token', { token });
    const direct = { Authorization: `Bearer ${token}` };
    const RM = '/apis/resourcemanager.freehold.dev/v1alpha1';
    const codes = new Set();
    for (const [method, path, body] of [
      ['GET', '/version'],
      ['GET', '/metrics'],
      ['GET', '/debug/server'],
      ['GET', `${RM}/projects`],
      ['GET', `${RM}/organizations/acme`],
      ['GET', `/organizations/acme${RM}/projects`],
      ['GET', CONFIGMAPS],
      ['GET', `${CONFIGMAPS}/settings`],
      ['POST', CONFIGMAPS, { metadata: { name: 'of-robot' } }],
      ['DELETE', `${CONFIGMAPS}/settings`],
      ['GET', '/projects/web/api/v1/namespaces/kube-system/secrets'],
      ['GET', '/projects/nowhere/api/v1/namespaces'],
      ['PATCH', `/organizations/acme${RM}/projects/web`, { spec: { displayName: 'x' } }],
    ]) {
      const type = body && { 'Content-Type': method === 'PATCH' ? 'application/merge-patch+json' : 'application/json' };
      const [through, straight] = [await ask(method, `/k8s${path}`, body, { ...session, ...type }), await request(agent, server.url, method, path, body, { ...direct, ...type })];
      assert.equal(through.code, straight.code, `${method} ${path}: ${JSON.stringify([through.body, straight.body])}`);
      if (through.code >= 400) assert.equal(through.body.message, straight.body.message);
      codes.add(through.code);
    }
    assert.ok(codes.has(200) && codes.has(403), [...codes].join());
    // Nothing of the server is the gateway's alone: without a session it reads what a stranger reads.
    assert.equal((await ask('GET', `/k8s${CONFIGMAPS}`)).code, 401);
  });
});
