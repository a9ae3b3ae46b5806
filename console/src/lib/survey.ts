// Which of very many objects are not ready: their rows alone, page by page, of which few are kept.

import { TABLE, get, type Column } from './api';

const PAGE = 1000;
/** Objects that are named; the others are counted. */
const NAMED = 100;

export interface Survey {
  /** How many were looked at, and how many of them are not ready. */
  seen: number;
  troubled: number;
  names: string[];
  done: boolean;
}

interface Rows {
  columnDefinitions?: Column[];
  rows?: { cells: unknown[] }[];
  metadata: { continue?: string };
}

/** Looks through a collection whose rows have the columns Name and Ready. */
export async function survey(path: string, signal: AbortSignal, tell: (so: Survey) => void) {
  const found: Survey = { seen: 0, troubled: 0, names: [], done: false };
  let [next, name, ready] = ['', 0, -1];
  do {
    const page = await get<Rows>(`${path}?limit=${PAGE}&includeObject=None${next && `&continue=${encodeURIComponent(next)}`}`, signal, TABLE);
    if (page.columnDefinitions?.length) {
      const at = (wanted: string) => page.columnDefinitions?.findIndex((one) => one.name === wanted) ?? -1;
      [name, ready] = [at('Name'), at('Ready')];
    }
    for (const { cells } of page.rows ?? []) {
      found.seen++;
      if (ready < 0 || cells[ready] === 'True') continue;
      found.troubled++;
      if (found.names.length < NAMED) found.names.push(String(cells[name]));
    }
    next = page.metadata.continue ?? '';
    found.done = !next;
    tell({ ...found });
  } while (next);
}
