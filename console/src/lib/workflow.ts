// DAGs and their runs as graphs. Pure.

import type { KubeObject } from './api';
import type { Edge } from './layout';

export const GROUP = 'workflow.freehold.dev';

export interface Task {
  name: string;
  runAfter?: string[];
  depends?: string;
  template?: Record<string, unknown>;
  taskRef?: { name?: string };
}

export interface TaskStatus {
  name: string;
  phase: string;
  reason?: string;
  message?: string;
  attempt?: number;
  pod?: string;
  startedAt?: string;
  finishedAt?: string;
}

/** Names in a `depends` expression: `a && (b.failed || !c.skipped)`. */
const namesIn = (text: string): string[] => [...new Set([...text.matchAll(/([A-Za-z0-9][\w-]*)(?:\.\w+)?/g)].map((match) => match[1] ?? ''))];

/** What comes after what. */
export function edgesOf(tasks: Task[], last: Task[] = []): Edge[] {
  const names = new Set(tasks.map((task) => task.name));
  const before = (task: Task) => (task.runAfter?.length ? task.runAfter : task.depends ? namesIn(task.depends) : []).filter((name) => names.has(name));
  const edges = tasks.flatMap((task) => before(task).map((from) => ({ from, to: task.name })));
  // Finally tasks come after whatever nothing else comes after.
  const ends = tasks.filter((task) => !edges.some((edge) => edge.from === task.name));
  return [...edges, ...last.flatMap((task) => ends.map((end) => ({ from: end.name, to: task.name })))];
}

const TONES: Record<string, 'good' | 'bad' | 'warn' | 'run' | 'none'> = {
  Succeeded: 'good',
  Failed: 'bad',
  Running: 'run',
  Queued: 'warn',
  Suspended: 'warn',
  Stopped: 'warn',
};
export const toneOf = (phase: string | undefined) => TONES[phase ?? ''] ?? 'none';

/** What a task does, in a word. */
export const workOf = ({ template, taskRef }: Task): string =>
  taskRef?.name ?? (typeof template?.image === 'string' && template.image ? template.image : (Object.keys(template ?? {})[0] ?? ''));

/** The phase of a task of a run; a fan-out has that of its worst item. */
export function phaseOf(run: KubeObject, task: string): string | undefined {
  const all = ((run.status?.tasks ?? []) as TaskStatus[]).filter((one) => one.name === task || one.name.startsWith(`${task}[`));
  const order = ['Failed', 'Running', 'Queued', 'Suspended', 'Pending', 'Stopped', 'Skipped', 'Succeeded'];
  return all.map((one) => one.phase).toSorted((a, b) => order.indexOf(a) - order.indexOf(b))[0];
}
