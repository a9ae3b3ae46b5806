// What people do with pages, in a real browser against a real server.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { axe, launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const SHOTS = process.env.FREEHOLD_CONSOLE_PICTURES;
const CONFIGMAPS = '/projects/web/api/v1/namespaces/shop/configmaps';
const IAM = '/apis/iam.freehold.dev/v1alpha1/namespaces/organization-acme';
const APIS = 'apis.freehold.dev/v1alpha1';

describe('work', () => {
  let server, browser, made, context, page, errors;
  const at = (path) => `${server.url}/console/${path}`;
  const shot = async (name) => SHOTS && (await page.screenshot({ path: `${SHOTS}/${name}.png` }));
  const well = async () => {
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(errors, []);
  };

  before(async () => {
    if (SHOTS) mkdirSync(SHOTS, { recursive: true });
    server = await start();
    [made, browser] = await Promise.all([seed(server), launch()]);
    ({ context, page, errors } = await open(browser));
    await signIn(page, server.link());
    errors.length = 0;
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  test('what is typed into the filter becomes a selector, and goes again', async () => {
    await page.goto(at('projects/web/objects/core/v1/configmaps?ns=shop'));
    await page.getByRole('link', { name: 'kube-root-ca.crt' }).waitFor();
    const filter = page.getByRole('searchbox', { name: 'Text in a row' });
    await filter.fill('settings');
    await page.getByRole('link', { name: 'kube-root-ca.crt' }).waitFor({ state: 'detached' });
    assert.ok(!page.url().includes('labels'), 'a word is looked for in rows that are here');
    await filter.fill('tier=front,metadata.name!=x');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'settings' }).waitFor();
    const query = new URL(page.url()).searchParams;
    assert.deepEqual([query.get('labels'), query.get('fields')], ['tier=front', 'metadata.name!=x']);
    assert.match(await page.locator('.kubectl code').innerText(), /-l tier=front --field-selector 'metadata.name!=x'$/);
    await page.getByRole('button', { name: 'Remove selector tier=front' }).click();
    await page.getByRole('link', { name: 'kube-root-ca.crt' }).waitFor();
    await well();
  });

  test('an editor marks what the schema does not have, and completes what it has', async () => {
    await page.goto(at('projects/web/objects/apps/v1/deployments/shop/front?tab=yaml'));
    await page.getByRole('button', { name: 'Edit' }).click();
    const line = page.locator('.cm-line').filter({ hasText: /replicas: 2/ }).first();
    await line.click();
    await page.keyboard.press('End');
    await page.keyboard.type('x');
    await page.locator('.cm-lintRange-error').first().waitFor();
    await page.locator('.cm-lint-marker-error').first().hover();
    await page.getByText('replicas is string; integer is wanted.').waitFor();
    await page.keyboard.press('Backspace');
    await page.locator('.cm-lintRange-error').first().waitFor({ state: 'detached' });
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.keyboard.type('minRea');
    await page.getByRole('option', { name: /minReadySeconds/ }).waitFor();
    await shot('console-completion');
    await page.keyboard.press('Escape');
    await page.keyboard.type('dy: 1');
    await page.locator('.cm-lintRange-warning').first().waitFor();
    await page.getByRole('button', { name: 'Review changes' }).click();
    await page.getByRole('alert').filter({ hasText: 'unknown field "spec.minReady"' }).waitFor();
    errors.length = 0;
  });

  test('a project is exported into a file that import reads', async () => {
    await page.goto(at('projects/web'));
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export' }).click();
    const file = await download;
    assert.equal(file.suggestedFilename(), 'web.freehold');
    const archive = readFileSync(await file.path());
    const direct = await server.api('GET', '/projects/web/archive');
    assert.equal(direct.code, 200);
    assert.ok(archive.length > 1000 && archive.subarray(0, 8).equals(Buffer.from(direct.body, 'utf8').subarray(0, 8)), `${archive.length} bytes`);
    const refused = await open(browser);
    await signIn(refused.page, server.link('jane'));
    await refused.page.goto(at('projects/web'));
    await refused.page.waitForFunction(() => [...document.querySelectorAll('button')].some((one) => one.textContent.trim().startsWith('Export') && one.title.startsWith('You may not')));
    await refused.context.close();
    await well();
  });

  test('a claim that nobody has answered is shown, and answered', async () => {
    const make = (project, resource, kind, name, spec) =>
      made.make(`/projects/${project}/apis/${APIS}/${resource}`, { apiVersion: APIS, kind, metadata: { name }, spec });
    const versions = [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object' } } }];
    const names = { plural: 'bells', singular: 'bell', kind: 'Bell', listKind: 'BellList' };
    await make('analytics', 'apiresourceschemas', 'APIResourceSchema', 'v1.bells.sound.example.com', { group: 'sound.example.com', names, scope: 'Namespaced', versions });
    const claims = ['configmaps', 'services'].map((resource) => ({ group: '', resource, verbs: ['get', 'list'] }));
    await make('analytics', 'apiexports', 'APIExport', 'bells', { schemas: ['v1.bells.sound.example.com'], claims, consumers: { organizations: ['acme'] } });
    await make('web', 'apibindings', 'APIBinding', 'bells', { export: { project: 'analytics', name: 'bells' } });
    await page.goto(at('projects/web/apis'));
    const card = page.getByRole('region', { name: 'bells' });
    await card.getByText('get, list · configmaps').waitFor();
    await shot('console-claims');
    await well();
    const row = (text) => card.locator('.row', { hasText: text });
    await row('configmaps').getByRole('button', { name: 'Grant' }).click();
    await row('configmaps').getByRole('button', { name: 'Withdraw' }).waitFor();
    await row('services').getByRole('button', { name: 'Refuse' }).click();
    await card.getByText('The provider asks to be allowed').waitFor({ state: 'detached' });
    await card.getByText('Ready').waitFor();
    const { body } = await server.api('GET', `/projects/web/apis/${APIS}/apibindings/bells`);
    assert.deepEqual([body.spec.acceptedClaims, body.spec.rejectedClaims, body.status.pendingClaims], [[claims[0]], [claims[1]], undefined]);
  });

  test('an object is found by its name in all projects, whatever its type', async () => {
    await made.make('/projects/analytics/api/v1/namespaces/default/services', { metadata: { name: 'needle' }, spec: { ports: [{ port: 80 }] } });
    await made.make(CONFIGMAPS, { metadata: { name: 'needle' } });
    await page.goto(at('search/acme'));
    await page.getByRole('searchbox', { name: 'The whole name of an object of any type' }).fill('needle');
    await page.keyboard.press('Enter');
    await page.getByRole('row', { name: /needle ConfigMap web shop/ }).waitFor();
    await page.getByRole('row', { name: /needle Service analytics default/ }).waitFor();
    await page.getByText('types are left').waitFor({ state: 'detached' });
    // The browser notes types that have nothing to list here.
    errors.length = 0;
    await well();
    await page.getByRole('row', { name: /needle Service/ }).getByRole('link').click();
    await page.waitForURL(at('projects/analytics/objects/core/v1/services/default/needle'));
  });

  test('a group gets members and loses them', async () => {
    await page.goto(at('organizations/acme/roles'));
    await page.getByRole('button', { name: 'New group' }).click();
    await page.getByLabel('Name', { exact: true }).fill('devs');
    await page.getByRole('button', { name: 'Create' }).click();
    const group = page.getByRole('group', { name: 'devs' });
    await group.getByRole('button', { name: 'Add member' }).click();
    await page.getByLabel(/^User/).fill('jane');
    await page.getByRole('dialog').getByRole('button', { name: 'Add member' }).click();
    await group.getByText('jane').first().waitFor();
    await well();
    const members = async () => (await server.api('GET', `${IAM}/groupmemberships`)).body.items.map((one) => [one.spec.groupRef.name, one.spec.userRef.name]);
    assert.deepEqual(await members(), [['devs', 'jane']]);
    await group.getByRole('button', { name: 'Remove jane from devs' }).click();
    await group.getByText('Nobody').waitFor();
    assert.deepEqual(await members(), []);
  });

  test('operations show the server, its certificates, planes in memory and slow requests, to admins alone', async () => {
    await page.goto(at('operations'));
    const section = (name) => page.getByRole('region', { name, exact: true });
    await section('Servers').getByText('embedded').waitFor();
    await section('Certificates').getByRole('row', { name: /serving/ }).first().waitFor();
    await section('Control planes in memory').getByRole('link', { name: 'web' }).waitFor();
    await section('Busiest control planes').getByRole('link', { name: 'web' }).waitFor();
    await section('Flow control').getByText('workload-low').waitFor();
    await section('Slow requests').waitFor();
    const slow = await slowRequest();
    await section('Slow requests').getByRole('row', { name: new RegExp(slow) }).first().waitFor({ timeout: 30_000 });
    await shot('operations-full');
    await well();
    const { body } = await server.api('GET', '/debug/slow-requests');
    assert.ok(body.items.every((one) => one.milliseconds >= body.thresholdMilliseconds));
    assert.doesNotMatch(JSON.stringify(body), /\?/, 'queries are left out');
    const other = await open(browser);
    await signIn(other.page, server.link('jane'));
    const codes = await other.page.evaluate(async () => {
      const paths = ['debug/server', 'debug/planes', 'debug/slow-requests', 'projects/web/debug/server', 'organizations/acme/debug/slow-requests'];
      return Promise.all(paths.map(async (path) => (await fetch(`/console/api/k8s/${path}`, { headers: { 'X-Freehold-Console': '1' } })).status));
    });
    assert.deepEqual(codes.slice(0, 3), [403, 403, 403]);
    assert.ok(codes.every((code) => code === 403 || code === 404), codes.join());
    await other.context.close();
  });

  /** Sends a request that takes longer than half a second: its body comes late. */
  async function slowRequest() {
    const https = await import('node:https');
    const { parse } = await import('yaml');
    const config = parse(readFileSync(`${server.data}/admin.kubeconfig`, 'utf8'));
    const { user } = config.users[0];
    const decode = (text) => Buffer.from(text, 'base64').toString();
    const options = { method: 'POST', rejectUnauthorized: false, cert: decode(user['client-certificate-data']), key: decode(user['client-key-data']), headers: { 'Content-Type': 'application/json' } };
    await new Promise((done, fail) => {
      const sent = https.request(`${server.url}/projects/web/api/v1/namespaces/default/configmaps?dryRun=All`, options, (answer) => answer.resume().on('end', done));
      sent.on('error', fail);
      sent.write('{"metadata": {"name": "late"');
      setTimeout(() => sent.end('}}'), 900);
    });
    return '/projects/web/api/v1/namespaces/default/configmaps';
  }

  test('each page is reached, and each of its controls, by the keyboard alone', async () => {
    for (const path of ['', 'organizations/acme/members', 'projects/web', 'projects/web/objects/apps/v1/deployments', 'search/acme', 'operations']) {
      await page.goto(at(path));
      await page.waitForFunction(() => !document.querySelector('main')?.innerText.includes('Loading'));
      const missed = await page.evaluate(() => {
        const controls = [...document.querySelectorAll('main a[href], main button, main input, main select')];
        const shown = controls.filter((one) => one.checkVisibility() && !one.closest('table[aria-rowcount] tbody'));
        return shown.filter((one) => one.tabIndex < 0 || one.disabled).map((one) => one.outerHTML.slice(0, 120));
      });
      assert.deepEqual(missed, [], path);
    }
    await page.goto(at(''));
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main', 'the first link skips to the page');
    for (const [words, url] of [
      ['operations', 'operations'],
      ['members acme', 'organizations/acme/members'],
      ['tenants web', 'projects/web/tenants'],
      ['search', 'search'],
    ]) {
      await page.keyboard.press('Control+k');
      await page.keyboard.type(words);
      await page.getByRole('option', { selected: true }).waitFor();
      await page.keyboard.press('Enter');
      await page.waitForURL(at(url));
    }
    await page.keyboard.press('Control+k');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    errors.length = 0;
  });

  test('answers name their requests, those that the gateway refuses too', async () => {
    const ids = await page.evaluate(async () => {
      const ask = async (path, headers) => (await fetch(`/console/api/${path}`, { headers: { 'X-Freehold-Console': '1', ...headers } })).headers.get('audit-id');
      return [await ask('k8s/version', { 'Audit-ID': 'mine-1' }), await ask('k8s/planes/core/api', {}), await ask('session', {}), await ask('nothing', {})];
    });
    assert.equal(ids[0], 'mine-1');
    assert.ok(ids.slice(1).every((id) => /^[\w-]{22,36}$/.test(id)) && new Set(ids).size === ids.length, ids.join());
    errors.length = 0;
    await context.close();
  });
});
