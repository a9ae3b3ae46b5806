// The state of an object, by what most kinds say of themselves.

import { condition, type KubeObject } from './api';

export type StateName = 'ready' | 'notReady' | 'pending' | 'suspended' | 'deleting';

export const tones = {
  ready: 'good',
  notReady: 'bad',
  pending: 'warn',
  suspended: 'warn',
  deleting: 'warn',
} as const;

const TONES: Record<string, 'good' | 'bad' | 'warn'> = { True: 'good', False: 'bad', Unknown: 'warn' };

/** How well an object is by whichever of its conditions says so; nothing where none does. */
export function toneOf(object: KubeObject | undefined): 'good' | 'bad' | 'warn' | 'none' {
  const told = ['Ready', 'Available', 'Complete', 'Succeeded', 'Established'].map((name) => condition(object, name)).find((one) => one);
  if (object?.metadata.deletionTimestamp) return 'warn';
  return TONES[told?.status ?? ''] ?? 'none';
}

export function stateOf(object: KubeObject): { name: StateName; detail: string } {
  if (object.metadata.deletionTimestamp) {
    return { name: 'deleting', detail: condition(object, 'Terminating')?.message ?? '' };
  }
  const suspension = object.spec?.suspension as { reason?: string } | undefined;
  if (suspension) return { name: 'suspended', detail: suspension.reason ?? '' };
  const ready = condition(object, 'Ready');
  const detail = [ready?.reason, ready?.message].filter(Boolean).join(': ');
  if (!ready || ready.status === 'Unknown') return { name: 'pending', detail };
  return { name: ready.status === 'True' ? 'ready' : 'notReady', detail };
}
