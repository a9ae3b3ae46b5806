// The types that a plane serves, for as long as a page shows them: read anew when a definition or a binding changes them.

import { get, pathOf, type Type } from './api';
import { discover } from './discovery';
import { stream } from './stream.svelte';

/** Several changes come together; and discovery follows a moment after them. */
const PAUSES = [300, 2000];
/** What brings types into a plane. */
const SOURCES = [
  { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' },
  { group: 'apis.freehold.dev', version: 'v1alpha1', resource: 'apibindings' },
];

export interface Types {
  /** Nothing until they are known. */
  readonly all: Type[] | undefined;
  readonly failure: string;
}

/** Tells of changes of a source, from now on; where the user may watch it. */
async function watchSource(base: string, source: (typeof SOURCES)[number], changed: () => void, signal: AbortSignal): Promise<void> {
  const path = pathOf(base, source);
  const list = await get<{ metadata: { resourceVersion?: string } }>(`${path}?limit=1`, signal);
  if (signal.aborted) return;
  const end = stream.watch(path, false, list.metadata.resourceVersion ?? '', {
    event: changed,
    expired: () => {
      end();
      changed();
      void watchSource(base, source, changed, signal).catch(() => undefined);
    },
    failed: () => undefined,
  });
  signal.addEventListener('abort', end);
}

/** What was found, with what is as it was before in place of its like: pages go by what has changed. */
function kept(before: Type[] | undefined, found: Type[]): Type[] {
  const known = new Map(before?.map((one) => [JSON.stringify(one), one]));
  const all = found.map((one) => known.get(JSON.stringify(one)) ?? one);
  return before && all.length === before.length && all.every((one, index) => one === before[index]) ? before : all;
}

export function useTypes(base: () => string): Types {
  let all = $state.raw<Type[] | undefined>();
  let failure = $state('');
  $effect(() => {
    const of = base();
    const abort = new AbortController();
    let timers: ReturnType<typeof setTimeout>[] = [];
    const load = (anew: boolean) =>
      discover(of, anew).then(
        (found) => {
          if (!abort.signal.aborted) [all, failure] = [kept(all, found), ''];
        },
        (error) => abort.signal.aborted || (failure = error.message),
      );
    const changed = () => {
      timers.forEach(clearTimeout);
      timers = PAUSES.map((pause) => setTimeout(() => void load(true), pause));
    };
    [all, failure] = [undefined, ''];
    void load(false).then(() => {
      // Types of an organization's view and of the platform change with its projects: they are read when a page is opened.
      const sources = SOURCES.filter((one) => of.startsWith('/projects/') && all?.some((type) => type.group === one.group && type.resource === one.resource));
      for (const source of sources) watchSource(of, source, changed, abort.signal).catch(() => undefined);
    });
    return () => {
      abort.abort();
      timers.forEach(clearTimeout);
    };
  });
  return {
    get all() {
      return all;
    },
    get failure() {
      return failure;
    },
  };
}
