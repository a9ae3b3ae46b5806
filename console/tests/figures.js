// Figures of the console: `npm run figures`, or `make bench ARGS="--only console"`. FREEHOLD_BIN names the program,
// FREEHOLD_CONSOLE_PROJECTS says how many projects and FREEHOLD_CONSOLE_VIEWERS how many viewers; prints one line a figure, or
// with --json one line of JSON for each, in milliseconds, bytes and hundredths of a processor.

import { launch } from './browser.js';
import { adminPage, at, events, firstViews, makeProjects, switches, viewers } from './measure.js';
import { seed, start } from './server.js';

const PROJECTS = Number(process.env.FREEHOLD_CONSOLE_PROJECTS ?? 10_000);
const VIEWERS = Number(process.env.FREEHOLD_CONSOLE_VIEWERS ?? 100);
const JSON_LINES = process.argv.includes('--json');

const print = (line, figure) => console.log(JSON_LINES ? JSON.stringify(figure) : line);
function times(name, all) {
  const [p50, p99] = [at(all, 0.5), at(all, 0.99)];
  print(`${name}: p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms, of ${all.length}`, { name, p50, p99 });
}

const server = await start();
let browser;
try {
  const { make } = await seed(server);
  const seconds = await makeProjects(server, make, PROJECTS);
  if (!JSON_LINES) console.log(`${PROJECTS} projects are ready after ${seconds.toFixed(0)} s`);
  browser = await launch();
  const { page } = await adminPage(server, browser);
  times('first view', await firstViews(server, page));
  for (const [link, all] of Object.entries(await switches(page))) times(`switch to ${link}`, all);
  times('event on screen, from its request', await events(server, make, page));
  await page.close();
  const { bytes, share, alone, seen } = await viewers(server, make, VIEWERS);
  print(`${VIEWERS} viewers of a busy project add ${(bytes / 1e6).toFixed(1)} MB`, { name: 'memory of viewers', bytes });
  print(`and ${share.toFixed(1)} % of a processor (${alone.toFixed(1)} % without them; each saw ${seen} events)`, { name: 'processor of viewers', percent: share });
} finally {
  await browser?.close();
  await server.stop();
}
