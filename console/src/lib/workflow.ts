// DAGs and their runs as graphs. Pure.

import type { KubeObject } from './api';
import type { Edge } from './layout';

export const GROUP = 'workflow.freehold.dev';

export interface Task {
  name: string;
  runAfter?: string[];
  depends?: string;
  image?: string;
  taskRef?: { name?: string };
  dag?: { name?: string };
  approval?: { message?: string };
}

export interface TaskStatus {
  name: string;
  phase: string;
  reason?: string;
  message?: string;
  attempt?: number;
  pod?: string;
  exitCode?: number;
  startedAt?: string;
  finishedAt?: string;
}

/** Names in a `depends` expression: `a && (b.failed || !c.skipped)`. */
const namesIn = (text: string): string[] => [...new Set([...text.matchAll(/([A-Za-z0-9][\w-]*)(?:\.\w+)?/g)].map((match) => match[1] ?? ''))];

/** Tasks whose outputs or outcomes a task mentions: it comes after them. */
const mentioned = (task: Task): string[] => [...JSON.stringify(task).matchAll(/\btasks\.([A-Za-z0-9_][\w-]*)/g)].map((match) => match[1] ?? '');

/** What comes after what. */
export function edgesOf(tasks: Task[], last: Task[] = []): Edge[] {
  const names = new Set(tasks.map((task) => task.name));
  const before = (task: Task) =>
    [...new Set([...(task.runAfter ?? []), ...namesIn(task.depends ?? ''), ...mentioned(task)])].filter((name) => names.has(name) && name !== task.name);
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

const WORK = ['resource', 'http', 'wait', 'approval'] as const;
/** What a task does, in a word. */
export const workOf = (task: Task): string => task.taskRef?.name ?? task.image ?? task.dag?.name ?? WORK.find((name) => name in task) ?? '';

/** Figures of runs that are over: how many succeeded, and how long they took, in seconds. */
export function statisticsOf(runs: KubeObject[]) {
  const over = runs.filter((run) => run.status?.finishedAt && ['Succeeded', 'Failed', 'Stopped'].includes(run.status.phase ?? ''));
  const succeeded = over.filter((run) => run.status?.phase === 'Succeeded').length;
  const lengths = over.map((run) => (Date.parse(String(run.status?.finishedAt)) - Date.parse(String(run.status?.startedAt))) / 1000).filter((length) => length >= 0);
  const sorted = lengths.toSorted((a, b) => a - b);
  return { over: over.length, succeeded, median: sorted[Math.floor(sorted.length / 2)], longest: sorted.at(-1) };
}

/** The phase of a task of a run; a fan-out has that of its worst item. */
export function phaseOf(run: KubeObject, task: string): string | undefined {
  const all = ((run.status?.tasks ?? []) as TaskStatus[]).filter((one) => one.name === task || one.name.startsWith(`${task}[`));
  const order = ['Failed', 'Running', 'Queued', 'Suspended', 'Pending', 'Stopped', 'Skipped', 'Succeeded'];
  return all.map((one) => one.phase).toSorted((a, b) => order.indexOf(a) - order.indexOf(b))[0];
}
