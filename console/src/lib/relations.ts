// What an object belongs to and what belongs to it, by owner references.

import { get, pathOf, type KubeObject, type OwnerReference, type Type } from './api';

const ACCEPT = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
/** Types that are looked through, requests at a time, and objects that are shown. */
const TYPES = 80;
const AT_ONCE = 6;
const MOST = 200;

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
async function all(base: string, types: Type[], namespace: string | undefined): Promise<{ type: Type; object: KubeObject }[]> {
  const wanted = types.filter((type) => type.verbs.includes('list') && type.resource !== 'events' && (!namespace || type.namespaced)).slice(0, TYPES);
  const found: { type: Type; object: KubeObject }[] = [];
  const work = async () => {
    for (let type = wanted.shift(); type; type = wanted.shift()) {
      const path = `${pathOf(base, type, namespace)}?limit=500`;
      // What the user may not list is not shown.
      const page = await get<{ items?: KubeObject[] }>(path, undefined, ACCEPT).catch(() => undefined);
      for (const object of page?.items ?? []) found.push({ type, object });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return found;
}

/** The relatives of an object: owners above it, and what they and it own. */
export async function relations(base: string, types: Type[], own: KubeObject, type: Type): Promise<Relations> {
  const known = await all(base, types, own.metadata.namespace);
  const byUid = new Map(known.map((one) => [one.object.metadata.uid ?? '', one]));
  const nodes = new Map<string, Related>();
  const edges: { from: string; to: string }[] = [];
  const add = (uid: string, related: Omit<Related, 'key'>) => {
    if (nodes.has(uid) || nodes.size >= MOST) return false;
    nodes.set(uid, { key: uid, ...related });
    return true;
  };
  const up = (object: KubeObject) => {
    for (const owner of object.metadata.ownerReferences ?? []) {
      const found = byUid.get(owner.uid);
      edges.push({ from: owner.uid, to: object.metadata.uid ?? '' });
      if (add(owner.uid, { kind: owner.kind, name: owner.name, type: found?.type ?? typeOf(types, owner), object: found?.object }) && found) up(found.object);
    }
  };
  const down = (uid: string) => {
    for (const { type, object } of known) {
      if (!object.metadata.ownerReferences?.some((owner) => owner.uid === uid)) continue;
      edges.push({ from: uid, to: object.metadata.uid ?? '' });
      if (add(object.metadata.uid ?? '', { kind: type.kind, name: object.metadata.name, type, object })) down(object.metadata.uid ?? '');
    }
  };
  const uid = own.metadata.uid ?? '';
  add(uid, { kind: type.kind, name: own.metadata.name, type, object: own });
  up(own);
  down(uid);
  return { nodes: [...nodes.values()], edges };
}
