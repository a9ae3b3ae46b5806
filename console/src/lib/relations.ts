// What an object belongs to and what belongs to it, by owner references. Pure but for reading the objects.

import { get, pathOf, type KubeObject, type OwnerReference, type Type } from './api';

const ACCEPT = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
/** Types that are looked through, requests at a time, and objects that are shown. */
const TYPES = 80;
const AT_ONCE = 6;
const MOST = 200;
/** Pages of a type that are looked through. */
const PAGES = 10;

export interface Known {
  type: Type;
  object: KubeObject;
}

/** Objects by their uid, and the version of each type's list. */
export interface Surroundings {
  objects: Map<string, Known>;
  versions: Map<Type, string>;
}

export interface Related {
  key: string;
  kind: string;
  name: string;
  type?: Type;
  object?: KubeObject;
}

export interface Relations {
  nodes: Related[];
  edges: { from: string; to: string }[];
}

const typeOf = (types: Type[], { apiVersion, kind }: Pick<OwnerReference, 'apiVersion' | 'kind'>): Type | undefined => {
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  return types.find((type) => type.kind === kind && type.group === group) ?? types.find((type) => type.kind === kind && type.version === version);
};

/** All objects of a namespace, their metadata alone. */
export async function surroundings(base: string, types: Type[], namespace: string | undefined, signal: AbortSignal): Promise<Surroundings> {
  const wanted = types.filter((type) => type.verbs.includes('list') && type.resource !== 'events' && (!namespace || type.namespaced)).slice(0, TYPES);
  const found: Surroundings = { objects: new Map(), versions: new Map() };
  const read = async (type: Type) => {
    let next = '';
    for (let page = 0; page < PAGES; page++) {
      const path = `${pathOf(base, type, namespace)}?limit=500${next && `&continue=${encodeURIComponent(next)}`}`;
      const { items, metadata } = await get<{ items?: KubeObject[]; metadata: { resourceVersion?: string; continue?: string } }>(path, signal, ACCEPT);
      for (const object of items ?? []) found.objects.set(object.metadata.uid ?? '', { type, object });
      if (!next) found.versions.set(type, metadata.resourceVersion ?? '');
      next = metadata.continue ?? '';
      if (!next) return;
    }
  };
  const work = async () => {
    // What the user may not list is not shown.
    for (let type = wanted.shift(); type; type = wanted.shift()) await read(type).catch(() => undefined);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

/** The relatives of an object: owners above it, and what they and it own. */
export function relationsOf(known: Map<string, Known>, types: Type[], own: KubeObject, type: Type): Relations {
  const nodes = new Map<string, Related>();
  const edges = new Map<string, { from: string; to: string }>();
  const owned = new Map<string, Known[]>();
  for (const one of known.values()) {
    for (const { uid } of one.object.metadata.ownerReferences ?? []) owned.set(uid, [...(owned.get(uid) ?? []), one]);
  }
  const join = (from: string, to: string) => edges.set(`${from}>${to}`, { from, to });
  const add = (uid: string, related: Omit<Related, 'key'>) => {
    if (nodes.has(uid) || nodes.size >= MOST) return false;
    nodes.set(uid, { key: uid, ...related });
    return true;
  };
  const up = (object: KubeObject) => {
    for (const owner of object.metadata.ownerReferences ?? []) {
      const found = known.get(owner.uid);
      join(owner.uid, object.metadata.uid ?? '');
      if (add(owner.uid, { kind: owner.kind, name: owner.name, type: found?.type ?? typeOf(types, owner), object: found?.object }) && found) up(found.object);
    }
  };
  const down = (uid: string) => {
    for (const { type, object } of owned.get(uid) ?? []) {
      const below = object.metadata.uid ?? '';
      join(uid, below);
      if (add(below, { kind: type.kind, name: object.metadata.name, type, object })) down(below);
    }
  };
  const uid = own.metadata.uid ?? '';
  add(uid, { kind: type.kind, name: own.metadata.name, type, object: own });
  up(own);
  down(uid);
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}
