// Lists that stay as the server has them: read page by page, then watched from the version that was read. Components that want
// one list share it. A list that no page shows any more stays current for a while: a page that is opened again is there at once.

import { untrack } from 'svelte';
import { Failure, TABLE, get, type Column, type KubeObject, type TableRow } from './api';
import { stream } from './stream.svelte';

const PAGE = 500;
/** Objects of the first page: what a screen shows, so that it is there soon. */
const FIRST_PAGE = 100;
/** Objects that are read of a list which a page needs as a whole, or looks through for a text. */
export const MOST = 10_000;
/** For how long a list stays current that no page shows, how many of them do, and how many rows such a list has at most. */
const LINGER = 60_000;
const LINGERING = 8;
const LARGEST = 1000;

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

/** A list as a component has it. */
export interface Live {
  readonly columns: Column[];
  readonly rows: Row[];
  readonly items: KubeObject[];
  readonly state: 'idle' | 'loading' | 'live' | 'failed';
  readonly failure: Failure | undefined;
  /** How many were not read; 0 where that is not known, as of lists by selectors. */
  readonly remaining: number;
  /** Whether there are more than were read. */
  readonly unread: boolean;
  /** Whether there are more than a page that needs all of them is given. */
  readonly cut: boolean;
  /** Reads the next page, where there is one. */
  more(): Promise<void>;
  /** Reads pages until so many objects are there, or all. */
  readOn(count?: number): Promise<void>;
}

/** A list that stays current until it is closed. */
class List implements Live {
  columns = $state.raw<Column[]>([]);
  rows = $state.raw<Row[]>([]);
  state = $state<'loading' | 'live' | 'failed'>('loading');
  failure = $state.raw<Failure | undefined>();
  remaining = $state(0);
  unread = $state(false);

  readonly #path: string;
  readonly #table: boolean;
  readonly #whole: boolean;
  #wanted: number;
  #all = new Map<string, Row>();
  #gone = new Set<string>();
  #next = '';
  /** Whether no page shows it. */
  #rests = false;
  #page: Promise<void> | undefined;
  #reading: AbortController | undefined;
  #flush = 0;
  #abort = new AbortController();
  #end: (() => void) | undefined;

  constructor(path: string, { table = false, whole = false }: Way) {
    this.#path = path;
    this.#table = table;
    this.#whole = whole;
    this.#wanted = whole ? MOST : PAGE;
    void this.#load();
  }

  get cut(): boolean {
    return this.#whole && this.unread && this.rows.length >= MOST;
  }

  get items(): KubeObject[] {
    return this.rows.map((row) => row.object);
  }

  close() {
    this.#abort.abort();
    this.#end?.();
    this.#end = undefined;
    cancelAnimationFrame(this.#flush);
    this.#flush = 0;
  }

  /** Reads no further while no page shows it, unless it is opened again. */
  rest(rests: boolean) {
    this.#rests = rests;
    this.#wanted = this.#whole ? MOST : PAGE;
    if (!rests) void this.readOn();
  }

  #reset() {
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
      setTimeout(() => abort.signal.aborted || this.#rests || this.#reread(), 3000);
    }
  }

  #reread() {
    this.close();
    this.#reset();
    void this.#load();
  }

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

  async readOn(count = 0) {
    this.#wanted = Math.max(this.#wanted, count);
    const abort = this.#abort;
    if (this.#reading === abort) return;
    this.#reading = abort;
    const wants = () => this.#next && this.#all.size < this.#wanted && !this.#rests;
    while (wants() && !abort.signal.aborted && this.state === 'live') await this.more();
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

/** A list and how many components show it. */
interface Shared {
  list: List;
  users: number;
  timer?: ReturnType<typeof setTimeout>;
}

const shared = new Map<string, Shared>();

function drop(key: string) {
  const found = shared.get(key);
  shared.delete(key);
  clearTimeout(found?.timer);
  found?.list.close();
}

/** Drops all lists: they are of somebody who has signed out. */
export function forgetLists() {
  [...shared.keys()].forEach(drop);
}

/** Takes a list, of those that there are or a new one. */
function take(key: string, path: string, way: Way): Shared {
  const found = shared.get(key);
  clearTimeout(found?.timer);
  // What nobody looked at while it failed is read anew.
  if (found && !found.users && found.list.state !== 'live') drop(key);
  const one = shared.get(key) ?? { list: new List(path, way), users: 0 };
  // The one that was taken last is the last of the map.
  shared.delete(key);
  shared.set(key, one);
  if (!one.users++) one.list.rest(false);
  return one;
}

/** Gives a list back, which stays current for a while. */
function leave(key: string, one: Shared) {
  if (--one.users) return;
  const { list } = one;
  if (shared.get(key) !== one) return list.close();
  if (list.state !== 'live' || list.rows.length > LARGEST) return drop(key);
  list.rest(true);
  one.timer = setTimeout(() => drop(key), LINGER);
  const lingering = [...shared].filter(([, { users }]) => !users);
  for (const [oldest] of lingering.slice(0, -LINGERING)) drop(oldest);
}

/** A list for as long as the component is shown that asks for it; another path replaces it. */
export function useLive(path: () => string | undefined, way: Way = {}): Live {
  let list = $state.raw<List | undefined>();
  $effect(() => {
    const wanted = path();
    if (!wanted) return;
    const key = JSON.stringify([wanted, !!way.table, !!way.whole]);
    const one = untrack(() => take(key, wanted, way));
    list = one.list;
    return () => untrack(() => leave(key, one));
  });
  const none: KubeObject[] = [];
  return {
    get columns() {
      return list?.columns ?? [];
    },
    get rows() {
      return list?.rows ?? [];
    },
    get items() {
      return list?.items ?? none;
    },
    get state() {
      return list?.state ?? 'idle';
    },
    get failure() {
      return list?.failure;
    },
    get remaining() {
      return list?.remaining ?? 0;
    },
    get unread() {
      return list?.unread ?? false;
    },
    get cut() {
      return list?.cut ?? false;
    },
    more: async () => list?.more(),
    readOn: async (count) => list?.readOn(count),
  };
}
