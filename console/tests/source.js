// Modules of the console's source, for tests that need no browser: TypeScript without its types, beside the packages.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { compileModule } from 'svelte/compiler';
import ts from 'typescript';

const TOP = new URL('..', import.meta.url).pathname;
const OUT = join(TOP, 'node_modules/.source');
const OPTIONS = { compilerOptions: { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true } };
const done = new Set();

function write(file) {
  if (done.has(file)) return;
  done.add(file);
  const plain = ts.transpileModule(readFileSync(file, 'utf8'), OPTIONS).outputText;
  const text = file.endsWith('.svelte.ts') ? compileModule(plain, { filename: file, generate: 'server' }).js.code : plain;
  const linked = text.replace(/(from|import) '(\.[^']*)'/g, (_, word, path) => {
    write(join(dirname(file), `${path}.ts`));
    return `${word} '${path}.js'`;
  });
  const to = join(OUT, relative(TOP, file)).replace(/\.ts$/, '.js');
  mkdirSync(dirname(to), { recursive: true });
  writeFileSync(to, linked);
}

/** The module of a path below `src`, without its ending. */
export async function source(path) {
  const file = join(TOP, 'src', `${path}.ts`);
  mkdirSync(OUT, { recursive: true });
  writeFileSync(join(OUT, 'package.json'), '{"type": "module"}');
  write(file);
  return import(pathToFileURL(join(OUT, 'src', `${path}.js`)).href);
}
