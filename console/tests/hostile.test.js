// What hostile people write and link to, in the browser of somebody who looks at it. `safety` in console.test.js has more of it,
// terminal.test.js has logs, terminals and ports of hostile containers, oidc.test.js the answers of an issuer.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const IAM = 'iam.freehold.dev/v1alpha1';
const RM = 'resourcemanager.freehold.dev/v1alpha1';
const APIS = 'apis.freehold.dev/v1alpha1';
const EVIL = '<img src=x onerror="window.hacked=1"><svg onload="window.hacked=1"><script>window.hacked=1</script>{@html 1}';
const CODES = '\u001b[2J\u001b]0;title\u0007\u202egnp.exe\u2066';

describe('hostile', () => {
  let server, browser, made, context, page;
  const at = (path) => `${server.url}/console/${path}`;

  before(async () => {
    server = await start();
    [made, browser] = await Promise.all([seed(server), launch()]);
    ({ context, page } = await open(browser));
    await signIn(page, server.link());
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  /** What is on a page is text. */
  async function holds(path, text) {
    await page.goto(at(path));
    await page.getByText(text).first().waitFor();
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined, path);
    assert.equal(await page.locator('main img, main script, main iframe, main [onerror], main [onload], main a[href^="javascript:"]').count(), 0, path);
    const shown = await page.evaluate(() => `${document.querySelector('main').innerText} ${[...document.querySelectorAll('main [title]')].map((one) => one.title).join(' ')}`);
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(shown, /[\u001b\u0007\u202e\u2066]/, path);
  }

  test('columns, cells and schemas of a definition are text', async () => {
    const CRD = '/projects/web/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
    await made.make(CRD, {
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: 'traps.evil.example' },
      spec: {
        group: 'evil.example',
        scope: 'Namespaced',
        names: { plural: 'traps', singular: 'trap', kind: 'Trap', listKind: 'TrapList' },
        versions: [
          {
            name: 'v1',
            served: true,
            storage: true,
            additionalPrinterColumns: [
              { name: `${EVIL}${CODES}`, type: 'string', jsonPath: '.spec.text', description: EVIL },
              { name: 'Text', type: 'string', jsonPath: '.spec.text' },
              { name: 'Text', type: 'string', jsonPath: '.spec.text' },
            ],
            schema: {
              openAPIV3Schema: {
                type: 'object',
                description: EVIL,
                properties: {
                  spec: { type: 'object', properties: { text: { type: 'string', description: EVIL }, [EVIL]: { type: 'string' } } },
                  status: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
                },
              },
            },
          },
        ],
      },
    });
    const traps = '/projects/web/apis/evil.example/v1/namespaces/shop/traps';
    await until('it is served', async () => (await server.api('GET', traps)).code === 200);
    // Columns and conditions are there twice.
    const condition = { type: EVIL, status: 'False', reason: EVIL, message: `${EVIL}${CODES}`, lastTransitionTime: EVIL };
    await made.make(traps, { apiVersion: 'evil.example/v1', kind: 'Trap', metadata: { name: 'trap', ownerReferences: [{ apiVersion: 'v1', kind: EVIL, name: EVIL, uid: 'x' }] }, spec: { text: `${EVIL}${CODES}` }, status: { conditions: [condition, condition] } });
    const here = 'projects/web/objects/evil.example/v1/traps';
    await holds(here, 'onerror');
    for (const tab of ['', '?tab=yaml', '?tab=relations', '?tab=events']) await holds(`${here}/shop/trap${tab}`, /trap/);
  });

  test('what people write about each other is text', async () => {
    const NAMESPACE = 'organization-acme';
    const iam = `/apis/${IAM}/namespaces/${NAMESPACE}`;
    const name = `x${EVIL.replaceAll(/[{}@]/g, '')}`;
    const tries = [
      [`/apis/${RM}/namespaces/${NAMESPACE}/organizationmemberships`, RM, 'OrganizationMembership', { organizationRef: { name: 'acme' }, userRef: { name }, roles: ['viewer'] }],
      [`${iam}/userinvitations`, IAM, 'UserInvitation', { organizationRef: { name: 'acme' }, userRef: { name }, roles: ['viewer'], expirationDate: '2090-01-01T00:00:00Z' }],
      [`${iam}/groups`, IAM, 'Group', {}],
      [`${iam}/groupmemberships`, IAM, 'GroupMembership', { groupRef: { name: 'evil' }, userRef: { name } }],
      [`${iam}/policybindings`, IAM, 'PolicyBinding', { roleRef: { name: 'viewer', namespace: 'freehold-system' }, subjects: [{ kind: 'User', name }], target: { kind: 'Organization', name: 'acme' } }],
    ];
    let stored = 0;
    for (const [path, apiVersion, kind, spec] of tries) {
      const answer = await server.api('POST', path, { apiVersion, kind, metadata: { name: 'evil', annotations: { note: EVIL + CODES } }, spec });
      // A server may refuse such names; what it takes has to be shown.
      assert.ok([201, 400, 422].includes(answer.code), JSON.stringify(answer.body));
      if (answer.code === 201) stored++;
    }
    assert.ok(stored >= 2, 'nothing of it was taken');
    await server.api('PATCH', `/apis/${RM}/organizations/acme`, { spec: { displayName: `${EVIL}${CODES}` } }, { 'Content-Type': 'application/merge-patch+json' });
    await holds('organizations/acme/members', 'olga');
    await holds('organizations/acme/roles', /evil/);
    await holds('organizations', 'acme');
    await holds('organizations/acme', 'web');
    await holds('', 'acme');
  });

  test('claims of a provider are text', async () => {
    const make = (project, resource, kind, name, spec) => made.make(`/projects/${project}/apis/${APIS}/${resource}`, { apiVersion: APIS, kind, metadata: { name }, spec });
    const versions = [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: { type: 'object', description: EVIL } } }];
    await make('analytics', 'apiresourceschemas', 'APIResourceSchema', 'v1.lures.evil.example', { group: 'evil.example', names: { plural: 'lures', singular: 'lure', kind: 'Lure', listKind: 'LureList' }, scope: 'Namespaced', versions });
    const claim = { group: '', resource: 'configmaps', verbs: ['get'], names: ['evil'] };
    await make('analytics', 'apiexports', 'APIExport', 'lures', { schemas: ['v1.lures.evil.example'], claims: [claim], consumers: { organizations: ['acme'] } });
    await make('web', 'apibindings', 'APIBinding', 'lures', { export: { project: 'analytics', name: 'lures' } });
    await holds('projects/web/apis', 'get · configmaps (evil)');
  });

  test('the audit trail shows requests of strangers as text', async () => {
    await server.api('GET', `/projects/web/api/v1/namespaces/shop/configmaps/${encodeURIComponent(EVIL)}`, undefined, { 'User-Agent': 'evil <img src=x onerror=window.hacked=1>' });
    await server.api('DELETE', '/projects/web/api/v1/namespaces/shop/configmaps/none', undefined, { 'User-Agent': 'evil <img src=x onerror=window.hacked=1>' });
    await holds('organizations/acme/audit', /configmaps/);
    await holds('operations', 'Servers');
  });

  test('a command that a link made is quoted: a shell runs kubectl alone', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'freehold-shell-'));
    const evil = [`a;touch hacked`, `a$(touch hacked)`, `a\`touch hacked\``, `a'; touch hacked; '`, `a && touch hacked`, `a\ntouch hacked\n`, `-oyaml`];
    for (const text of evil) {
      const e = encodeURIComponent(text);
      for (const path of [`organizations/${e}/members`, `organizations/${e}/quotas`, `projects/web/objects/core/v1/configmaps?ns=${e}&labels=${e}&fields=${e}`, `projects/web/objects/core/v1/configmaps/${e}/${e}`, `projects/web/objects/core/v1/pods/${e}/${e}?tab=logs`]) {
        await page.goto(at(path));
        const code = page.locator('.kubectl code').first();
        await code.waitFor();
        const printed = execFileSync('sh', ['-c', `kubectl() { printf '%s\\n' "$#"; }; ${await code.textContent()}`], { cwd: folder }).toString();
        assert.match(printed, /^\d+\n$/, `${path}: ${printed}`);
        assert.ok(!existsSync(join(folder, 'hacked')), path);
      }
    }
  });

  test('the sign-in page says few and plain words of what a link brings', async () => {
    const other = await open(browser);
    await other.page.goto(`${at('login')}#failed=${encodeURIComponent(`${EVIL}${CODES}`)}${'x'.repeat(5000)}`);
    const alert = other.page.getByRole('alert');
    await alert.waitFor();
    const text = await alert.innerText();
    assert.ok(text.length < 400, `${text.length} characters`);
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text, /[\u001b\u0007\u202e\u2066]/);
    assert.equal(await other.page.evaluate(() => globalThis.hacked), undefined);
    assert.ok(!other.page.url().includes('failed'), 'it stays in no history');
    await other.context.close();
  });

  test('a kubeconfig, a token and a link leave nothing in the history', async () => {
    const other = await open(browser);
    const seen = [];
    other.page.on('request', (request) => seen.push(request.url()));
    const link = server.link();
    await signIn(other.page, link);
    await other.page.goto(at('projects/web'));
    await other.page.getByRole('button', { name: 'Kubeconfig' }).click();
    for (const index of [0, 1]) {
      const download = other.page.waitForEvent('download');
      await other.page.getByRole('dialog').getByRole('button', { name: /^Download/ }).nth(index).click();
      assert.equal((await download).suggestedFilename(), 'web.kubeconfig');
    }
    await other.page.getByRole('button', { name: 'Close' }).click();
    await other.page.goto(at('organizations/acme/accounts'));
    await other.page.getByRole('button', { name: 'New service account' }).click();
    await other.page.getByLabel('Name', { exact: true }).fill('scribe');
    await other.page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
    await other.page.getByRole('button', { name: 'New key' }).click();
    const token = await other.page.locator('.token').innerText();
    assert.ok(token.length > 40);
    await other.page.getByRole('button', { name: 'Close' }).click();
    await other.page.locator('.token').waitFor({ state: 'detached' });
    const history = await other.page.evaluate(() => JSON.stringify(globalThis.navigation.entries().map((one) => [one.url, one.getState()])));
    const kept = await other.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state, location.href, document.title]));
    const code = new URL(link).hash.slice('#code='.length);
    for (const [what, text] of Object.entries({ history, kept, requests: seen.join('\n') })) {
      assert.ok(!text.includes(code), `${what}: the code of a link`);
      assert.ok(!text.includes(token), `${what}: a token`);
      assert.doesNotMatch(text, /client-key|PRIVATE|certificate-authority-data|Bearer/, what);
    }
    // Going back shows pages, and no secret again.
    await other.page.goBack();
    await other.page.getByRole('heading', { level: 1 }).waitFor();
    assert.ok(!(await other.page.content()).includes(token));
    await other.context.close();
  });

  test('signing out in one tab ends the other one and its stream', async () => {
    const first = await open(browser);
    await signIn(first.page, server.link('olga'));
    const second = await first.context.newPage();
    await second.goto(at('projects/web/objects/core/v1/configmaps?ns=shop'));
    await second.getByRole('link', { name: 'settings' }).waitFor();
    await second.locator('.state.live').waitFor();
    await first.page.getByRole('button', { name: /olga/ }).click();
    await first.page.getByRole('button', { name: 'Sign out', exact: true }).click();
    await first.page.getByRole('button', { name: 'Sign in with a token' }).waitFor();
    await second.getByText('Your session has ended').waitFor();
    assert.equal(await second.getByText('settings').count(), 0, 'nothing of it stays on screen');
    await first.context.close();
  });

  test('signing out everywhere ends the sessions of other browsers', async () => {
    const [one, two] = [await open(browser), await open(browser)];
    await signIn(one.page, server.link('olga'));
    await signIn(two.page, server.link('olga'));
    await two.page.locator('.state.live').waitFor();
    await one.page.getByRole('button', { name: /olga/ }).click();
    await one.page.getByRole('button', { name: 'Sign out everywhere' }).click();
    await two.page.getByText('Your session has ended').waitFor();
    await Promise.all([one.context.close(), two.context.close()]);
  });

  test('no page of another site frames, opens or scripts the console', async () => {
    const other = await context.newPage();
    await other.route('https://evil.example/**', (route) =>
      route.fulfill({ contentType: 'text/html', body: `<iframe src="${at('')}"></iframe><object data="${at('')}"></object><embed src="${at('')}"><p>evil</p>` }),
    );
    await other.goto('https://evil.example/');
    await other.getByText('evil').waitFor();
    const opened = await Promise.all([context.waitForEvent('page'), other.evaluate((address) => void (globalThis.w = globalThis.open(address)), at(''))]).then(([one]) => one);
    await opened.getByRole('heading', { name: 'Overview' }).waitFor();
    // The opener has no hold of the page that it opened.
    assert.equal(await other.evaluate(() => globalThis.w.closed), true);
    assert.equal(await opened.evaluate(() => globalThis.opener), null);
    assert.ok(other.frames().slice(1).every((one) => !one.url().startsWith(server.url)), other.frames().map((one) => one.url()).join());
    await other.close();
    await context.close();
  });
});
