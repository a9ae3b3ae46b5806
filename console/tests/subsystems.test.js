// Pages of tenants, workflows and APIs with the subsystems' own controllers at work. FREEHOLD_CONSOLE_LONG=1 runs it.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { axe, launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const LONG = process.env.FREEHOLD_CONSOLE_LONG === '1';
const SHOTS = process.env.FREEHOLD_CONSOLE_PICTURES;
const BIN = process.env.FREEHOLD_BIN;
const EXAMPLES = new URL('../../examples/', import.meta.url).pathname;

const etl = {
  apiVersion: 'workflow.freehold.dev/v1alpha1',
  kind: 'DAG',
  metadata: { name: 'etl', namespace: 'shop' },
  spec: {
    parameters: [{ name: 'region', default: 'eu', description: 'Where it runs', enum: ['eu', 'us'] }],
    tasks: [
      { name: 'extract', wait: { duration: '1s' } },
      { name: 'clean', wait: { duration: '1s' }, runAfter: ['extract'] },
      // It comes after extract because it asks for it.
      { name: 'enrich', wait: { duration: '1s' }, when: "tasks.extract.phase == 'Succeeded'" },
      { name: 'load', approval: { message: 'load?' }, runAfter: ['clean', 'enrich'] },
    ],
  },
};

describe('subsystems', { skip: !LONG }, () => {
  let server, browser, context, page, errors, env;
  const children = [];
  const run = (...command) => execFileSync(command[0], command.slice(1), { env, stdio: ['ignore', 'pipe', 'pipe'] }).toString();
  const at = (path) => `${server.url}/console/projects/web/${path}`;
  const shot = async (name) => SHOTS && (await page.screenshot({ path: `${SHOTS}/${name}.png` }));

  before(async () => {
    if (SHOTS) mkdirSync(SHOTS, { recursive: true });
    server = await start(['--outbound-networks=public,127.0.0.0/8']);
    await seed(server);
    const kubeconfig = join(server.folder, 'web.kubeconfig');
    writeFileSync(kubeconfig, execFileSync(BIN, ['kubeconfig', 'web'], { env: { ...process.env, KUBECONFIG: join(server.data, 'admin.kubeconfig') } }));
    env = { ...process.env, KUBECONFIG: kubeconfig };
    for (const subsystem of ['tenancy', 'workflow']) {
      run(BIN, 'install', subsystem);
      children.push(spawn(BIN, [subsystem, 'controller'], { env, stdio: 'ignore' }));
    }
    for (const file of ['quota', 'tenants', 'template']) run('kubectl', 'apply', '-f', `${EXAMPLES}tenancy/${file}.yaml`);
    run('kubectl', 'wait', '--for=condition=Ready', 'tenant/acme', '--timeout=60s');
    run('kubectl', 'wait', '--for=create', 'namespace/acme-dev', '--timeout=60s');
    run('kubectl', 'create', 'deployment', 'shop', '--image=registry.example/shop:1', '--replicas=2', '-n', 'acme-dev');
    const file = join(server.folder, 'etl.yaml');
    writeFileSync(file, JSON.stringify(etl));
    run('kubectl', 'apply', '-f', file);
    browser = await launch();
    ({ context, page, errors } = await open(browser));
    await signIn(page, server.link());
    errors.length = 0;
  });
  after(async () => {
    await browser?.close();
    for (const child of children) child.kill();
    await server?.stop();
  });

  test('a tenant is put to sleep and wakes as it was', async () => {
    await page.goto(at('tenants'));
    const card = page.getByRole('region', { name: 'acme', exact: true });
    await card.getByText('Namespaces: 3 / 3').waitFor();
    assert.deepEqual(await axe(page), []);
    await shot('tenants-full');
    const replicas = async (wanted) => {
      const { body } = await server.api('GET', '/projects/web/apis/apps/v1/namespaces/acme-dev/deployments/shop');
      return body.spec.replicas === wanted;
    };
    await card.getByRole('button', { name: 'Put to sleep' }).click();
    await card.getByText('Asleep by hand').waitFor();
    await until('the Deployment sleeps', () => replicas(0));
    await card.getByRole('button', { name: 'Wake' }).click();
    await until('the Deployment is awake', () => replicas(2));
    await card.getByRole('button', { name: 'Follow schedule' }).click();
    await card.getByText('Awake by hand').waitFor({ state: 'detached' });
  });

  test('a workflow is started with parameters, approved, and has figures', async () => {
    await page.goto(at('workflows/dags/shop/etl'));
    // Three by runAfter, one by what a task mentions.
    await until('edges are drawn', async () => (await page.locator('.graph svg path[marker-end]').count()) === 4);
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByLabel(/region/).selectOption('us');
    await page.getByRole('dialog').getByRole('button', { name: 'Start' }).click();
    await page.waitForURL(/workflows\/runs\/shop\/etl-/);
    await page.getByRole('button', { name: 'Accept' }).click();
    await page.getByText('Succeeded').first().waitFor();
    await page.getByText('4/4').waitFor();
    assert.deepEqual(await axe(page), []);
    await shot('run');
    await page.getByRole('link', { name: 'etl', exact: true }).click();
    await page.getByText(/1 of 1 succeeded/).waitFor();
    await page.goto(at('objects/workflow.freehold.dev/v1alpha1/dags/shop/etl'));
    await page.getByRole('link', { name: 'Graph' }).click();
    await page.waitForURL(at('workflows/dags/shop/etl'));
    assert.deepEqual(errors, []);
    await context.close();
  });
});
