// What the console costs beside many projects: times in the page, and what viewers cost the server.

import { readFileSync } from 'node:fs';
import https from 'node:https';
import { open, signIn } from './browser.js';
import { request, until } from './server.js';

const rm = 'resourcemanager.freehold.dev/v1alpha1';
const AT_ONCE = 32;
const ROUNDS = 20;
const EVENTS = 200;
/** Sessions that one user may have, which the gateway limits. */
const OF_ONE = 20;
const CONFIGMAPS = '/projects/web/api/v1/namespaces/shop/configmaps';

export const at = (times, part) => times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * part))];

/** Makes projects, until the last is ready; returns the seconds that takes. */
export async function makeProjects(server, make, count) {
  const began = Date.now();
  const name = (number) => `many-${String(number).padStart(6, '0')}`;
  let next = 0;
  const work = async () => {
    while (next < count) {
      await make(`/apis/${rm}/projects`, { apiVersion: rm, kind: 'Project', metadata: { name: name(next++) }, spec: { ownerRef: { kind: 'Organization', name: 'acme' } } });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const ready = async () => (await server.api('GET', `/apis/${rm}/projects/${name(count - 1)}`)).body.status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True');
  await until('the last project is ready', ready, 3_600_000);
  return (Date.now() - began) / 1000;
}

/** Milliseconds until the first page shows what it shows. */
export async function firstViews(server, page) {
  const times = [];
  for (let round = 0; round < ROUNDS; round++) {
    const began = Date.now();
    await page.goto(server.console);
    await page.waitForFunction(() => document.querySelector('main')?.innerText.includes('The server is well') && document.querySelector('#recent'));
    times.push(Date.now() - began);
  }
  return times;
}

/** Milliseconds of switches to pages, from the click until their rows are painted, by the clock of the page itself. */
export async function switches(page) {
  const times = { Projects: [], Organizations: [], Overview: [] };
  for (let round = 0; round < ROUNDS; round++) {
    for (const link of Object.keys(times)) times[link].push(await page.evaluate(switchTo, link));
  }
  return times;
}

/** Runs in the page. Nothing of the driver is in the figure: its own click waits for frames before and after. */
async function switchTo(link) {
  const entry = [...document.querySelectorAll('nav a')].find((one) => one.textContent.trim() === link);
  const there = () => document.querySelector('main h1')?.textContent === link && document.querySelector(link === 'Overview' ? '#recent' : 'main tbody a');
  const began = performance.now();
  const shown = new Promise((done) => {
    const observer = new MutationObserver(() => {
      if (!there()) return;
      observer.disconnect();
      // The frame after the one that is being made.
      requestAnimationFrame(() => requestAnimationFrame(done));
    });
    observer.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  entry.click();
  await shown;
  return performance.now() - began;
}

/** Milliseconds from the request that makes an object to its row on screen. */
export async function events(server, make, page) {
  await page.goto(`${server.url}/console/projects/web/objects/core/v1/configmaps?ns=shop`);
  await page.getByRole('link', { name: 'settings' }).waitFor();
  await page.locator('.state.live').waitFor();
  // The page itself says when a row appears: nothing of the driver is in the figure.
  await page.evaluate(() => {
    globalThis.shown = {};
    new MutationObserver(() => {
      for (const link of document.querySelectorAll('tbody a')) globalThis.shown[link.textContent] ??= Date.now();
    }).observe(document.querySelector('main'), { childList: true, subtree: true, characterData: true });
  });
  const times = [];
  for (let round = 0; round < EVENTS; round++) {
    const name = `event-${round}`;
    const sent = Date.now();
    await make(CONFIGMAPS, { metadata: { name } });
    times.push((await until(`${name} is on screen`, () => page.evaluate((name) => globalThis.shown[name], name))) - sent);
    await server.api('DELETE', `${CONFIGMAPS}/${name}`);
  }
  return times;
}

/** Bytes of memory and seconds of processor time of a process. */
function usage(pid) {
  const bytes = Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return { bytes, seconds: (Number(fields[11]) + Number(fields[12])) / 100 };
}

/** A session with a stream that watches what a page of a project's objects watches. */
async function viewer(server, agent, link) {
  const headers = { 'X-Freehold-Console': '1', 'Sec-Fetch-Site': 'same-origin', 'Content-Type': 'application/json' };
  const signedIn = await request(agent, server.url, 'POST', '/console/api/login/link', { code: new URL(link).hash.slice('#code='.length) }, headers);
  const cookie = signedIn.headers['set-cookie'][0].split(';')[0];
  const own = { ...headers, Cookie: cookie };
  let seen = 0;
  const stream = await new Promise((done, fail) => {
    const sent = https.request(`${server.url}/console/api/watch`, { agent, headers: own }, (answer) => {
      let text = '';
      answer.on('data', (bytes) => {
        seen += String(bytes).split('event: change').length - 1;
        text = (text + bytes).slice(0, 400);
        const name = /"stream":"([^"]+)"/.exec(text)?.[1];
        if (name) done({ name, end: () => sent.destroy() });
      });
      answer.on('error', () => undefined);
    });
    sent.on('error', fail);
    sent.end();
  });
  for (const [name, path] of [
    ['a', CONFIGMAPS],
    ['b', '/projects/web/api/v1/namespaces'],
  ]) {
    const begun = await request(agent, server.url, 'PUT', `/console/api/watch/${stream.name}/${name}`, { path, table: true }, own);
    if (begun.code !== 202) throw new Error(`no watch: ${JSON.stringify(begun.body)}`);
  }
  return { seen: () => seen, end: stream.end };
}

/** What viewers of a busy project add to the server: bytes of memory, and hundredths of one processor. */
export async function viewers(server, make, count, seconds = 10) {
  const users = Array.from({ length: Math.ceil(count / OF_ONE) }, (_, index) => `viewer-${index}`);
  for (const user of users) {
    const spec = { organizationRef: { name: 'acme' }, userRef: { name: user }, roles: ['viewer'] };
    await make(`/apis/${rm}/namespaces/organization-acme/organizationmemberships`, { apiVersion: rm, kind: 'OrganizationMembership', metadata: { name: user }, spec });
  }
  await make(CONFIGMAPS, { metadata: { name: 'busy' }, data: { n: '0' } });
  const merge = { 'Content-Type': 'application/merge-patch+json' };
  const busy = async () => {
    const before = usage(server.pid);
    const end = Date.now() + seconds * 1000;
    for (let n = 0; Date.now() < end; n++) {
      await server.api('PATCH', `${CONFIGMAPS}/busy`, { data: { n: String(n) } }, merge);
      await new Promise((done) => setTimeout(done, 100));
    }
    const after = usage(server.pid);
    return { bytes: after.bytes, share: ((after.seconds - before.seconds) / seconds) * 100 };
  };
  await busy();
  const alone = await busy();
  const agent = new https.Agent({ rejectUnauthorized: false, keepAlive: true });
  const all = [];
  for (let index = 0; index < count; index++) all.push(await viewer(server, agent, server.link(users[index % users.length])));
  const together = await busy();
  const seen = Math.min(...all.map((one) => one.seen()));
  all.forEach((one) => one.end());
  agent.destroy();
  if (!seen) throw new Error('a viewer saw nothing');
  return { bytes: together.bytes - alone.bytes, share: together.share - alone.share, alone: alone.share, seen };
}

/** A page of somebody who reads everything. */
export async function adminPage(server, browser) {
  const opened = await open(browser);
  await signIn(opened.page, server.link());
  return opened;
}
