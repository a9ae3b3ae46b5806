// Signing in at a real identity provider: Keycloak, from .tools/keycloak (`tools/get keycloak`). It takes half a minute and half a
// gigabyte, so it runs where FREEHOLD_CONSOLE_LONG=1.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { launch, open } from './browser.js';
import { PASSWORD, freePort, startKeycloak } from './keycloak.js';
import { request, start, until } from './server.js';
import https from 'node:https';

const LONG = process.env.FREEHOLD_CONSOLE_LONG === '1';
const SESSION = '__Host-freehold-session';
const agent = new https.Agent({ rejectUnauthorized: false });

/** Signs in at Keycloak's page. */
async function present(page, user = 'jane', password = PASSWORD) {
  await page.getByLabel('Username or email').fill(user);
  await page.locator('input[type=password]').fill(password);
  await page.getByRole('button', { name: 'Sign In' }).click();
}

describe('OpenID Connect', { skip: !LONG }, () => {
  let keycloak, server, stranger, browser;

  before(async () => {
    const [own, other] = [await freePort(), await freePort()];
    keycloak = await startKeycloak(`https://127.0.0.1:${own}`, `https://127.0.0.1:${other}`);
    // The second server's console is a client whose tokens its apiserver does not accept.
    [server, stranger] = await Promise.all([
      start(keycloak.flags('freehold'), `127.0.0.1:${own}`),
      start(keycloak.flags('other'), `127.0.0.1:${other}`),
    ]);
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await Promise.all([server?.stop(), stranger?.stop()]);
    await keycloak?.stop();
  });

  /** A browser at a page of the console, where the issuer's button was pressed. */
  async function begin(path = '', at = server) {
    const found = await open(browser);
    await found.page.goto(`${at.url}/console/${path}`);
    await found.page.getByRole('button', { name: /organization’s account/ }).click();
    return found;
  }
  /** A browser that is signed in, at a page of the console. */
  async function signedIn(path = 'projects') {
    const found = await begin(path);
    await present(found.page);
    await found.page.waitForURL(`${server.url}/console/${path}`);
    await found.page.getByRole('navigation').first().waitFor();
    return found;
  }
  const sessionOf = (page) => page.evaluate(async () => (await fetch('/console/api/session', { headers: { 'X-Freehold-Console': '1' } })).json());
  const cookieOf = async (context) => (await context.cookies()).find((one) => one.name === SESSION);
  const codeWith = async (cookie) =>
    (await request(agent, server.url, 'GET', '/console/api/session', undefined, { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-origin', Cookie: `${SESSION}=${cookie.value}` })).code;

  test('a person signs in at the issuer, and lands where they wanted to go', async () => {
    const { context, page, requests } = await signedIn();
    await page.getByRole('heading', { name: 'Projects' }).waitFor();
    const session = await sessionOf(page);
    assert.deepEqual([session.user, session.method], ['jane', 'oidc']);
    assert.deepEqual([session.issuer.clientId, session.issuer.scopes], ['freehold', ['profile', 'email']]);
    assert.doesNotMatch(JSON.stringify(session), /eyJ/, 'the token stays on the server’s side');
    assert.ok(requests.every((url) => !url.startsWith(server.url) || !url.includes('eyJ')), 'no token in an address');
    const asked = new URL(requests.find((url) => url.includes('code_challenge=')));
    assert.deepEqual(['response_type', 'code_challenge_method'].map((name) => asked.searchParams.get(name)), ['code', 'S256']);
    await context.close();
  });

  test('a wrong password signs nobody in', async () => {
    const { context, page } = await begin();
    await present(page, 'jane', 'wrong');
    await page.getByText('Invalid username or password').waitFor();
    assert.equal(await cookieOf(context), undefined);
    await context.close();
  });

  test('signing out ends the session here and at the issuer', async () => {
    const { context, page } = await signedIn();
    const cookie = await cookieOf(context);
    assert.equal(await codeWith(cookie), 200);
    await page.getByRole('button', { name: 'jane' }).click();
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    // Keycloak asks, because the console gives it no ID token in an address.
    await page.getByRole('button', { name: 'Logout' }).click();
    await page.getByRole('button', { name: /organization’s account/ }).waitFor();
    assert.ok(page.url().startsWith(server.console), page.url());
    assert.equal(await codeWith(cookie), 401);
    // The issuer does not sign in again without the password.
    await page.getByRole('button', { name: /organization’s account/ }).click();
    await page.getByLabel('Username or email').waitFor();
    await context.close();
  });

  test('a token for another audience signs nobody in', async () => {
    const { context, page } = await begin('', stranger);
    await present(page);
    await page.getByRole('alert').waitFor();
    assert.ok(page.url().startsWith(stranger.console), page.url());
    assert.equal(await cookieOf(context), undefined);
    await context.close();
  });

  test('a session renews its tokens, and ends when the issuer ends it', async () => {
    const { context, page } = await signedIn();
    const cookie = await cookieOf(context);
    // Tokens of this realm live for 32 seconds, and are renewed 30 seconds before their end.
    const began = Date.now();
    await until('tokens are due', () => Date.now() - began > 2_500);
    assert.equal((await page.evaluate(async () => (await fetch('/console/api/k8s/version', { headers: { 'X-Freehold-Console': '1' } })).status)), 200);
    await keycloak.endSessions('jane');
    await until('the session ends', async () => {
      await page.evaluate(() => fetch('/console/api/k8s/version', { headers: { 'X-Freehold-Console': '1' } }));
      return (await codeWith(cookie)) === 401;
    });
    // The page says so as soon as it asks for anything, and keeps its place.
    await page.getByRole('link', { name: 'Organizations' }).click();
    await page.getByText('Your session has ended').waitFor();
    assert.equal(page.url(), `${server.url}/console/organizations`);
    await page.getByRole('button', { name: /organization’s account/ }).click();
    await present(page);
    await page.waitForURL(`${server.url}/console/organizations`);
    await page.getByRole('heading', { name: 'Organizations', level: 1 }).waitFor();
    await context.close();
  });

  test('an answer of the issuer counts in the browser that asked, alone and once', async () => {
    const { context, page } = await open(browser);
    const callbacks = [];
    // The answer is taken from the browser, as somebody who overhears it would have it.
    await context.route('**/login-actions/authenticate**', async (route) => {
      callbacks.push((await route.fetch({ maxRedirects: 0 })).headers().location);
      return route.abort();
    });
    await page.goto(`${server.url}/console/`);
    await page.getByRole('button', { name: /organization’s account/ }).click();
    await present(page);
    await until('the issuer answered', () => callbacks.length > 0);
    // The code alone is worth nothing at the issuer: what proves the beginning never left the server.
    const { searchParams } = new URL(callbacks[0]);
    const redeemed = await keycloak.redeem(searchParams.get('code'), `${server.url}/console/api/login/callback`);
    assert.deepEqual([redeemed.code, redeemed.body.error], [400, 'invalid_grant']);
    const other = await open(browser);
    await other.page.goto(callbacks[0]);
    await other.page.getByRole('alert').filter({ hasText: 'not begun in this browser' }).waitFor();
    assert.equal(await cookieOf(other.context), undefined);
    await Promise.all([context.close(), other.context.close()]);
  });

  test('an answer without its state, or with another, begins no session', async () => {
    const { context, page } = await begin();
    await page.getByLabel('Username or email').waitFor();
    for (const query of ['code=x', 'state=x&code=y', 'error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E']) {
      await page.goto(`${server.url}/console/api/login/callback?${query}`);
      await page.getByRole('alert').waitFor();
      assert.equal(await page.locator('main script').count(), 0);
      assert.ok(page.url().startsWith(server.console), page.url());
    }
    assert.equal(await cookieOf(context), undefined);
    await context.close();
  });

  test('no sign-in leads to another site', async () => {
    const headers = { 'Content-Type': 'application/json', 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-origin' };
    for (const landing of ['//evil.example', 'https://evil.example/', '/\\evil.example', '/console/../../evil', '/console//evil.example', 'javascript:alert(1)']) {
      const begun = await request(agent, server.url, 'POST', '/console/api/login/oidc', { landing }, headers);
      const { context, page } = await open(browser);
      const [name, value] = begun.headers['set-cookie'][0].split(';')[0].split('=');
      await context.addCookies([{ name, value, url: server.url, secure: true, httpOnly: true, sameSite: 'Lax' }]);
      await page.goto(begun.body.location);
      await present(page);
      await page.waitForURL(server.console);
      await context.close();
    }
    // The issuer sends answers to the console alone.
    const { context, page } = await begin();
    const away = new URL(page.url().includes('redirect_uri=') ? page.url() : await page.waitForURL(/redirect_uri=/).then(() => page.url()));
    away.searchParams.set('redirect_uri', 'https://evil.example/');
    await page.goto(away.href);
    await page.getByText(/Invalid parameter: redirect_uri/).waitFor();
    await context.close();
  });
});
