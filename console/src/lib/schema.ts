// Completion from the plane's own OpenAPI. Pure but for reading the document.

import type { CompletionContext, CompletionResult } from '@codemirror/autocomplete';
import { get, type Type } from './api';

export interface Node {
  $ref?: string;
  allOf?: Node[];
  oneOf?: Node[];
  anyOf?: Node[];
  type?: string;
  format?: string;
  required?: string[];
  description?: string;
  properties?: Record<string, Node>;
  items?: Node;
  additionalProperties?: Node | boolean;
  enum?: unknown[];
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-embedded-resource'?: boolean;
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string }[];
}

export interface Schema {
  root: Node;
  all: Record<string, Node>;
}

const LIFE = 30_000;
const known = new Map<string, { at: number; schema: Promise<Schema | undefined> }>();

/** The schema of a type, as the plane publishes it; read anew after half a minute. */
export function schemaOf(base: string, type: Type): Promise<Schema | undefined> {
  const key = JSON.stringify([base, type.group, type.version, type.kind]);
  const found = known.get(key);
  if (found && Date.now() - found.at < LIFE) return found.schema;
  const schema = readSchema(base, type);
  schema.catch(() => known.delete(key));
  if (known.size > 20) known.clear();
  known.set(key, { at: Date.now(), schema });
  return schema;
}

async function readSchema(base: string, type: Type): Promise<Schema | undefined> {
  const path = type.group ? `apis/${type.group}/${type.version}` : `api/${type.version}`;
  const document = await get<{ components?: { schemas?: Record<string, Node> } }>(`${base}/openapi/v3/${path}`);
  const all = document.components?.schemas ?? {};
  const is = (node: Node) =>
    node['x-kubernetes-group-version-kind']?.some((k) => k.group === type.group && k.version === type.version && k.kind === type.kind);
  const root = Object.values(all).find(is);
  return root && { root, all };
}

export function resolve(node: Node | undefined, all: Record<string, Node>): Node | undefined {
  const ref = node?.$ref ?? node?.allOf?.find((part) => part.$ref)?.$ref;
  return ref ? all[ref.replace('#/components/schemas/', '')] : node;
}

/** The keys under which a line lies, by the indentation of the lines above it. */
export function pathAt(lines: string[], at: number, indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let index = at - 1; index >= 0 && limit > 0; index--) {
    const match = /^(\s*)((?:- )*)([^\s#:][^:]*):/.exec(lines[index] ?? '');
    if (!match) continue;
    const dashes = match[2] ?? '';
    const own = (match[1] ?? '').length + dashes.length;
    if (own < limit) {
      path.unshift(match[3]?.replace(/^["']|["']$/g, '') ?? '');
      limit = own;
      // The key beside a dash belongs to an item of the list above.
      if (dashes) limit = own - dashes.length + (/^\s*$/.test(match[1] ?? '') ? 1 : 0);
    }
  }
  return path;
}

/** The schema at a path. */
export function nodeAt({ root, all }: Schema, path: string[]): Node | undefined {
  let node: Node | undefined = root;
  for (const key of path) {
    node = resolve(node, all);
    while (node?.items) node = resolve(node.items, all);
    const inside: Node | undefined = node?.properties?.[key];
    node = inside ?? (typeof node?.additionalProperties === 'object' ? node.additionalProperties : undefined);
    if (!node) return;
  }
  node = resolve(node, all);
  while (node?.items) node = resolve(node.items, all);
  return node;
}

/** Keys, or values of an enumeration, for the place of the cursor. */
export function suggest(schema: Schema, context: CompletionContext): CompletionResult | null {
  const line = context.state.doc.lineAt(context.pos);
  const before = line.text.slice(0, context.pos - line.from);
  const lines = context.state.doc.toString().split('\n');
  const value = /^(\s*(?:- )*)([\w.-]+):\s+(\S*)$/.exec(before);
  if (value) {
    const parent = nodeAt(schema, [...pathAt(lines, line.number - 1, value[1]?.length ?? 0), value[2] ?? '']);
    const allowed = parent?.enum ?? (parent?.type === 'boolean' ? [true, false] : []);
    return allowed.length ? { from: context.pos - (value[3]?.length ?? 0), options: allowed.map((one) => ({ label: String(one) })) } : null;
  }
  const key = /^(\s*(?:- )*)([\w.-]*)$/.exec(before);
  if (!key || (!key[2] && !context.explicit)) return null;
  const parent = nodeAt(schema, pathAt(lines, line.number - 1, key[1]?.length ?? 0));
  const options = Object.entries(parent?.properties ?? {}).map(([label, node]) => ({
    label,
    apply: `${label}: `,
    detail: resolve(node, schema.all)?.type,
    info: node.description ?? resolve(node, schema.all)?.description,
  }));
  return options.length ? { from: context.pos - (key[2]?.length ?? 0), options } : null;
}
