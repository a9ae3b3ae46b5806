// Long lists, pages that change as the server does, and the second language, in a real browser against a real server.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';
import { source } from './source.js';

const BIN = process.env.FREEHOLD_BIN;
const COUNT = 1300;
const MAPS = '/projects/analytics/api/v1/namespaces/default/configmaps';
const RM = 'resourcemanager.freehold.dev/v1alpha1';

describe('lists', () => {
  let server, browser, made, context, page, errors;
  const at = (path) => `${server.url}/console/${path}`;
  const many = async (count, make) => {
    let next = 0;
    const work = async () => {
      while (next < count) await make(next++);
    };
    await Promise.all(Array.from({ length: 16 }, work));
  };
  const name = (number) => `row-${String(number).padStart(5, '0')}`;

  before(async () => {
    server = await start();
    [made, browser] = await Promise.all([seed(server), launch()]);
    await many(COUNT, (number) => made.make(MAPS, { metadata: { name: name(number), labels: { app: 'many' } } }));
    ({ context, page, errors } = await open(browser));
    await signIn(page, server.link());
    errors.length = 0;
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  test('a list by a selector, whose length nobody tells, is read to its end', async () => {
    await page.goto(at('projects/analytics/objects/core/v1/configmaps?ns=default&labels=app%3Dmany'));
    await page.getByRole('link', { name: name(0) }).waitFor();
    assert.ok((await page.locator('tbody tr').count()) < 100);
    await until('the last row is on screen', async () => {
      await page.locator('.box').evaluate((box) => (box.scrollTop = box.scrollHeight));
      return (await page.getByRole('link', { name: name(COUNT - 1) }).count()) === 1;
    });
    assert.match(await page.locator('.foot').innerText(), /^1,300 rows$/);
  });

  test('a text is found in rows that were not read yet', async () => {
    await page.goto(at('projects/analytics/objects/core/v1/configmaps?ns=default'));
    await page.getByRole('link', { name: name(0) }).waitFor();
    await page.getByRole('searchbox', { name: 'Text in a row' }).fill(name(COUNT - 2));
    await page.getByRole('link', { name: name(COUNT - 2) }).waitFor();
    await page.waitForFunction(() => document.querySelectorAll('tbody a').length === 1);
  });

  test('pages without a virtual table show all that there is, a hundred at a time', async () => {
    const path = `/apis/${RM}/namespaces/organization-acme/organizationmemberships`;
    await many(620, (number) => made.make(path, { apiVersion: RM, kind: 'OrganizationMembership', metadata: { name: `member-${String(number).padStart(4, '0')}` }, spec: { organizationRef: { name: 'acme' }, userRef: { name: `member-${number}` }, roles: ['viewer'] } }));
    await page.goto(at('organizations/acme/members'));
    const more = page.getByRole('button', { name: /^More \(/ });
    await until('all members were read', async () => /\(522\)/.test(await more.innerText()));
    assert.equal(await page.locator('tbody tr').count(), 100);
    for (let rows = 200; rows <= 600; rows += 100) {
      await more.click();
      await until(`${rows} rows`, async () => (await page.locator('tbody tr').count()) === rows);
    }
    await more.click();
    await more.waitFor({ state: 'detached' });
    assert.equal(await page.locator('tbody tr').count(), 622);
    await until('each row knows its rights', async () => (await page.locator('tbody button[aria-disabled=true]').count()) === 0);
    assert.deepEqual(errors, []);
  });

  test('what a project begins to serve is on its page at once', async () => {
    await page.goto(at('projects/web/tenants'));
    await page.getByText('does not serve').waitFor();
    // By the very command that the page shows.
    const command = await page.locator('main pre').innerText();
    execFileSync('sh', ['-c', `freehold() { "$BIN" "$@"; }; ${command}`], { env: { ...process.env, BIN, KUBECONFIG: join(server.data, 'admin.kubeconfig') }, stdio: 'ignore' });
    await page.getByRole('heading', { name: 'Tenants', level: 2 }).waitFor();
    await page.getByRole('heading', { name: 'TemplateInstance', level: 2 }).waitFor();
  });

  test('relations show what is made and goes while they are looked at', async () => {
    await page.goto(at('projects/web/objects/apps/v1/deployments/shop/front?tab=relations'));
    const pods = () => page.locator('.graph .node').filter({ has: page.locator('text', { hasText: /^Pod$/ }) }).count();
    await until('two Pods are drawn', async () => (await pods()) === 2);
    await page.locator('.state.live').waitFor();
    const scale = (replicas) => server.api('PATCH', '/projects/web/apis/apps/v1/namespaces/shop/deployments/front', { spec: { replicas } }, { 'Content-Type': 'application/merge-patch+json' });
    await scale(4);
    await until('four Pods are drawn', async () => (await pods()) === 4);
    await scale(1);
    await until('one Pod is drawn', async () => (await pods()) === 1);
  });

  test('a list that was left a moment ago is there at once, current, and not read again', async () => {
    const menu = page.getByRole('navigation');
    const project = (name) => page.locator('main tbody').getByRole('link', { name, exact: true });
    await page.goto(at('projects'));
    await project('web').waitFor();
    await page.locator('.state.live').waitFor();
    await menu.getByRole('link', { name: 'Organizations', exact: true }).click();
    await page.locator('main tbody').getByRole('link', { name: 'acme', exact: true }).waitFor();
    await made.make(`/apis/${RM}/projects`, { apiVersion: RM, kind: 'Project', metadata: { name: 'made-meanwhile' }, spec: { ownerRef: { kind: 'Organization', name: 'acme' } } });
    const lists = [];
    const note = (request) => /\/(projects|organizations)\?limit=/.test(request.url()) && lists.push(request.url());
    page.on('request', note);
    // Nothing but the page itself is between the press and the rows.
    const rows = await page.evaluate(async () => {
      [...document.querySelectorAll('nav a')].find((one) => one.textContent.trim() === 'Projects').click();
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return [...document.querySelectorAll('main tbody a')].map((one) => one.textContent);
    });
    assert.ok(rows.includes('web'), rows.join());
    await project('made-meanwhile').waitFor();
    await server.api('DELETE', `/apis/${RM}/projects/made-meanwhile`);
    await project('made-meanwhile').waitFor({ state: 'detached' });
    await menu.getByRole('link', { name: 'Overview', exact: true }).click();
    await page.locator('#recent').waitFor();
    await menu.getByRole('link', { name: 'Organizations', exact: true }).click();
    await page.locator('main tbody').getByRole('link', { name: 'acme', exact: true }).waitFor();
    page.off('request', note);
    assert.ok(lists.length <= 1, lists.join());
    assert.deepEqual(errors, []);
  });

  test('the overview says what it has not looked at, and looks through all', async () => {
    await many(700, (number) => made.make(`/apis/${RM}/projects`, { apiVersion: RM, kind: 'Project', metadata: { name: `more-${String(number).padStart(4, '0')}` }, spec: { ownerRef: { kind: 'Organization', name: 'acme' } } }));
    const ready = async () => (await server.api('GET', `/apis/${RM}/projects/more-0699`)).body.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True');
    await until('the last project is ready', ready, 300_000);
    await server.api('PATCH', `/apis/${RM}/projects/more-0699`, { spec: { suspension: { reason: 'unpaid' } } }, { 'Content-Type': 'application/merge-patch+json' });
    await page.goto(at(''));
    await page.getByText(/^Of the first 6\d\d$/).first().waitFor();
    await page.getByRole('button', { name: 'Look through all projects' }).click();
    await page.getByText('Looked at 702').waitFor();
  });

  test('the script of the first page has less than 300 KB compressed', async () => {
    const other = await open(browser);
    const scripts = [];
    other.page.on('response', (response) => response.request().resourceType() === 'script' && scripts.push(response.body().then((body) => gzipSync(body).length)));
    await other.page.goto(server.link());
    await other.page.getByRole('button', { name: 'Sign in with this link' }).click();
    await other.page.getByRole('heading', { name: 'Overview' }).waitFor();
    await other.page.getByText('The server is well').waitFor();
    const sizes = await Promise.all(scripts);
    const bytes = sizes.reduce((all, one) => all + one, 0);
    assert.ok(bytes > 10_000 && bytes < 300_000, `${bytes} bytes in ${sizes.length} files`);
    await other.context.close();
  });

  test('each page speaks the second language alone', async () => {
    const [{ en }, { de }] = await Promise.all([source('i18n/en'), source('i18n/de')]);
    const english = Object.entries(en).filter(([key, text]) => !/\{/.test(text) && de[key] !== text && !Object.values(de).includes(text)).map(([, text]) => text);
    const german = await open(browser, { locale: 'de-DE' });
    await signIn(german.page, server.link());
    const pages = ['', 'organizations', ...['', '/members', '/roles', '/accounts', '/quotas', '/audit', '/objects'].map((tab) => `organizations/acme${tab}`), 'projects', ...['', '/objects', '/apis', '/tenants', '/workflows'].map((tab) => `projects/web${tab}`), ...['', 'yaml', 'events', 'relations'].map((tab) => `projects/web/objects/apps/v1/deployments/shop/front?tab=${tab}`), 'search/acme', 'platform', 'operations', 'nothing'];
    for (const path of pages) {
      await german.page.goto(at(path));
      await german.page.getByRole('heading', { level: 1 }).first().waitFor();
      await german.page.waitForFunction(() => !document.querySelector('main')?.innerText.includes('Lädt'));
      const texts = await german.page.evaluate(() => {
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const found = [];
        // Names of kinds and columns are the server's.
        while (walker.nextNode()) if (!walker.currentNode.parentElement.closest('th, td, code, pre, .graph, .picker, option')) found.push(walker.currentNode.data.trim());
        for (const one of document.querySelectorAll('button[title], input[title], [aria-label], [placeholder]')) if (!one.closest('th, td')) found.push(...['title', 'aria-label', 'placeholder'].map((name) => one.getAttribute(name) ?? ''));
        return found;
      });
      const kinds = new Set(['Quota', 'Template']);
      assert.deepEqual([...new Set(texts.filter((text) => english.includes(text) && !kinds.has(text)))], [], path || 'overview');
    }
    await german.context.close();
    await context.close();
  });
});
