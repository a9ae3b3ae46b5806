// What a plane serves, from its aggregated discovery. Pure but for reading it.

import { get, type Type } from './api';

const ACCEPT = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json';

interface Discovered {
  items: {
    metadata: { name?: string };
    versions: {
      version: string;
      resources: { resource: string; responseKind?: { kind: string }; scope: string; verbs: string[]; shortNames?: string[] }[];
    }[];
  }[];
}

async function read(path: string): Promise<Type[]> {
  const found = await get<Discovered>(path, undefined, ACCEPT);
  return found.items.flatMap(({ metadata, versions }) =>
    // The first version is the one that the server prefers.
    versions.flatMap(({ version, resources }) =>
      resources.map((one) => ({
        group: metadata.name ?? '',
        version,
        resource: one.resource,
        kind: one.responseKind?.kind ?? one.resource,
        namespaced: one.scope === 'Namespaced',
        verbs: one.verbs,
        shortNames: one.shortNames,
      })),
    ),
  );
}

const LIFE = 30_000;
/** Planes whose types are kept. */
const MOST = 50;
const known = new Map<string, { at: number; types: Promise<Type[]> }>();

/** The types that a plane or context serves, one version of each. */
export function discover(base: string, anew = false): Promise<Type[]> {
  const found = known.get(base);
  if (found && !anew && Date.now() - found.at < LIFE) return found.types;
  const types = Promise.all([read(`${base}/api`), read(`${base}/apis`)]).then(([core, groups]) => {
    const first = new Map<string, Type>();
    for (const type of [...core, ...groups]) {
      const key = `${type.resource}.${type.group}`;
      if (!first.has(key)) first.set(key, type);
    }
    return [...first.values()].toSorted((a, b) => a.kind.localeCompare(b.kind) || a.group.localeCompare(b.group));
  });
  types.catch(() => known.delete(base));
  if (known.size >= MOST) known.clear();
  known.set(base, { at: Date.now(), types });
  return types;
}

/** A type as people and kubectl write it. */
export const nameOf = (type: Pick<Type, 'group' | 'resource'>): string => (type.group ? `${type.resource}.${type.group}` : type.resource);
