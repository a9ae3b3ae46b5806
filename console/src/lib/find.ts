// Objects of one name, of whatever type, in all projects of an organization.

import { get, pathOf, type KubeObject, type Type } from './api';

const ACCEPT = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json';
/** Requests at a time, types that are looked through, and objects that are found of one. */
const AT_ONCE = 6;
const TYPES = 200;
const MOST = 100;

export interface Found {
  type: Type;
  object: KubeObject;
}

/** The project that an object of an organization's view is of. */
export const projectOf = ({ metadata }: KubeObject): string | undefined =>
  metadata.annotations?.['resourcemanager.freehold.dev/project'] ?? metadata.labels?.['resourcemanager.freehold.dev/project'];

/** Looks through all types for a name; tells what was found so far, and how many types are left. */
export async function findByName(base: string, types: Type[], name: string, signal: AbortSignal, tell: (found: Found[], left: number) => void) {
  const wanted = types.filter((type) => type.verbs.includes('list') && type.verbs.includes('get') && type.resource !== 'events').slice(0, TYPES);
  const found: Found[] = [];
  const selector = `fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}&limit=${MOST}`;
  let left = wanted.length;
  const work = async () => {
    for (let type = wanted.shift(); type; type = wanted.shift()) {
      const of = type;
      // What the user may not list is not found.
      const page = await get<{ items?: KubeObject[] }>(`${pathOf(base, of)}?${selector}`, signal, ACCEPT).catch(() => undefined);
      if (signal.aborted) return;
      for (const object of page?.items ?? []) found.push({ type: of, object });
      left--;
      tell([...found], left);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
