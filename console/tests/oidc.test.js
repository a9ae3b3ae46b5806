// Signing in at a real identity provider: Keycloak, from .tools/keycloak (`tools/get keycloak`). It takes half a minute and half a
// gigabyte, so it runs where FREEHOLD_CONSOLE_LONG=1.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { launch, open } from './browser.js';
import { request, start, until } from './server.js';

const LONG = process.env.FREEHOLD_CONSOLE_LONG === '1';
const HOME = new URL('../../.tools/keycloak', import.meta.url).pathname;
const PASSWORD = 'correct-horse';

const freePort = () =>
  new Promise((done) => {
    const listener = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });

const realm = (origin) => ({
  realm: 'freehold',
  enabled: true,
  clients: [{ clientId: 'freehold', publicClient: true, standardFlowEnabled: true, redirectUris: [`${origin}/console/api/login/callback`], attributes: { 'pkce.code.challenge.method': 'S256', 'post.logout.redirect.uris': `${origin}/console/` } }],
  users: [{ username: 'jane', enabled: true, email: 'jane@example.com', emailVerified: true, firstName: 'Jane', lastName: 'Doe', credentials: [{ type: 'password', value: PASSWORD, temporary: false }] }],
});

describe('OpenID Connect', { skip: !LONG }, () => {
  let folder, keycloak, server, browser;

  before(async () => {
    assert.ok(existsSync(HOME), 'tools/get keycloak gets what this test needs');
    folder = mkdtempSync(join(tmpdir(), 'freehold-keycloak-'));
    const home = join(folder, 'keycloak');
    cpSync(HOME, home, { recursive: true });
    const [port, own] = [await freePort(), await freePort()];
    const [cert, key] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
    const subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' });
    const origin = `https://127.0.0.1:${own}`;
    mkdirSync(join(home, 'data/import'), { recursive: true });
    writeFileSync(join(home, 'data/import/realm.json'), JSON.stringify(realm(origin)));
    const issuer = `https://127.0.0.1:${port}/realms/freehold`;
    keycloak = spawn(
      join(home, 'bin/kc.sh'),
      ['start-dev', '--import-realm', '--cache=local', '--http-host=127.0.0.1', `--https-port=${port}`, '--http-port=0', `--hostname=https://127.0.0.1:${port}`, `--https-certificate-file=${cert}`, `--https-certificate-key-file=${key}`],
      { stdio: 'ignore', env: { ...process.env, JAVA_OPTS_KC_HEAP: '-Xms64m -Xmx512m', KC_RUN_IN_CONTAINER: 'true' } },
    );
    const agent = new https.Agent({ rejectUnauthorized: false });
    const discovery = '/realms/freehold/.well-known/openid-configuration';
    await until('Keycloak answers', async () => (await request(agent, `https://127.0.0.1:${port}`, 'GET', discovery, undefined, {}).catch(() => ({}))).code === 200, 300_000);
    const config = join(folder, 'issuers.yaml');
    // JSON is YAML.
    const pem = execFileSync('cat', [cert]).toString();
    const jwt = [{ issuer: { url: issuer, audiences: ['freehold'], certificateAuthority: pem }, claimMappings: { username: { claim: 'preferred_username', prefix: '' } } }];
    writeFileSync(config, JSON.stringify({ apiVersion: 'apiserver.config.k8s.io/v1', kind: 'AuthenticationConfiguration', jwt }));
    server = await start(
      ['--authentication-config', config, '--console-oidc-issuer', issuer, '--console-oidc-client-id', 'freehold', '--console-oidc-ca-file', cert],
      `127.0.0.1:${own}`,
    );
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    keycloak?.kill();
    if (folder) rmSync(folder, { recursive: true, force: true });
  });

  test('a person signs in at the issuer, and lands where they wanted to go', async () => {
    const { context, page } = await open(browser);
    await page.goto(`${server.url}/console/projects`);
    await page.getByRole('button', { name: /organization’s account/ }).click();
    await page.getByLabel('Username or email').fill('jane');
    await page.locator('input[type=password]').fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign In' }).click();
    await page.waitForURL(`${server.url}/console/projects`);
    await page.getByRole('heading', { name: 'Projects' }).waitFor();
    const session = await page.evaluate(async () => (await fetch('/console/api/session', { headers: { 'X-Freehold-Console': '1' } })).json());
    assert.deepEqual([session.user, session.method], ['jane', 'oidc']);
    assert.doesNotMatch(JSON.stringify(session), /eyJ/, 'the token stays on the server’s side');
    await context.close();
  });

  test('an answer of the issuer counts in the browser that asked, alone and once', async () => {
    const { context, page } = await open(browser);
    const callbacks = [];
    // The answer is taken from the browser, as somebody who overhears it would have it.
    await context.route('**/console/api/login/callback**', (route) => {
      callbacks.push(route.request().url());
      return route.abort();
    });
    await page.goto(`${server.url}/console/`);
    await page.getByRole('button', { name: /organization’s account/ }).click();
    await page.getByLabel('Username or email').fill('jane');
    await page.locator('input[type=password]').fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign In' }).click();
    await until('the issuer answered', () => callbacks.length > 0);
    const other = await open(browser);
    await other.page.goto(callbacks[0]);
    await other.page.getByRole('alert').filter({ hasText: 'not begun in this browser' }).waitFor();
    assert.ok(!(await other.context.cookies()).some((one) => one.name === '__Host-freehold-session'));
    await Promise.all([context.close(), other.context.close()]);
  });
});
