// Rows of a list that have a text. Of a list that was not read to its end the rest is read, so that nothing is missed.

import { untrack } from 'svelte';
import { t } from '../i18n/index.svelte';
import { number } from './format.svelte';
import { MOST, type Live, type Row } from './live.svelte';

export interface Filtered {
  readonly rows: Row[];
  /** What the reader has to know of rows that are not there. */
  readonly note: string | undefined;
}

/** The rows whose words have a text. */
export function useFiltered(of: () => Live, text: () => string, words: (row: Row) => string): Filtered {
  const live = $derived(of());
  const low = $derived(text().trim().toLowerCase());
  const rows = $derived(low ? live.rows.filter((row) => words(row).toLowerCase().includes(low)) : live.rows);
  $effect(() => {
    if (low && live.unread && live.rows.length < MOST) untrack(() => void live.readOn(MOST));
  });
  return {
    get rows() {
      return rows;
    },
    get note() {
      if (!low || !live.unread) return;
      return t(live.rows.length < MOST ? 'filterReads' : 'filterReadPart', { count: number(live.rows.length) });
    },
  };
}
