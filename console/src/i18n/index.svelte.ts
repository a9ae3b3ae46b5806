// Texts of the console, by language. English is always there; others are loaded when they are wanted.

import { en } from './en';

export type Key = keyof typeof en;
export type Catalogue = Record<Key, string>;

export const languages = { en: 'English', de: 'Deutsch' } as const;
export type Code = keyof typeof languages;

const STORED = 'freehold.language';
let code = $state<Code>('en');
let catalogue = $state.raw<Catalogue>(en);

export const language = {
  get code() {
    return code;
  },
};

export async function setLanguage(wanted: Code) {
  catalogue = wanted === 'de' ? (await import('./de')).de : en;
  code = wanted;
  document.documentElement.lang = wanted;
  localStorage.setItem(STORED, wanted);
}

export async function startLanguage() {
  const stored = localStorage.getItem(STORED);
  const wanted = stored ?? navigator.language.slice(0, 2);
  if (wanted === 'de') await setLanguage('de');
}

/** A text, with `{name}` replaced by parameters. */
export function t(key: Key, parameters: Record<string, string | number> = {}): string {
  return catalogue[key].replace(/\{(\w+)\}/g, (whole, name: string) => String(parameters[name] ?? whole));
}
