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
