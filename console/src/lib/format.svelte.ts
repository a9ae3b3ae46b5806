// Texts of values.

import { language } from '../i18n/index.svelte';

/** The time, every ten seconds. */
let clock = $state(Date.now());
setInterval(() => (clock = Date.now()), 10_000);

const STEPS: [number, string][] = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'm'],
  [1, 's'],
];

/** How long ago a time was, as kubectl writes it. */
export function age(time: string | undefined): string {
  const began = Date.parse(time ?? '');
  if (Number.isNaN(began)) return '';
  const seconds = Math.max(0, Math.floor((clock - began) / 1000));
  const [size, unit] = STEPS.find(([size]) => seconds >= size * (size === 1 ? 0 : 2)) ?? [1, 's'];
  return `${Math.floor(seconds / size)}${unit}`;
}

export const when = (time: string | undefined): string =>
  time && !Number.isNaN(Date.parse(time)) ? new Date(time).toLocaleString(language.code, { dateStyle: 'medium', timeStyle: 'medium' }) : '';

export const number = (value: number): string => value.toLocaleString(language.code);

export function bytes(value: number | undefined): string {
  if (value === undefined) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at++;
  }
  return `${number(Math.round(value * 10) / 10)} ${units[at]}`;
}

/** Control characters and terminal codes of a text made visible, so that a log line can't pretend to be another. */
export const plain = (text: string): string =>
  text
    // eslint-disable-next-line no-control-regex
    .replace(/\u001b\[[0-9;?]*[A-Za-z]/g, '')
    // eslint-disable-next-line no-control-regex
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');

/** A cell of a table as text. */
export function cell(value: unknown): string {
  if (value === null || value === undefined) return '';
  return plain(typeof value === 'object' ? JSON.stringify(value) : String(value));
}

const SUFFIXES: Record<string, number> = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

/** A quantity of Kubernetes as a number; nothing where it is none. */
export function quantity(text: string): number | undefined {
  const match = /^([+-]?[\d.]+)([numkMGTPE]|[KMGTPE]i)?$/.exec(text);
  const factor = SUFFIXES[match?.[2] ?? ''];
  return match && factor !== undefined ? Number(match[1]) * factor : undefined;
}
