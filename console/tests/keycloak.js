// A real identity provider for tests: Keycloak, from .tools/keycloak (`tools/get keycloak`).

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request, until } from './server.js';

const HOME = new URL('../../.tools/keycloak', import.meta.url).pathname;
const FORM = { 'Content-Type': 'application/x-www-form-urlencoded' };
export const PASSWORD = 'correct-horse';

export const freePort = () =>
  new Promise((done) => {
    const listener = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = listener.address();
      listener.close(() => done(port));
    });
  });

const client = (clientId, origin) => ({
  clientId,
  publicClient: true,
  standardFlowEnabled: true,
  redirectUris: [`${origin}/console/api/login/callback`],
  attributes: { 'pkce.code.challenge.method': 'S256', 'post.logout.redirect.uris': `${origin}/console/` },
});
const realm = (origin, other) => ({
  realm: 'freehold',
  enabled: true,
  accessTokenLifespan: 32,
  clients: [client('freehold', origin), client('other', other)],
  users: [{ username: 'jane', enabled: true, email: 'jane@example.com', emailVerified: true, firstName: 'Jane', lastName: 'Doe', credentials: [{ type: 'password', value: PASSWORD, temporary: false }] }],
});

/** A Keycloak whose client `freehold` is the console of one origin, and `other` that of another. */
export async function startKeycloak(origin, other) {
  assert.ok(existsSync(HOME), 'tools/get keycloak gets what this test needs');
  const folder = mkdtempSync(join(tmpdir(), 'freehold-keycloak-'));
  const home = join(folder, 'keycloak');
  // It writes into its own folder.
  cpSync(HOME, home, { recursive: true });
  const port = await freePort();
  const [cert, key] = [join(folder, 'tls.crt'), join(folder, 'tls.key')];
  // Another host than that of the console: a browser holds the two for different sites, as they are in real life.
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=critical,CA:FALSE'];
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' });
  mkdirSync(join(home, 'data/import'), { recursive: true });
  writeFileSync(join(home, 'data/import/realm.json'), JSON.stringify(realm(origin, other)));
  const url = `https://localhost:${port}`;
  const issuer = `${url}/realms/freehold`;
  const log = join(folder, 'keycloak.log');
  const output = openSync(log, 'w');
  const child = spawn(
    join(home, 'bin/kc.sh'),
    ['start-dev', '--import-realm', '--cache=local', '--http-host=127.0.0.1', `--https-port=${port}`, '--http-port=0', `--hostname=${url}`, `--https-certificate-file=${cert}`, `--https-certificate-key-file=${key}`],
    {
      stdio: ['ignore', output, output],
      // The script, told not to fork, becomes Java itself.
      env: { ...process.env, JAVA_OPTS_KC_HEAP: '-Xms64m -Xmx512m', KC_RUN_IN_CONTAINER: 'true', KC_BOOTSTRAP_ADMIN_USERNAME: 'admin', KC_BOOTSTRAP_ADMIN_PASSWORD: PASSWORD },
    },
  );
  const agent = new https.Agent({ rejectUnauthorized: false });
  const send = (method, path, body, headers = {}) => request(agent, url, method, path, body, headers);
  const ready = async () => {
    if (child.exitCode !== null) throw new Error(`Keycloak ended: ${readFileSync(log, 'utf8')}`);
    const answer = await send('GET', '/realms/freehold/.well-known/openid-configuration').catch(() => undefined);
    return answer?.code === 200;
  };
  await until('Keycloak answers', ready, 300_000);
  const config = join(folder, 'issuers.yaml');
  const jwt = [{ issuer: { url: issuer, audiences: ['freehold'], certificateAuthority: readFileSync(cert, 'utf8') }, claimMappings: { username: { claim: 'preferred_username', prefix: '' } } }];
  // JSON is YAML.
  writeFileSync(config, JSON.stringify({ apiVersion: 'apiserver.config.k8s.io/v1', kind: 'AuthenticationConfiguration', jwt }));
  return {
    /** Flags of a server whose console is a client, and which accepts tokens for `freehold`. */
    flags: (clientId) => ['--authentication-config', config, '--console-oidc-issuer', issuer, '--console-oidc-client-id', clientId, '--console-oidc-ca-file', cert],
    /** Ends a user's sessions, as an administrator does. */
    async endSessions(user) {
      const login = await send('POST', '/realms/master/protocol/openid-connect/token', `grant_type=password&client_id=admin-cli&username=admin&password=${PASSWORD}`, FORM);
      const headers = { Authorization: `Bearer ${login.body.access_token}` };
      const { body } = await send('GET', `/admin/realms/freehold/users?username=${user}`, undefined, headers);
      const ended = await send('POST', `/admin/realms/freehold/users/${body[0].id}/logout`, undefined, headers);
      assert.equal(ended.code, 204);
    },
    /** Redeems a code as somebody who has it, and nothing else. */
    redeem: (code, uri) => send('POST', '/realms/freehold/protocol/openid-connect/token', `grant_type=authorization_code&client_id=freehold&code=${code}&redirect_uri=${encodeURIComponent(uri)}`, FORM),
    stop: async () => {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill();
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
