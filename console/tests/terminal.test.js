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

/** What a hostile container writes: codes for terminals, a line that pretends to be another, and a page. */
const EVIL = '\\u001b[2J\\u001b]0;x\\u0007\\u202egnp.exe\\rfaked line <img src=x onerror=window.hacked=1><script>window.hacked=1</script>';
/** A server whose log and pages are hostile. */
const PROGRAM = `
  console.log("begin ${EVIL}");
  require('http').createServer((request, answer) => {
    answer.setHeader('Content-Type', 'text/html');
    answer.setHeader('Set-Cookie', '__Host-freehold-session=planted; Path=/; Secure');
    answer.end('<h1>' + request.method + ' ' + request.url + '</h1><img src=x onerror=window.hacked=1><script>window.hacked=1</script>');
  }).listen(8080);
`;

describe('terminal', () => {
  let server, browser, page, errors, node;
  const at = (tab, pod = 'shell') => `${server.url}/console/projects/web/objects/core/v1/pods/shop/${pod}?tab=${tab}`;
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
    node = spawn(BIN, ['node', '--kubeconfig', kubeconfig, '--image', 'shell=/bin/sleep', '--image', `web=${process.execPath}`], { stdio: 'ignore', cwd: server.folder });
    const spec = { containers: [{ name: 'main', image: 'shell', args: ['600'], ports: [{ containerPort: 8080 }] }] };
    const made = await server.api('POST', PODS, { metadata: { name: 'shell' }, spec });
    assert.equal(made.code, 201, JSON.stringify(made.body));
    const web = { containers: [{ name: 'main', image: 'web', args: ['-e', PROGRAM], ports: [{ name: 'http', containerPort: 8080 }] }] };
    assert.equal((await server.api('POST', PODS, { metadata: { name: 'site' }, spec: web })).code, 201);
    for (const name of ['shell', 'site']) {
      await until(`${name} runs`, async () => (await server.api('GET', `${PODS}/${name}`)).body.status?.phase === 'Running', 60_000);
    }
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

  test('lines of a log are text, whatever codes and pages they hold', async () => {
    errors.length = 0;
    await page.goto(at('logs', 'site'));
    await page.getByText('begin').first().waitFor();
    const text = await page.locator('main pre').innerText();
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(text, /[\u001b\u0007\u202e\r]/);
    assert.match(text, /<img src=x/);
    assert.equal(await page.locator('main img, main script').count(), 0);
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    assert.deepEqual(await axe(page), []);
    assert.deepEqual(errors, []);
  });

  test('a port of a Pod answers in the page, and its answer is no page', async () => {
    errors.length = 0;
    await page.goto(at('ports', 'site'));
    await page.locator('.state.live').waitFor();
    await page.getByLabel('Path').fill('/shop?q=1');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('HTTP/1.1 200 OK').waitFor();
    assert.match(await page.locator('main pre').innerText(), /<h1>GET \/shop\?q=1<\/h1><img/);
    assert.equal(await page.locator('main img, main script').count(), 0);
    assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
    const cookies = await page.context().cookies();
    assert.ok(cookies.every((one) => one.value !== 'planted'), 'a cookie of a Pod is none of the console');
    if (process.env.FREEHOLD_CONSOLE_PICTURES) await page.screenshot({ path: `${process.env.FREEHOLD_CONSOLE_PICTURES}/console-ports.png` });
    assert.deepEqual(await axe(page), []);
    assert.match(await page.locator('main').innerText(), /kubectl --server \S+\/projects\/web port-forward -n shop pod\/site 8080/);
    assert.deepEqual(errors, []);
    await page.locator('input[type=number]').fill('9');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByRole('alert').filter({ hasText: 'error forwarding port 9' }).waitFor();
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
