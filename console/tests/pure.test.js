// Parts of the console that need no browser: catalogues, selectors, answers of HTTP, dates of certificates.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse } from 'svelte/compiler';
import { source } from './source.js';

const [{ de }, { en }] = await Promise.all([source('i18n/de'), source('i18n/en')]);
const { answerOf, requestOf, textOf } = await source('lib/http');
const { isHeld, validity } = await source('lib/operations');
const { parts, selectorsOf } = await source('lib/selectors');
const { problemsOf } = await source('lib/validate');
const { kubectl } = await source('lib/kubectl');
const { splitter } = await source('lib/lines');
const { relationsOf } = await source('lib/relations');

test('each catalogue has each text, with the same parameters', () => {
  assert.deepEqual(Object.keys(de).toSorted(), Object.keys(en).toSorted());
  const parameters = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).toSorted();
  for (const [key, text] of Object.entries(en)) {
    assert.deepEqual(parameters(de[key]), parameters(text), key);
    assert.ok(de[key].trim(), key);
  }
});

test('templates have no texts of their own', () => {
  const folder = new URL('../src/', import.meta.url).pathname;
  // Names of things that are the same in each language.
  const names = /^(Freehold|Ctrl K|exec|attach|default|freehold console link)$/;
  const found = [];
  const look = (node, file) => {
    if (Array.isArray(node)) return node.forEach((one) => look(one, file));
    if (!node || typeof node !== 'object') return;
    const told = node.type === 'Attribute' && ['title', 'aria-label', 'placeholder', 'alt', 'label'].includes(node.name) && Array.isArray(node.value);
    const texts = node.type === 'Text' ? [node] : told ? node.value.filter((one) => one.type === 'Text') : [];
    for (const { data } of texts) {
      const text = data.trim();
      if (/[A-Za-z]{2}/.test(text) && !names.test(text)) found.push(`${file}: ${text}`);
    }
    if (['Attribute', 'StyleDirective', 'StyleSheet'].includes(node.type)) return;
    Object.entries(node).forEach(([key, value]) => key !== 'instance' && key !== 'module' && key !== 'css' && look(value, file));
  };
  for (const file of readdirSync(folder, { recursive: true }).filter((one) => one.endsWith('.svelte'))) {
    look(parse(readFileSync(join(folder, file), 'utf8'), { modern: true }).fragment, file);
  }
  assert.deepEqual(found, []);
});

test('a word of a command is one word, whatever it is', () => {
  assert.equal(kubectl('https://a', '/projects/b', 'get', 'x', '-n', 'a;b'), "kubectl --server https://a/projects/b get x -n 'a;b'");
  assert.equal(kubectl('', '', "it's", '$(x)', '', '~a'), `kubectl 'it'\\''s' '$(x)' '' '~a'`);
});

test('pieces of a log become lines, and endless lines end', () => {
  const parts = splitter();
  assert.deepEqual([parts.take('a\nb'), parts.take('c\n'), parts.rest()], [['a'], ['bc'], []]);
  const long = parts.take('x'.repeat(40_000));
  assert.deepEqual([long.length, long[0].length, parts.rest()[0].length], [2, 16_384, 40_000 - 2 * 16_384]);
});

test('relations are what owners say, once, whoever names whom', () => {
  const type = (kind) => ({ group: '', version: 'v1', resource: `${kind.toLowerCase()}s`, kind, namespaced: true, verbs: [] });
  const one = (kind, uid, ...owners) => ({ type: type(kind), object: { metadata: { name: uid, uid, ownerReferences: owners.map((uid) => ({ apiVersion: 'v1', kind: 'X', name: uid, uid })) } } });
  const all = [one('A', 'a'), one('B', 'b', 'a'), one('C', 'c', 'b', 'a'), one('D', 'd', 'gone'), one('E', 'e', 'e')];
  const known = new Map(all.map((each) => [each.object.metadata.uid, each]));
  const of = (uid) => {
    const { nodes, edges } = relationsOf(known, [], known.get(uid).object, known.get(uid).type);
    return [nodes.map((node) => node.key).toSorted().join(' '), edges.map(({ from, to }) => from + to).toSorted().join(' ')];
  };
  assert.deepEqual(of('b'), ['a b c', 'ab bc']);
  assert.deepEqual(of('a'), ['a b c', 'ab ac bc']);
  assert.deepEqual(of('d'), ['d gone', 'goned']);
  assert.deepEqual(of('e'), ['e', 'ee']);
});

test('what is typed becomes selectors where it is one', () => {
  for (const [text, labels, fields] of [
    ['app=web', ['app=web'], []],
    ['app=web,tier!=db', ['app=web', 'tier!=db'], []],
    ['env in (a, b),app', undefined, undefined],
    ['env in (a, b)', ['env in (a, b)'], []],
    ['metadata.name=a,app=web', ['app=web'], ['metadata.name=a']],
    ['status.phase!=Running', [], ['status.phase!=Running']],
    ['app.kubernetes.io/name', ['app.kubernetes.io/name'], []],
    ['web', undefined, undefined],
    ['two words', undefined, undefined],
    ['', undefined, undefined],
  ]) {
    assert.deepEqual(selectorsOf(text), labels && { labels, fields }, text);
  }
  assert.deepEqual(parts('a in (x,y),b=c'), ['a in (x,y)', 'b=c']);
});

test('a request of HTTP stays one, whatever is typed as its path', () => {
  const text = requestOf('GET', '/a b\r\nX: y', 8080);
  assert.equal(text.split('\r\n')[0], 'GET /a%20b%0D%0AX:%20y HTTP/1.0');
  assert.ok(text.endsWith('\r\n\r\n'));
  assert.match(requestOf('GET', 'x%20y', 1), /^GET \/x%20y HTTP/);
});

test('an answer of HTTP is read, in chunks too', () => {
  const bytes = (text) => new TextEncoder().encode(text);
  const read = (text) => answerOf(bytes(text));
  const plain = read('HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: b: c\r\n\r\nhello');
  assert.deepEqual([plain.status, plain.headers[1], textOf(plain)], ['HTTP/1.1 200 OK', ['X-A', 'b: c'], 'hello']);
  assert.equal(textOf(read('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\n wo\r\n0\r\n\r\n')), 'hello wo');
  assert.equal(textOf(read('HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nabc')), undefined);
  assert.equal(read('SSH-2.0-x\r\n'), undefined);
  assert.equal(read('HTTP/1.0 204 No Content').status, 'HTTP/1.0 204 No Content');
});

test('a certificate or a Lease that is due is said to be', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  const of = (notAfter) => validity({ notAfter }, now);
  assert.deepEqual(of('2026-02-01T00:00:00Z'), { days: 31, tone: 'good' });
  assert.deepEqual(of('2026-01-10T12:00:00Z'), { days: 9, tone: 'warn' });
  assert.equal(of('2025-12-31T00:00:00Z').tone, 'bad');
  assert.equal(of(undefined).tone, 'bad');
  assert.ok(isHeld({ renewTime: '2025-12-31T23:59:40Z', leaseDurationSeconds: 15 }, now));
  assert.ok(!isHeld({ renewTime: '2025-12-31T23:59:00Z', leaseDurationSeconds: 15 }, now));
  assert.ok(!isHeld(undefined, now));
});

test('YAML is held against the schema of its type', () => {
  const all = {
    Spec: {
      type: 'object',
      required: ['size'],
      properties: {
        size: { type: 'integer' },
        port: { 'x-kubernetes-int-or-string': true },
        amount: { oneOf: [{ type: 'string' }, { type: 'number' }] },
        colour: { type: 'string', enum: ['red', 'blue'] },
        items: { type: 'array', items: { allOf: [{ $ref: '#/components/schemas/Item' }] } },
        labels: { type: 'object', additionalProperties: { type: 'string' } },
        free: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true },
      },
    },
    Item: { type: 'object', properties: { name: { type: 'string' } } },
  };
  const schema = { all, root: { type: 'object', properties: { kind: { type: 'string' }, spec: { $ref: '#/components/schemas/Spec' } } } };
  const found = (spec) => problemsOf(`kind: A\nstatus: {x: 1}\nspec: ${JSON.stringify(spec)}\n`, schema).map(({ key, parameters }) => `${key} ${parameters.field}`);
  for (const good of [
    { size: 1 },
    { size: 1, port: 'http', amount: 0.5, colour: 'red', items: [{ name: 'a' }], labels: { any: 'text' }, free: { x: [1] } },
    { size: 1, port: 80, colour: null },
  ]) {
    assert.deepEqual(found(good), [], JSON.stringify(good));
  }
  assert.deepEqual(found({ size: 'x' }), ['wrongType size']);
  assert.deepEqual(found({ size: 1.5 }), ['wrongType size']);
  assert.deepEqual(found({ size: 1, sise: 2 }), ['unknownField sise']);
  assert.deepEqual(found({ port: true }), ['wrongType port', 'missingField size']);
  assert.deepEqual(found({ size: 1, colour: 'green' }), ['notInEnum colour']);
  assert.deepEqual(found({ size: 1, items: [{ name: 1 }, { nam: 'a' }] }), ['wrongType name', 'unknownField nam']);
  assert.deepEqual(found({ size: 1, labels: { a: 1 } }), ['wrongType a']);
  assert.equal(problemsOf('a: [', schema)[0].key, 'yamlSyntax');
  assert.deepEqual(problemsOf('a: 1', undefined), []);
});
