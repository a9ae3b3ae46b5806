// Objects as YAML. Loaded where YAML is shown.

import { parseDocument, stringify } from 'yaml';
import { t } from '../i18n/index.svelte';
import type { KubeObject } from './api';

/** An object as YAML, without what only servers read. */
export function toYaml(object: KubeObject, whole = false): string {
  const { apiVersion, kind, metadata, ...rest } = structuredClone(object);
  if (!whole) delete metadata.managedFields;
  const { name, namespace, labels, annotations, ...others } = metadata;
  // What a person looks for comes first.
  const named = Object.entries({ name, namespace, labels, annotations, ...others }).filter(([, value]) => value !== undefined);
  const shown = { apiVersion, kind, metadata: Object.fromEntries(named), ...rest };
  return stringify(shown, { lineWidth: 0, version: '1.1' });
}

/** The object of a text. Throws with the place of what is wrong. */
export function fromYaml(text: string): KubeObject {
  const document = parseDocument(text, { version: '1.1', maxAliasCount: 20, prettyErrors: true } as object);
  const [error] = document.errors;
  if (error) throw new Error(error.message);
  const value: unknown = document.toJS({ maxAliasCount: 20 });
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(t('objectWanted'));
  return value as KubeObject;
}
