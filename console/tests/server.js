// A real server for the tests, and requests to it as its admin.

import { spawn, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'yaml';

const BIN = process.env.FREEHOLD_BIN;
const START = 60_000;

/** Starts `freehold up` in a directory of its own, on a free port where none is named. */
export async function start(args = [], listen = '127.0.0.1:0') {
  if (!BIN) throw new Error('FREEHOLD_BIN names the program to test');
  const folder = mkdtempSync(join(tmpdir(), 'freehold-console-'));
  const data = join(folder, 'data');
  const child = spawn(BIN, ['up', '--data-dir', data, '--listen', listen, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  let log = '';
  child.stderr.on('data', (bytes) => (log += bytes));
  await new Promise((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`no start: ${text} ${log}`)), START);
    child.once('exit', (code) => fail(new Error(`the server ended with ${code}: ${log}`)));
    child.stdout.on('data', (bytes) => {
      text += bytes;
      if (!text.includes('get namespaces')) return;
      clearTimeout(timer);
      done();
    });
  });
  const url = /ready url=(\S+)/.exec(text)[1];
  const config = parse(readFileSync(join(data, 'admin.kubeconfig'), 'utf8'));
  const decode = (field) => Buffer.from(field, 'base64').toString();
  const user = config.users[0].user;
  const agent = new https.Agent({
    keepAlive: true,
    ca: decode(config.clusters[0].cluster['certificate-authority-data']),
    cert: decode(user['client-certificate-data']),
    key: decode(user['client-key-data']),
  });
  const server = {
    url,
    data,
    folder,
    pid: child.pid,
    console: `${url}/console/`,
    firstLink: /(\S+\/console\/login#code=\S+)/.exec(text)?.[1],
    log: () => log,
    /** A link that signs somebody in once. */
    link: (user, ...groups) =>
      execFileSync(BIN, ['console', 'link', '--data-dir', data, ...(user ? ['--user', user] : []), ...groups.flatMap((group) => ['--group', group])])
        .toString()
        .trim(),
    /** A request to the API as the admin, or with headers of one's own and no certificate. */
    api: (method, path, body, headers = {}) => request(agent, url, method, path, body, headers),
    stop: async () => {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
      agent.destroy();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  child.removeAllListeners('exit');
  return server;
}

export function request(agent, url, method, path, body, headers) {
  return new Promise((done, fail) => {
    const text = body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body);
    const options = { agent, method, headers: { ...(text ? { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) } : {}), ...headers } };
    const sent = https.request(url + path, options, (answer) => {
      let all = '';
      answer.on('data', (bytes) => (all += bytes));
      answer.on('end', () => {
        let value = all;
        try {
          value = JSON.parse(all);
        } catch {
          // It is text.
        }
        done({ code: answer.statusCode, headers: answer.headers, body: value });
      });
    });
    sent.on('error', fail);
    sent.end(text);
  });
}

/** Waits until something holds. */
export async function until(what, check, time = 30_000) {
  const end = Date.now() + time;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not in time: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

const rm = 'resourcemanager.freehold.dev/v1alpha1';
const RM = `/apis/${rm}`;

/** An organization with two projects and some members. */
export async function seed(server) {
  const make = async (path, object) => {
    const answer = await server.api('POST', path, object);
    if (answer.code !== 201) throw new Error(`${path}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  await make(`${RM}/organizations`, { apiVersion: rm, kind: 'Organization', metadata: { name: 'acme' }, spec: { displayName: 'Acme Inc.' } });
  for (const [name, displayName] of [
    ['web', 'Web shop'],
    ['analytics', 'Analytics'],
  ]) {
    await make(`${RM}/projects`, { apiVersion: rm, kind: 'Project', metadata: { name }, spec: { displayName, ownerRef: { kind: 'Organization', name: 'acme' } } });
  }
  const ready = async (path) => (await server.api('GET', path)).body.status?.conditions?.some((c) => c.type === 'Ready' && c.status === 'True');
  await until('projects are ready', async () => (await ready(`${RM}/projects/web`)) && (await ready(`${RM}/projects/analytics`)));
  for (const [user, role] of [
    ['jane', 'viewer'],
    ['olga', 'owner'],
  ]) {
    const spec = { organizationRef: { name: 'acme' }, userRef: { name: user }, roles: [role] };
    await make(`${RM}/namespaces/organization-acme/organizationmemberships`, { apiVersion: rm, kind: 'OrganizationMembership', metadata: { name: user }, spec });
  }
  const web = '/projects/web';
  await make(`${web}/api/v1/namespaces`, { metadata: { name: 'shop' } });
  await make(`${web}/api/v1/namespaces/shop/configmaps`, { metadata: { name: 'settings', labels: { app: 'shop', tier: 'front' } }, data: { colour: 'blue', size: '3' } });
  await make(`${web}/apis/apps/v1/namespaces/shop/deployments`, {
    metadata: { name: 'front', labels: { app: 'shop' } },
    spec: {
      replicas: 2,
      selector: { matchLabels: { app: 'front' } },
      template: { metadata: { labels: { app: 'front' } }, spec: { containers: [{ name: 'main', image: 'registry.example/front:1' }] } },
    },
  });
  const pods = async () => (await server.api('GET', `${web}/api/v1/namespaces/shop/pods`)).body.items?.length === 2;
  await until('Pods of the Deployment are there', pods);
  return { make, rm };
}
