// What is wrong with YAML by the plane's own schema, while it is typed. The server has the last word. Pure.

import { isAlias, isMap, isScalar, isSeq, parseDocument, type Node as YamlNode, type Pair } from 'yaml';
import { resolve, type Node, type Schema } from './schema';

export interface Problem {
  from: number;
  to: number;
  severity: 'error' | 'warning';
  /** What is wrong, as a key of the catalogue and its parameters. */
  key: 'yamlSyntax' | 'unknownField' | 'missingField' | 'wrongType' | 'notInEnum';
  parameters: Record<string, string>;
}

/** Problems that are shown, and how deep is looked. */
const MOST = 100;
const DEEPEST = 60;

const keyOf = (pair: Pair): string => (isScalar(pair.key) ? String(pair.key.value) : String(pair.key));
const rangeOf = (node: unknown, or: [number, number]): [number, number] => {
  const range = (node as YamlNode | null)?.range;
  return range ? [range[0], Math.max(range[1], range[0] + 1)] : or;
};

/** The types that a schema allows; empty for any. */
function allowed(node: Node, all: Record<string, Node>): string[] {
  if (node['x-kubernetes-int-or-string'] || node.format === 'int-or-string') return ['integer', 'string'];
  const choices = [...(node.oneOf ?? []), ...(node.anyOf ?? [])].map((one) => resolve(one, all)?.type).filter((type): type is string => !!type);
  if (choices.length) return choices;
  return node.type ? [node.type] : [];
}

function typeOf(node: unknown): string {
  if (isMap(node)) return 'object';
  if (isSeq(node)) return 'array';
  if (!isScalar(node) || node.value === null) return 'null';
  if (typeof node.value === 'number') return Number.isInteger(node.value) ? 'integer' : 'number';
  return typeof node.value === 'boolean' ? 'boolean' : 'string';
}

const fits = (type: string, wanted: string[]): boolean => !wanted.length || wanted.includes(type) || (type === 'integer' && wanted.includes('number'));

/** What is wrong with a text. */
export function problemsOf(text: string, schema: Schema | undefined): Problem[] {
  const document = parseDocument(text, { version: '1.1', keepSourceTokens: false } as object);
  const found: Problem[] = document.errors.map((error) => ({
    from: error.pos[0],
    to: Math.max(error.pos[1], error.pos[0] + 1),
    severity: 'error' as const,
    key: 'yamlSyntax' as const,
    parameters: { reason: error.message.split('\n')[0] ?? '' },
  }));
  if (found.length || !schema) return found;
  const { all } = schema;
  const add = (range: [number, number], severity: Problem['severity'], key: Problem['key'], parameters: Record<string, string>) => {
    if (found.length < MOST) found.push({ from: range[0], to: range[1], severity, key, parameters });
  };
  const visit = (node: unknown, given: Node | undefined, range: [number, number], depth: number, name: string) => {
    const wanted = resolve(given, all);
    if (!wanted || depth > DEEPEST || found.length >= MOST || isAlias(node)) return;
    const type = typeOf(node);
    if (type === 'null') return;
    const types = allowed(wanted, all);
    if (!fits(type, types)) return add(rangeOf(node, range), 'error', 'wrongType', { field: name, type: types.join(' | '), found: type });
    if (isScalar(node)) {
      const choices = wanted.enum;
      if (choices?.length && !choices.includes(node.value)) add(rangeOf(node, range), 'error', 'notInEnum', { field: name, values: choices.join(', ') });
    } else if (isSeq(node)) {
      for (const item of node.items) visit(item, wanted.items, range, depth + 1, name);
    } else if (isMap(node)) {
      const properties = wanted.properties ?? {};
      const more = wanted.additionalProperties;
      const open = !wanted.properties || more === true || wanted['x-kubernetes-preserve-unknown-fields'] || wanted['x-kubernetes-embedded-resource'];
      for (const pair of node.items) {
        const key = keyOf(pair as Pair);
        const at = rangeOf((pair as Pair).key, range);
        if (depth === 0 && key === 'status') continue;
        const inside = properties[key] ?? (typeof more === 'object' ? more : undefined);
        if (inside) visit((pair as Pair).value, inside, at, depth + 1, key);
        else if (!open) add(at, 'warning', 'unknownField', { field: key });
      }
      for (const key of wanted.required ?? []) {
        if (!node.items.some((pair) => keyOf(pair as Pair) === key)) add(range, 'error', 'missingField', { field: key });
      }
    }
  };
  visit(document.contents, schema.root, [0, Math.min(text.length, 1)], 0, '');
  return found;
}
