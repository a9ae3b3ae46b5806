// What a Pod says of its containers. Pure.

import type { KubeObject } from './api';

/** Names of a Pod's containers: those that run, then those that were first, then those that were added. */
export const containersOf = (pod: KubeObject): string[] =>
  ['containers', 'initContainers', 'ephemeralContainers'].flatMap((field) => ((pod.spec?.[field] ?? []) as { name: string }[]).map((one) => one.name));
