// Lists that stay as the server has them: read page by page, then watched from the version that was read.

import { untrack } from 'svelte';
import { Failure, TABLE, get, type Column, type KubeObject, type TableRow } from './api';
import { stream } from './stream.svelte';

const PAGE = 500;
/** Objects of the first page: what a screen shows, so that it is there soon. */
const FIRST_PAGE = 100;
/** Objects that are read of a list which a page needs as a whole, or looks through for a text. */
export const MOST = 10_000;

export interface Row {
  key: string;
  cells: unknown[];
  object: KubeObject;
}

interface Page {
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items?: KubeObject[];
  columnDefinitions?: Column[];
  rows?: TableRow[];
  apiVersion?: string;
  kind?: string;
}

const separator = (path: string) => (path.includes('?') ? '&' : '?');
/** Objects of several planes are in one list: what planes share has one uid in all of them. */
const keyOf = ({ metadata: { uid, namespace, name, annotations } }: KubeObject) =>
  `${annotations?.['freehold.dev/plane'] ?? ''}/${uid ?? ''}/${namespace ?? ''}/${name}`;
const newer = (a: KubeObject, b: KubeObject) =>
  BigInt(a.metadata.resourceVersion || 0) >= BigInt(b.metadata.resourceVersion || 0);

export interface Way {
  /** In the columns of the server. */
  table?: boolean;
  /** All of it, up to so many, where a page has no table that reads on as it is scrolled. */
  whole?: boolean;
}

/** A list that stays current while it is open. */
export class Live {
  columns = $state.raw<Column[]>([]);
  rows = $state.raw<Row[]>([]);
  state = $state<'idle' | 'loading' | 'live' | 'failed'>('idle');
  failure = $state.raw<Failure | undefined>();
  /** How many were not read; 0 where that is not known, as of lists by selectors. */
  remaining = $state(0);
  /** Whether there are more than were read. */
  unread = $state(false);

  #table: boolean;
  #wanted: number;
  #all = new Map<string, Row>();
  #gone = new Set<string>();
  #path = '';
  #next = '';
  #whole: boolean;
  #page: Promise<void> | undefined;
  #reading: AbortController | undefined;
  #flush = 0;
  #abort = new AbortController();
  #end: (() => void) | undefined;

  constructor({ table = false, whole = false }: Way) {
    this.#table = table;
    this.#whole = whole;
    this.#wanted = whole ? MOST : PAGE;
  }

  /** Whether there are more than a page that needs all of them is given. */
  get cut(): boolean {
    return this.#whole && this.unread && this.rows.length >= MOST;
  }

  get items(): KubeObject[] {
    return this.rows.map((row) => row.object);
  }

  open(path: string): () => void {
    untrack(() => {
      this.#reset(path);
      void this.#load();
    });
    return () => this.close();
  }

  close() {
    this.#abort.abort();
    this.#end?.();
    this.#end = undefined;
    cancelAnimationFrame(this.#flush);
    this.#flush = 0;
  }

  #reset(path: string) {
    if (path !== this.#path) {
      this.rows = [];
      this.columns = [];
      this.state = 'loading';
      this.#wanted = this.#whole ? MOST : PAGE;
    }
    this.#path = path;
    this.#all.clear();
    this.#gone.clear();
    this.#next = '';
    this.remaining = 0;
    this.unread = false;
    this.failure = undefined;
    this.#abort = new AbortController();
  }

  async #load() {
    const abort = this.#abort;
    try {
      const version = await this.#read();
      if (abort.signal.aborted) return;
      this.state = 'live';
      this.#end = stream.watch(this.#path, this.#table, version, {
        event: (type, object) => this.#event(type, object),
        expired: () => this.#reread(),
        failed: (failure) => this.#fail(failure),
      });
      await this.readOn();
    } catch (error) {
      if (!abort.signal.aborted) this.#fail(error);
    }
  }

  #fail(error: unknown) {
    this.failure = error instanceof Failure ? error : new Failure(0, '', String(error));
    this.state = 'failed';
    if (this.failure.code === 0 || this.failure.code >= 429) {
      const abort = this.#abort;
      setTimeout(() => abort.signal.aborted || this.#reread(), 3000);
    }
  }

  #reread() {
    this.close();
    this.#reset(this.#path);
    void this.#load();
  }

  /** Reads the next page, where there is one. */
  async more() {
    if (this.#next) await (this.#page ??= this.#one().finally(() => (this.#page = undefined)));
  }

  async #one() {
    const abort = this.#abort;
    try {
      await this.#read();
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error instanceof Failure && error.code === 410) this.#reread();
      else this.#fail(error);
    }
  }

  /** Reads pages until so many objects are there, or all. */
  async readOn(count = 0) {
    this.#wanted = Math.max(this.#wanted, count);
    const abort = this.#abort;
    if (this.#reading === abort) return;
    this.#reading = abort;
    while (this.#next && this.#all.size < this.#wanted && !abort.signal.aborted && this.state === 'live') await this.more();
    if (this.#reading === abort) this.#reading = undefined;
  }

  async #read(): Promise<string> {
    const token = this.#next ? `&continue=${encodeURIComponent(this.#next)}` : '';
    const path = `${this.#path}${separator(this.#path)}limit=${token ? PAGE : FIRST_PAGE}${token}`;
    const abort = this.#abort;
    const page = await get<Page>(path, abort.signal, this.#table ? TABLE : undefined);
    if (abort.signal.aborted) return '';
    if (page.columnDefinitions?.length) this.columns = page.columnDefinitions;
    const kind = page.kind?.replace(/List$/, '');
    for (const row of page.rows ?? page.items?.map((object) => ({ cells: [], object })) ?? []) {
      if (!this.#table) Object.assign(row.object, { apiVersion: page.apiVersion, kind });
      this.#take(row);
    }
    this.#next = page.metadata.continue ?? '';
    this.unread = this.#next !== '';
    this.remaining = this.unread ? (page.metadata.remainingItemCount ?? 0) : 0;
    this.#show();
    return page.metadata.resourceVersion ?? '';
  }

  #take({ cells, object }: TableRow) {
    const key = keyOf(object);
    const known = this.#all.get(key);
    // What a watch said is newer than what a later page of the older list has.
    if (this.#gone.has(key) || (known && newer(known.object, object) && known.object !== object)) return;
    this.#all.set(key, { key, cells, object });
  }

  #event(type: string, object: KubeObject & Page) {
    const rows: TableRow[] = object.rows ?? [{ cells: [], object }];
    if (object.columnDefinitions?.length && !this.columns.length) this.columns = object.columnDefinitions;
    for (const row of rows) {
      const key = keyOf(row.object);
      if (type === 'DELETED') {
        this.#gone.add(key);
        this.#all.delete(key);
      } else {
        this.#gone.delete(key);
        this.#all.set(key, { key, ...row });
      }
    }
    // Many events, one change of the page.
    this.#flush ||= requestAnimationFrame(() => this.#show());
  }

  #show() {
    this.#flush = 0;
    this.rows = [...this.#all.values()];
  }
}

/** A list for as long as the component is shown that asks for it; another path replaces it. */
export function useLive(path: () => string | undefined, way: Way = {}): Live {
  const live = new Live(way);
  $effect(() => {
    const wanted = path();
    if (wanted) return live.open(wanted);
  });
  return live;
}
