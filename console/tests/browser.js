// Chromium, as the machine has it, and what tests do with its pages.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const ARGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

export async function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: ARGS });
}

/** FREEHOLD_CONSOLE_FILES names a folder (`npm run build` writes ../gateway/assets/console) whose files replace those of the
 * program, with the program's own headers: the console is tested without compiling it in. */
const FILES = process.env.FREEHOLD_CONSOLE_FILES;
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };

async function serveFiles(context) {
  await context.route(/\/console\/(?!api\/)/, async (route) => {
    const url = new URL(route.request().url());
    const name = url.pathname.slice('/console/'.length);
    const file = existsSync(`${FILES}/${name}`) && /\.\w+$/.test(name) ? name : 'index.html';
    const { headers } = await route.fetch({ url: `${url.origin}/console/` }).then((answer) => ({ headers: answer.headers() }));
    delete headers['content-encoding'];
    delete headers['content-length'];
    await route.fulfill({ headers: { ...headers, 'content-type': TYPES[file.split('.').pop()] }, body: readFileSync(`${FILES}/${file}`) });
  });
}

/** A browser that trusts the server's certificate, and notes what goes wrong in its pages. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, locale: 'en-GB', ...options });
  if (FILES) await serveFiles(context);
  const page = await context.newPage();
  const errors = [];
  const requests = [];
  // A watch of a page that was left may have ended with its stream before it is told to.
  // Whose runs nobody records has no history.
  const isLeft = (message) => /\/console\/api\/(watch|.*\/apis\/history\.)/.test(message.location().url) && message.text().includes('404');
  page.on('console', (message) => message.type() === 'error' && !isLeft(message) && errors.push(message.text()));
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => requests.push(request.url()));
  page.setDefaultTimeout(20_000);
  return { context, page, errors, requests };
}

/** Uses a link, as a person does. */
export async function signIn(page, link) {
  await page.goto(link);
  await page.getByRole('button', { name: /Sign in with this link|Mit diesem Link/ }).click();
  await page.getByRole('navigation').first().waitFor();
}

/** What axe finds wrong with a page by WCAG 2.2 AA. */
export async function axe(page) {
  // Evaluated by the debugger: the page's policy allows no script of others.
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }),
  );
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(' | ')}`);
}
