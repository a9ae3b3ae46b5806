// The console in a real browser, against a real server. FREEHOLD_BIN names the program. FREEHOLD_CONSOLE_LONG=1 runs everything;
// without it what takes long is left out.

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { axe, launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const LONG = process.env.FREEHOLD_CONSOLE_LONG === '1';
const SHOTS = process.env.FREEHOLD_CONSOLE_PICTURES;
let server;
let browser;
let made;

before(async () => {
  server = await start();
  [made, browser] = await Promise.all([seed(server), launch()]);
  if (SHOTS) mkdirSync(SHOTS, { recursive: true });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const shot = async (page, name) => SHOTS && (await page.screenshot({ path: `${SHOTS}/${name}.png` }));
const at = (path) => `${server.url}/console/${path}`;
const cookieOf = async (context) => (await context.cookies()).find((one) => one.name === '__Host-freehold-session');
/** Requests as a script of another program sends them, with a session's cookie. */
const ask = (method, path, headers = {}, body) =>
  fetchPlain(method, `/console/api${path}`, { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-origin', ...headers }, body);
const fetchPlain = async (method, path, headers, body) => {
  const { request } = await import('./server.js');
  const https = await import('node:https');
  return request(new https.Agent({ rejectUnauthorized: false }), server.url, method, path, body, headers);
};

describe('signing in', () => {
  test('the link that up prints signs the admin in, once', async () => {
    const { context, page, errors, requests } = await open(browser);
    await page.goto(server.firstLink);
    // The code is out of the address before anything is done with it.
    await page.getByRole('button', { name: 'Sign in with this link' }).waitFor();
    assert.ok(!page.url().includes('code='), page.url());
    await page.getByRole('button', { name: 'Sign in with this link' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await page.getByRole('link', { name: 'web', exact: true }).first().waitFor();
    const cookie = await cookieOf(context);
    assert.equal(cookie.httpOnly && cookie.secure && cookie.sameSite, 'Strict');
    assert.equal(await page.evaluate(() => document.cookie), '');
    assert.ok(requests.every((url) => url.startsWith(server.url)), 'requests to this origin alone');
    assert.ok(requests.every((url) => !url.includes('code=') || url.includes('#')), 'no code in a request');
    assert.deepEqual(errors.filter((text) => !text.includes('401')), []);
    const other = await open(browser);
    await other.page.goto(server.firstLink);
    await other.page.getByRole('button', { name: 'Sign in with this link' }).click();
    await other.page.getByRole('alert').filter({ hasText: 'used before' }).waitFor();
    await Promise.all([context.close(), other.context.close()]);
  });

  test('fetching a link in advance does not use it up', async () => {
    const link = server.link();
    assert.equal((await fetchPlain('GET', new URL(link).pathname, {})).code, 200);
    const { context, page } = await open(browser);
    // A browser that renders the page in advance presses nothing.
    await page.goto(link);
    await page.getByRole('button', { name: 'Sign in with this link' }).waitFor();
    await context.close();
    const person = await open(browser);
    await signIn(person.page, link);
    await person.page.getByRole('heading', { name: 'Overview' }).waitFor();
    await person.context.close();
  });

  test('signing in makes a new session, and ends the one before', async () => {
    const { context, page } = await open(browser);
    // A cookie that somebody planted is worth nothing, and is replaced.
    await context.addCookies([{ name: '__Host-freehold-session', value: 'planted', url: server.url, secure: true, httpOnly: true, sameSite: 'Strict' }]);
    await signIn(page, server.link());
    const first = await cookieOf(context);
    assert.notEqual(first.value, 'planted');
    await signIn(page, server.link('olga'));
    const second = await cookieOf(context);
    assert.notEqual(second.value, first.value);
    const session = (value) => ask('GET', '/session', { Cookie: `__Host-freehold-session=${value}` });
    assert.equal((await session(first.value)).code, 401);
    assert.equal((await session(second.value)).body.user, 'olga');
    await page.getByRole('button', { name: /olga/ }).click();
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await page.getByRole('button', { name: 'Sign in with a token' }).waitFor();
    assert.equal((await session(second.value)).code, 401, 'signing out ends the session on the server');
    await context.close();
  });

  test('a token signs in, and never comes back to the browser', async () => {
    const account = { apiVersion: 'iam.freehold.dev/v1alpha1', kind: 'ServiceAccount', metadata: { name: 'robot' } };
    await made.make('/apis/iam.freehold.dev/v1alpha1/namespaces/organization-acme/serviceaccounts', account);
    const key = await made.make('/apis/iam.freehold.dev/v1alpha1/namespaces/organization-acme/serviceaccountkeys', {
      apiVersion: 'iam.freehold.dev/v1alpha1',
      kind: 'ServiceAccountKey',
      metadata: { name: 'robot-1' },
      spec: { serviceAccountRef: { name: 'robot' } },
    });
    const headers = { 'Content-Type': 'application/json' };
    const good = await ask('POST', '/login/token', headers, { token: key.status.token });
    assert.equal(good.code, 200, JSON.stringify(good.body));
    assert.ok(!JSON.stringify([good.body, good.headers]).includes(key.status.token));
    assert.equal((await ask('POST', '/login/token', headers, { token: 'nobody' })).code, 401);
  });
});

describe('pages', () => {
  let context, page, errors;
  before(async () => {
    ({ context, page, errors } = await open(browser));
    await signIn(page, server.link());
  });
  after(() => context.close());

  const pages = [
    ['', 'Overview', 'overview'],
    ['organizations', 'Organizations', 'organizations'],
    ['organizations/acme', 'acme', 'organization'],
    ['organizations/acme/members', 'acme', 'members'],
    ['organizations/acme/roles', 'acme', 'roles'],
    ['organizations/acme/accounts', 'acme', 'accounts'],
    ['organizations/acme/quotas', 'acme', 'quotas'],
    ['organizations/acme/audit', 'acme', 'audit'],
    ['organizations/acme/objects', 'acme', 'organization-objects'],
    ['projects', 'Projects', 'projects'],
    ['projects/web', 'web', 'project'],
    ['projects/web/objects/apps/v1/deployments', 'web', 'objects'],
    ['projects/web/objects/apps/v1/deployments/shop/front', 'front', 'object'],
    ['projects/web/objects/apps/v1/deployments/shop/front?tab=yaml', 'front', 'yaml'],
    ['projects/web/objects/apps/v1/deployments/shop/front?tab=events', 'front', 'events'],
    ['projects/web/objects/apps/v1/deployments/shop/front?tab=relations', 'front', 'relations'],
    ['projects/web/apis', 'web', 'apis'],
    ['projects/web/tenants', 'web', 'tenants'],
    ['projects/web/workflows', 'web', 'workflows'],
    ['search/acme/core/v1/configmaps', 'Search', 'search'],
    ['platform', 'Platform objects', 'platform'],
    ['operations', 'Operations', 'operations'],
  ];
  for (const [path, heading, name] of pages) {
    test(`${name} shows the server's state and has no barrier that axe finds`, async () => {
      errors.length = 0;
      await page.goto(at(path));
      await page.getByRole('heading', { name: heading, level: 1, exact: true }).waitFor();
      await page.waitForFunction(() => !document.querySelector('main')?.innerText.includes('Loading'));
      await page.waitForTimeout(150);
      assert.deepEqual(await axe(page), []);
      assert.deepEqual(errors, []);
      await shot(page, name);
      if (LONG) {
        await page.emulateMedia({ colorScheme: 'dark' });
        await page.evaluate(() => (document.documentElement.dataset.theme = 'dark'));
        await page.setViewportSize({ width: 360, height: 740 });
        await page.waitForTimeout(150);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 0, `wider than 360 px by ${overflow}`);
        assert.deepEqual(await axe(page), []);
        await shot(page, `${name}-narrow-dark`);
        await page.setViewportSize({ width: 1280, height: 800 });
        await page.evaluate(() => (document.documentElement.dataset.theme = 'light'));
      }
    });
  }

  test('what others change is on screen at once', async () => {
    await page.goto(at('projects/web/objects/core/v1/configmaps?ns=shop'));
    await page.getByRole('link', { name: 'settings' }).waitFor();
    await page.locator('.state.live').waitFor();
    const path = '/projects/web/api/v1/namespaces/shop/configmaps';
    await page.waitForTimeout(500);
    const began = Date.now();
    await made.make(path, { metadata: { name: 'fresh', labels: { app: 'shop' } }, data: {} });
    await page.getByRole('link', { name: 'fresh' }).waitFor();
    const shown = Date.now() - began;
    assert.ok(shown < 3000, `${shown} ms`);
    await server.api('DELETE', `${path}/fresh`);
    await page.getByRole('link', { name: 'fresh' }).waitFor({ state: 'detached' });
  });

  test('selectors narrow a list, and the command says the same', async () => {
    await page.goto(at('projects/web/objects/core/v1/configmaps?ns=shop'));
    await page.getByRole('link', { name: 'kube-root-ca.crt' }).waitFor();
    await page.getByLabel('Labels: app=web,tier!=db').fill('tier=front');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'kube-root-ca.crt' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'settings' }).waitFor();
    assert.match(await page.locator('.kubectl code').innerText(), /get configmaps -n shop -l tier=front$/);
  });

  test('an edit is compared with what the server would store, and then applied', async () => {
    await page.goto(at('projects/web/objects/core/v1/configmaps/shop/settings?tab=yaml'));
    await page.getByRole('button', { name: 'Edit' }).click();
    const content = page.locator('.cm-content');
    await content.getByText('blue').click();
    await page.keyboard.press('End');
    await page.keyboard.type('green');
    await page.getByRole('button', { name: 'Review changes' }).click();
    await page.locator('.cm-changedLine').first().waitFor();
    await shot(page, 'diff');
    const unchanged = (await server.api('GET', '/projects/web/api/v1/namespaces/shop/configmaps/settings')).body;
    assert.equal(unchanged.data.colour, 'blue', 'a review changes nothing');
    await page.getByRole('button', { name: 'Apply' }).click();
    await until('the change is stored', async () => {
      const { body } = await server.api('GET', '/projects/web/api/v1/namespaces/shop/configmaps/settings');
      return body.data.colour === 'bluegreen' && body.metadata.managedFields.some((one) => one.manager === 'freehold-console');
    });
  });

  test('a table, the command palette and pages work by keyboard alone', async () => {
    await page.goto(at('projects'));
    await page.getByRole('row', { name: /analytics/ }).waitFor();
    await page.getByRole('row', { name: /analytics/ }).focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/projects\/\w+$/);
    await page.keyboard.press('Control+k');
    await page.keyboard.type('analyt');
    await page.getByRole('option').first().waitFor();
    await shot(page, 'palette');
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press('Enter');
    await page.waitForURL(at('projects/analytics'));
  });

  test('a project is made, and its page says when it is ready', async () => {
    await page.goto(at('projects'));
    await page.getByRole('button', { name: 'New project' }).click();
    await page.getByLabel('Name', { exact: true }).fill('from-console');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.waitForURL(at('projects/from-console'));
    await page.getByText('Ready', { exact: true }).first().waitFor();
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Kubeconfig' }).click();
    await page.getByRole('button', { name: 'Download' }).first().click();
    assert.equal((await download).suggestedFilename(), 'from-console.kubeconfig');
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Take snapshot' }).click();
    await page.getByRole('row', { name: /from-console-/ }).getByText('Ready').waitFor();
  });

  test('a binding says what it gives away, and takes it back', async () => {
    const APIS = 'apis.freehold.dev/v1alpha1';
    const make = async (project, resource, kind, name, spec) => {
      const answer = await server.api('POST', `/projects/${project}/apis/${APIS}/${resource}`, { apiVersion: APIS, kind, metadata: { name }, spec });
      assert.equal(answer.code, 201, JSON.stringify(answer.body));
    };
    const versions = [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }];
    const names = { plural: 'lamps', singular: 'lamp', kind: 'Lamp', listKind: 'LampList' };
    await make('analytics', 'apiresourceschemas', 'APIResourceSchema', 'v1.lamps.light.example.com', { group: 'light.example.com', names, scope: 'Namespaced', versions });
    const claim = { group: '', resource: 'configmaps', verbs: ['get', 'list'], labels: { app: 'shop' } };
    await make('analytics', 'apiexports', 'APIExport', 'lamps', { schemas: ['v1.lamps.light.example.com'], claims: [claim], consumers: { organizations: ['acme'] } });
    await make('web', 'apibindings', 'APIBinding', 'lamps', { export: { project: 'analytics', name: 'lamps' }, acceptedClaims: [claim] });
    errors.length = 0;
    await page.goto(at('projects/web/apis'));
    const card = page.getByRole('region', { name: 'lamps' });
    await card.getByText('get, list · configmaps (app=shop)').waitFor();
    await card.getByRole('link', { name: 'lamps.light.example.com' }).waitFor();
    await shot(page, 'bindings');
    assert.deepEqual(await axe(page), []);
    await card.getByRole('button', { name: 'Withdraw' }).click();
    await card.getByRole('button', { name: 'Grant' }).waitFor();
    const { body } = await server.api('GET', `/projects/web/apis/${APIS}/apibindings/lamps`);
    assert.deepEqual([body.spec.acceptedClaims ?? [], body.spec.rejectedClaims], [[], [claim]]);
    assert.deepEqual(errors, []);
  });

  test('German is the second language', async () => {
    await page.getByRole('button', { name: 'admin' }).click();
    await page.getByLabel('Language').selectOption('de');
    await page.getByRole('link', { name: 'Übersicht' }).waitFor();
    await page.getByLabel('Sprache').selectOption('en');
    await page.getByRole('link', { name: 'Overview' }).waitFor();
  });
});

describe('rights', () => {
  test('what a viewer may not do is not offered, and says why', async () => {
    const { context, page } = await open(browser);
    await signIn(page, server.link('jane'));
    await page.goto(at('projects/web'));
    const snapshot = page.getByRole('button', { name: 'Take snapshot' });
    await page.waitForFunction(() => [...document.querySelectorAll('button')].some((one) => one.title.startsWith('You may not')));
    assert.equal(await snapshot.getAttribute('aria-disabled'), 'true');
    assert.match(await snapshot.getAttribute('title'), /^You may not do this/);
    await shot(page, 'viewer');
    await snapshot.click({ force: true });
    const { body } = await server.api('GET', '/apis/resourcemanager.freehold.dev/v1alpha1/namespaces/organization-acme/projectsnapshots');
    assert.ok(body.items.every((one) => one.spec.projectRef.name !== 'web'));
    // The API decides, whatever a page shows.
    const cookie = `__Host-freehold-session=${(await cookieOf(context)).value}`;
    const refused = await ask('POST', '/k8s/projects/web/api/v1/namespaces/shop/configmaps', { Cookie: cookie, 'Content-Type': 'application/json' }, { metadata: { name: 'x' } });
    assert.equal(refused.code, 403);
    assert.equal((await ask('GET', '/k8s/apis/resourcemanager.freehold.dev/v1alpha1/organizations', { Cookie: cookie })).code, 403);
    await context.close();
  });
});

describe('safety', () => {
  const session = async () => {
    const { context, page } = await open(browser);
    await signIn(page, server.link());
    return { context, page, cookie: `__Host-freehold-session=${(await cookieOf(context)).value}` };
  };

  test('a request that a page of another site can send is refused', async () => {
    const { context, cookie } = await session();
    const path = '/k8s/projects/web/api/v1/namespaces/shop/configmaps';
    const body = { metadata: { name: 'forged' } };
    const json = { Cookie: cookie, 'Content-Type': 'application/json' };
    const codes = [];
    for (const headers of [
      { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'cross-site' },
      { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-site' },
      { 'X-Freehold-Console': '1', Origin: 'https://evil.example' },
      { 'X-Freehold-Console': '1' },
      { 'Sec-Fetch-Site': 'same-origin' },
    ]) {
      codes.push((await fetchPlain('POST', `/console/api${path}`, { ...json, ...headers }, body)).code);
    }
    assert.deepEqual(codes, [403, 403, 403, 403, 403]);
    assert.equal((await fetchPlain('GET', '/console/api/session', { Cookie: cookie })).code, 403, 'a link that is followed');
    assert.equal((await server.api('GET', '/projects/web/api/v1/namespaces/shop/configmaps/forged')).code, 404);
    // A real page of another origin, with a real form.
    const other = await context.newPage();
    await other.route('https://evil.example/**', (route) =>
      route.fulfill({ contentType: 'text/html', body: `<form id=f method=post enctype=text/plain action="${server.url}/console/api${path}"><input name='{"metadata":{"name":"forged"},"x":"' value='"}'></form><script>f.submit()</script>` }),
    );
    const [answer] = await Promise.all([other.waitForResponse((response) => response.url().includes('/console/api/k8s')), other.goto('https://evil.example/')]);
    assert.ok([401, 403].includes(answer.status()));
    await context.close();
  });

  test('names, labels, YAML and messages are text, whatever they hold', async () => {
    const { context, page } = await session();
    const evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
    const escape = '\u001b[2J\u001b]0;x\u0007\u202egnp.exe';
    const path = '/projects/web/api/v1/namespaces/shop/configmaps';
    await made.make(path, { metadata: { name: 'evil', labels: { app: 'evil' }, annotations: { 'a/b': evil + escape, url: 'javascript:window.hacked=1' } }, data: { [`k`]: `${evil}\n---\n!!js/function "x"` } });
    await made.make('/projects/web/api/v1/namespaces/shop/events', {
      metadata: { name: 'evil.1' },
      involvedObject: { kind: 'ConfigMap', name: 'evil', namespace: 'shop' },
      message: evil + escape,
      reason: evil.slice(0, 100),
      type: 'Warning',
    });
    await server.api('PATCH', '/apis/resourcemanager.freehold.dev/v1alpha1/projects/analytics', { spec: { displayName: evil } }, { 'Content-Type': 'application/merge-patch+json' });
    const here = 'projects/web/objects/core/v1/configmaps/shop/evil';
    for (const [to, text] of [
      [here, 'onerror'],
      [`${here}?tab=yaml`, 'window.hacked'],
      [`${here}?tab=events`, 'onerror'],
      ['projects', 'onerror'],
      ['', 'onerror'],
      ['projects/analytics', 'onerror'],
      ['organizations/acme/audit', 'configmaps'],
    ]) {
      await page.goto(at(to));
      await page.getByText(text).first().waitFor();
      assert.equal(await page.evaluate(() => globalThis.hacked), undefined, to);
      assert.equal(await page.locator('main img, main script').count(), 0, to);
      // eslint-disable-next-line no-control-regex
      assert.doesNotMatch(await page.locator('main').innerText(), /[\u001b\u202e\u0007]/, to);
    }
    await context.close();
  });

  test('no page is shown in a frame, and none runs what is not its own', async () => {
    const { context, page } = await session();
    const answer = await page.goto(at(''));
    const policy = answer.headers()['content-security-policy'];
    assert.match(policy, /default-src 'none'/);
    assert.match(policy, /frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*/);
    assert.equal(answer.headers()['x-frame-options'], 'DENY');
    const frame = await context.newPage();
    await frame.route('https://evil.example/**', (route) => route.fulfill({ contentType: 'text/html', body: `<iframe src="${at('')}"></iframe>` }));
    await frame.goto('https://evil.example/');
    await frame.waitForTimeout(500);
    assert.ok(frame.frames().slice(1).every((one) => !one.url().startsWith(server.url)), frame.frames().map((one) => one.url()).join());
    await page.evaluate(() => {
      const script = document.createElement('script');
      try {
        script.textContent = 'window.inline = 1';
        document.body.append(script);
      } catch {
        // Trusted types refuse it before the policy does.
      }
    });
    assert.equal(await page.evaluate(() => globalThis.inline), undefined);
    await context.close();
  });

  test('data of the API is no page, and connections into a plane are refused', async () => {
    const { context, cookie } = await session();
    const answer = await ask('GET', '/k8s/projects/web/api/v1/namespaces/shop/configmaps/settings', { Cookie: cookie });
    assert.match(answer.headers['content-security-policy'], /sandbox/);
    assert.equal(answer.headers['x-content-type-options'], 'nosniff');
    assert.ok(answer.headers['audit-id'], 'an answer names its request');
    const codes = [];
    for (const path of [
      '/k8s/projects/web/api/v1/namespaces/shop/services/x/proxy/',
      '/k8s/projects/web/api/v1/namespaces/shop/pods/x/exec?command=sh',
      '/k8s/projects/../console/api/session',
      '/k8s/projects/%2e%2e/console/api/session',
      '/k8s/api/v1/namespaces?watch=true',
    ]) {
      codes.push((await ask('GET', path, { Cookie: cookie })).code);
    }
    assert.ok(codes.every((code) => [400, 403, 404].includes(code)), codes.join());
    await context.close();
  });

  test('a sign-in leads to pages of the console alone', async () => {
    const { context, page } = await open(browser);
    for (const away of ['//evil.example', 'https://evil.example', '/\\evil.example']) {
      const answer = await fetchPlain('GET', `/console/login?landing=${encodeURIComponent(away)}`, {});
      assert.equal(answer.headers.location, undefined);
    }
    await page.goto(`${server.link()}&landing=https://evil.example`);
    await page.getByRole('button', { name: 'Sign in with this link' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor().catch(() => undefined);
    assert.ok(page.url().startsWith(server.url));
    const callback = await fetchPlain('GET', '/console/api/login/callback?state=x&code=y', {});
    assert.ok(callback.headers.location.startsWith('/console/login'), callback.headers.location);
    await context.close();
  });

  test('tokens and kubeconfigs are in no address and no storage', async () => {
    const { context, page } = await session();
    const seen = [];
    page.on('request', (request) => seen.push(request.url()));
    await page.goto(at('projects/web'));
    await page.getByRole('button', { name: 'Kubeconfig' }).click();
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).first().click();
    await download;
    const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, location.href, history.length]));
    const everything = seen.join() + kept;
    assert.doesNotMatch(everything, /client-key|PRIVATE|code=|token=|Bearer/);
    await context.close();
  });
});

describe('connection', { skip: !LONG }, () => {
  test('a network that breaks and comes back loses no change', async () => {
    const { context, page } = await open(browser);
    await signIn(page, server.link());
    await page.goto(at('projects/web/objects/core/v1/configmaps?ns=shop'));
    await page.getByRole('link', { name: 'settings' }).waitFor();
    await page.locator('.state.live').waitFor();
    await context.setOffline(true);
    const path = '/projects/web/api/v1/namespaces/shop/configmaps';
    await made.make(path, { metadata: { name: 'while-away' } });
    await server.api('DELETE', `${path}/settings`);
    await page.waitForTimeout(2000);
    await context.setOffline(false);
    await page.getByRole('link', { name: 'while-away' }).waitFor({ timeout: 60_000 });
    await page.getByRole('link', { name: 'settings' }).waitFor({ state: 'detached' });
    await context.close();
  });

  test('a list of 10,000 rows has few in the page, and all of them by scrolling', async () => {
    const path = '/projects/analytics/api/v1/namespaces/default/configmaps';
    for (let round = 0; round < 100; round++) {
      await Promise.all(Array.from({ length: 100 }, (_, index) => made.make(path, { metadata: { name: `row-${String(round * 100 + index).padStart(5, '0')}` } })));
    }
    const { context, page } = await open(browser);
    await signIn(page, server.link());
    await page.goto(at('projects/analytics/objects/core/v1/configmaps?ns=default'));
    await page.getByRole('link', { name: 'row-00000' }).waitFor();
    assert.ok((await page.locator('tbody tr').count()) < 100);
    await until('all rows are read', async () => {
      await page.locator('.box').evaluate((box) => (box.scrollTop = box.scrollHeight));
      return (await page.getByRole('link', { name: 'row-09999' }).count()) === 1;
    });
    await context.close();
  });
});
