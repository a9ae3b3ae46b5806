// The console as a program of its own, beside a server elsewhere.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parse } from 'yaml';
import { launch, open } from './browser.js';
import { freePort } from './keycloak.js';
import { request, seed, start } from './server.js';

const BIN = process.env.FREEHOLD_BIN;
const IAM = 'iam.freehold.dev/v1alpha1';
const HOME = `/apis/${IAM}/namespaces/organization-acme`;

describe('serve', () => {
  let server, browser, child, url, token;

  before(async () => {
    server = await start(['--no-console']);
    const { make } = await seed(server);
    await make(`${HOME}/serviceaccounts`, { apiVersion: IAM, kind: 'ServiceAccount', metadata: { name: 'robot' } });
    token = (await make(`${HOME}/serviceaccountkeys`, { apiVersion: IAM, kind: 'ServiceAccountKey', metadata: { name: 'robot-1' }, spec: { serviceAccountRef: { name: 'robot' } } })).status.token;
    const [cert, key, ca] = ['tls.crt', 'tls.key', 'ca.crt'].map((name) => join(server.folder, name));
    const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' });
    const config = parse(readFileSync(join(server.data, 'admin.kubeconfig'), 'utf8'));
    writeFileSync(ca, Buffer.from(config.clusters[0].cluster['certificate-authority-data'], 'base64'));
    const port = await freePort();
    url = `https://localhost:${port}`;
    child = spawn(BIN, ['console', 'serve', '--server', server.url, '--server-ca', ca, '--external-url', 'https://freehold.example', '--console-url', url, '--listen', `127.0.0.1:${port}`, '--tls-cert-file', cert, '--tls-private-key-file', key], { stdio: ['ignore', 'pipe', 'pipe'] });
    let log = '';
    child.stderr.on('data', (bytes) => (log += bytes));
    await new Promise((done, fail) => {
      child.once('exit', (code) => fail(new Error(`it ended with ${code}: ${log}`)));
      child.stdout.on('data', (bytes) => String(bytes).startsWith('ready url=') && done());
    });
    child.removeAllListeners('exit');
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    if (child) {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      await ended;
    }
    await server?.stop();
  });

  test('people sign in with a token, and have the servers’ address in what they download', async () => {
    const { context, page } = await open(browser);
    await page.goto(`${url}/`);
    await page.waitForURL(`${url}/console/`);
    assert.equal(await page.getByText('freehold console link').count(), 0, 'no link is made here');
    await page.getByLabel(/^Token/).fill(token);
    await page.getByRole('button', { name: 'Sign in with a token' }).click();
    await page.getByRole('navigation').first().waitFor();
    const session = await page.evaluate(async () => (await fetch('/console/api/session', { headers: { 'X-Freehold-Console': '1' } })).json());
    assert.match(session.user, /robot/);
    assert.equal(session.server, 'https://freehold.example');
    assert.match(session.certificateAuthority, /BEGIN CERTIFICATE/);
    const codes = await page.evaluate(async () => {
      const ask = async (path) => (await fetch(`/console/api/k8s${path}`, { headers: { 'X-Freehold-Console': '1' } })).status;
      return [await ask('/version'), await ask('/projects/web/api/v1/namespaces')];
    });
    assert.deepEqual(codes, [200, 403]);
    await context.close();
  });

  test('its own origin counts, and the server’s is another', async () => {
    const agent = new https.Agent({ rejectUnauthorized: false });
    const ask = async (origin) => (await request(agent, url.replace('localhost', '127.0.0.1'), 'POST', '/console/api/login/token', { token: 'x' }, { 'Content-Type': 'application/json', 'X-Freehold-Console': '1', Origin: origin })).code;
    assert.deepEqual([await ask(url), await ask(server.url), await ask('https://evil.example')], [401, 403, 403]);
    assert.equal((await request(agent, server.url, 'GET', '/console/', undefined, {})).code === 200, false, 'a server without a console has none');
    agent.destroy();
  });
});
