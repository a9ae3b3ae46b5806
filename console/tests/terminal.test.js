// A terminal in a container of a real node, in the browser.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { axe, launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const BIN = process.env.FREEHOLD_BIN;
const PODS = '/projects/web/api/v1/namespaces/shop/pods';

describe('terminal', () => {
  let server, browser, page, errors, node;
  const at = (tab) => `${server.url}/console/projects/web/objects/core/v1/pods/shop/shell?tab=${tab}`;
  const text = () => page.locator('.xterm-rows').innerText();
  const type = async (line) => {
    await page.locator('.xterm-helper-textarea').pressSequentially(line);
    await page.keyboard.press('Enter');
  };

  before(async () => {
    server = await start();
    await seed(server);
    const kubeconfig = join(server.folder, 'web.kubeconfig');
    writeFileSync(kubeconfig, execFileSync(BIN, ['kubeconfig', 'web'], { env: { ...process.env, KUBECONFIG: join(server.data, 'admin.kubeconfig') } }));
    node = spawn(BIN, ['node', '--kubeconfig', kubeconfig, '--image', 'shell=/bin/sleep'], { stdio: 'ignore', cwd: server.folder });
    const spec = { containers: [{ name: 'main', image: 'shell', args: ['600'], ports: [{ containerPort: 8080 }] }] };
    const made = await server.api('POST', PODS, { metadata: { name: 'shell' }, spec });
    assert.equal(made.code, 201, JSON.stringify(made.body));
    await until('the Pod runs', async () => (await server.api('GET', `${PODS}/shell`)).body.status?.phase === 'Running', 60_000);
    browser = await launch();
    ({ page, errors } = await open(browser));
    await signIn(page, server.link());
  });
  after(async () => {
    await browser?.close();
    node?.kill('SIGTERM');
    await server?.stop();
  });

  test('a shell runs what is typed, and says how it ended', async () => {
    errors.length = 0;
    await page.goto(at('terminal'));
    await page.getByRole('button', { name: 'Start' }).click();
    await page.locator('.xterm-rows').waitFor();
    await type('echo "sum-$((40 + 2))"');
    await until('the answer is on screen', async () => (await text()).includes('sum-42'));
    await type('stty size');
    const cols = await until('the terminal has the size of its element', async () => /\n(\d+) (\d+)/.exec(await text())?.[2]);
    assert.ok(Number(cols) > 80, `${cols} columns`);
    assert.deepEqual(await axe(page), []);
    if (process.env.FREEHOLD_CONSOLE_PICTURES) await page.screenshot({ path: `${process.env.FREEHOLD_CONSOLE_PICTURES}/console-terminal.png` });
    await type('exit 3');
    await page.getByRole('status').filter({ hasText: /exit status 3/ }).waitFor();
    assert.deepEqual(errors, []);
  });

  test('codes for terminals in what a container writes reach the screen as colours and no page', async () => {
    await page.getByRole('button', { name: 'Start' }).click();
    await type(`printf '\\033[31mred\\033[0m <img src=x onerror=alert(1)>\\n'`);
    await until('it is on screen', async () => (await text()).split('<img src=x').length > 2);
    assert.equal(await page.locator('.xterm-rows img').count(), 0);
    await page.getByRole('button', { name: 'End' }).click();
  });

  test('who may not run commands in Pods is offered none, and none is begun by hand', async () => {
    const other = await open(browser);
    await signIn(other.page, server.link('jane'));
    await other.page.goto(at('terminal'));
    const button = other.page.getByRole('button', { name: 'Start' });
    await other.page.waitForFunction(() => [...document.querySelectorAll('button')].some((one) => one.title.includes('not') && one.textContent.includes('Start')));
    assert.equal(await button.getAttribute('aria-disabled'), 'true');
    const ended = await other.page.evaluate(async (path) => {
      const headers = { 'X-Freehold-Console': '1' };
      const reader = (await fetch('/console/api/watch', { headers })).body.pipeThrough(new TextDecoderStream()).getReader();
      let all = '';
      const read = async (what) => {
        while (!what.test(all)) all += (await reader.read()).value ?? '';
        return what.exec(all)[1];
      };
      const stream = await read(/"stream":"([^"]+)"/);
      await fetch(`/console/api/exec/${stream}/a`, { method: 'PUT', headers: { ...headers, 'Content-Type': 'application/json' }, body: JSON.stringify({ path, command: ['id'] }) });
      const status = await read(/event: end\ndata: (.*)\n/);
      await reader.cancel();
      return status;
    }, `${PODS}/shell/exec`);
    assert.equal(JSON.parse(ended).status.code, 403, ended);
    await other.context.close();
  });
});
