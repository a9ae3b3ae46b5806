// What the console costs with many projects: the time of the first view, of a switch of page, and of an event on its way to the
// screen. FREEHOLD_BIN names the program, FREEHOLD_CONSOLE_PROJECTS says how many projects; prints one line a figure.

import { launch, open, signIn } from './browser.js';
import { seed, start, until } from './server.js';

const PROJECTS = Number(process.env.FREEHOLD_CONSOLE_PROJECTS ?? 10_000);
const ROUNDS = 20;
const EVENTS = 200;
const AT_ONCE = 32;
const rm = 'resourcemanager.freehold.dev/v1alpha1';

const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
function print(what, times) {
  const sorted = times.toSorted((a, b) => a - b);
  console.log(`${what}: p50 ${at(sorted, 0.5).toFixed(0)} ms, p99 ${at(sorted, 0.99).toFixed(0)} ms, of ${sorted.length}`);
}

const server = await start();
const { make } = await seed(server);
const began = Date.now();
let next = 0;
await Promise.all(
  Array.from({ length: AT_ONCE }, async () => {
    while (next < PROJECTS) {
      const name = `many-${String(next++).padStart(6, '0')}`;
      await make(`/apis/${rm}/projects`, { apiVersion: rm, kind: 'Project', metadata: { name }, spec: { ownerRef: { kind: 'Organization', name: 'acme' } } });
    }
  }),
);
console.log(`${PROJECTS} projects made in ${((Date.now() - began) / 1000).toFixed(0)} s`);
const last = `/apis/${rm}/projects/many-${String(PROJECTS - 1).padStart(6, '0')}`;
await until('the last project is ready', async () => (await server.api('GET', last)).body.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True'), 1_800_000);
console.log(`all ready after ${((Date.now() - began) / 1000).toFixed(0)} s`);

const browser = await launch();
const { context, page } = await open(browser);
await signIn(page, server.link());

const overview = page.getByText('Recently created');
const first = [];
for (let round = 0; round < ROUNDS; round++) {
  const began = Date.now();
  await page.goto(server.console);
  await overview.waitFor();
  await page.waitForFunction(() => document.querySelector('main')?.innerText.includes('The server is well'));
  first.push(Date.now() - began);
}
print('first view', first);

const switches = { Projects: [], Organizations: [], Overview: [] };
for (let round = 0; round < ROUNDS; round++) {
  for (const link of Object.keys(switches)) {
    const began = Date.now();
    await page.getByRole('navigation').getByRole('link', { name: link, exact: true }).click();
    await page.getByRole('heading', { name: link, level: 1 }).waitFor();
    if (link !== 'Overview') await page.locator('tbody a').first().waitFor();
    switches[link].push(Date.now() - began);
  }
}
for (const [link, times] of Object.entries(switches)) print(`switch to ${link}`, times);

// The page itself says when a row appears: nothing of the driver is in the figure.
await page.goto(`${server.url}/console/projects/web/objects/core/v1/configmaps?ns=shop`);
await page.getByRole('link', { name: 'settings' }).waitFor();
await page.locator('.state.live').waitFor();
await page.evaluate(() => {
  globalThis.shown = {};
  new MutationObserver(() => {
    for (const link of document.querySelectorAll('tbody a')) globalThis.shown[link.textContent] ??= Date.now();
  }).observe(document.querySelector('main'), { childList: true, subtree: true, characterData: true });
});
const configmaps = '/projects/web/api/v1/namespaces/shop/configmaps';
const events = [];
for (let round = 0; round < EVENTS; round++) {
  const name = `event-${round}`;
  const sent = Date.now();
  await make(configmaps, { metadata: { name } });
  events.push((await until(`${name} is on screen`, () => page.evaluate((name) => globalThis.shown[name], name))) - sent);
  await server.api('DELETE', `${configmaps}/${name}`);
}
print('event on screen, from its request', events);
await context.close();
await browser.close();
await server.stop();
