// One stream for all watches of this page. A watch goes on from the last version that it saw, so a stream that breaks loses
// nothing: the next one begins where it was.

import { t } from '../i18n/index.svelte';
import { Failure, json, send, type KubeObject } from './api';

export interface WatchHandlers {
  event(type: string, object: KubeObject): void;
  /** The version is too old: read the list again. */
  expired(): void;
  failed(failure: Failure): void;
}

export interface TerminalHandlers {
  output(data: Uint8Array): void;
  /** What ran has ended, was refused or lost its connection, with the failure where there is one. */
  ended(failure?: Failure): void;
}

/** What runs in a container, from here. */
export interface Terminal {
  type(text: string): void;
  resize(width: number, height: number): void;
  close(): void;
}

interface Watch extends WatchHandlers {
  name: string;
  path: string;
  table: boolean;
  version: string;
  pause: number;
  timer?: ReturnType<typeof setTimeout>;
}

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 10_000;

class Stream {
  /** Whether events arrive. */
  state = $state<'idle' | 'connecting' | 'live' | 'broken'>('idle');
  #watches = new Map<string, Watch>();
  #terminals = new Map<string, TerminalHandlers>();
  #name: string | undefined;
  #abort: AbortController | undefined;
  #pause = FIRST_PAUSE;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #next = 0;

  constructor() {
    // A network that is back need not wait for the next attempt.
    addEventListener('online', () => this.#again(0));
  }

  watch(path: string, table: boolean, version: string, handlers: WatchHandlers): () => void {
    const name = `w${this.#next++}`;
    const watch: Watch = { ...handlers, name, path, table, version, pause: FIRST_PAUSE };
    this.#watches.set(name, watch);
    if (this.#name) void this.#begin(watch);
    else if (this.state === 'idle') void this.#connect();
    return () => {
      clearTimeout(watch.timer);
      this.#watches.delete(name);
      if (this.#name) json('DELETE', `/watch/${this.#name}/${name}`).catch(() => undefined);
    };
  }

  /** Opens a terminal, or a port of a Pod, in this stream, with which it ends. */
  terminal(wanted: { path: string; container?: string; command?: string[]; port?: number }, handlers: TerminalHandlers): Terminal {
    const [at, name] = [this.#name, `t${this.#next++}`];
    const path = `/exec/${at}/${name}`;
    const failed = (error: unknown) => this.#terminalEnded(name, error as Failure);
    this.#terminals.set(name, handlers);
    // What is typed while a request is under way goes with the next one, so that nothing overtakes.
    let [waiting, size] = ['', undefined as object | undefined];
    let busy = true;
    const flush = async () => {
      if (busy) return;
      busy = true;
      while (this.#terminals.has(name) && (size || waiting)) {
        const input = size ?? { text: waiting };
        if (size) size = undefined;
        else waiting = '';
        await json('POST', path, input);
      }
      busy = false;
    };
    const begin = at ? json('PUT', path, wanted) : Promise.reject(new Failure(0, 'Unreachable', t('noConnection')));
    begin
      .then(() => {
        busy = false;
        return flush();
      })
      .catch(failed);
    return {
      type: (text) => {
        waiting += text;
        flush().catch(failed);
      },
      resize: (width, height) => {
        size = { width, height };
        flush().catch(failed);
      },
      close: () => {
        if (this.#terminals.delete(name)) json('DELETE', path).catch(() => undefined);
      },
    };
  }

  #terminalEnded(name: string, failure?: Failure) {
    const terminal = this.#terminals.get(name);
    this.#terminals.delete(name);
    terminal?.ended(failure);
  }

  #lost() {
    this.#name = undefined;
    for (const name of [...this.#terminals.keys()]) this.#terminalEnded(name, new Failure(0, 'Unreachable', t('connectionBroke')));
  }

  /** Ends the stream, and forgets all watches. */
  close() {
    clearTimeout(this.#retry);
    this.#watches.clear();
    this.#abort?.abort();
    this.#lost();
    this.state = 'idle';
  }

  async #connect() {
    this.state = this.state === 'broken' ? 'broken' : 'connecting';
    const abort = (this.#abort = new AbortController());
    try {
      const answer = await send('GET', '/watch', { signal: abort.signal, cache: 'no-store' });
      if (answer.body) await this.#read(answer.body);
    } catch (error) {
      if (error instanceof Failure && error.code === 401) return this.close();
    }
    if (abort.signal.aborted) return;
    this.#lost();
    this.state = 'broken';
    this.#again(this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #again(pause: number) {
    if (this.state !== 'broken') return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#connect(), pause);
  }

  async #read(body: ReadableStream<Uint8Array>) {
    const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
    let rest = '';
    for (;;) {
      // Two signs of life are missed: the connection is gone, whatever the browser says.
      const { value, done } = await within(reader.read(), 40_000);
      if (done) return;
      rest += value;
      const frames = rest.split('\n\n');
      rest = frames.pop() ?? '';
      for (const frame of frames) this.#frame(frame);
    }
  }

  #frame(frame: string) {
    const [first, second] = frame.split('\n');
    if (!first?.startsWith('event: ') || !second?.startsWith('data: ')) return;
    const data = JSON.parse(second.slice(6));
    switch (first.slice(7)) {
      case 'stream':
        this.#name = data.stream;
        this.state = 'live';
        this.#pause = FIRST_PAUSE;
        for (const watch of this.#watches.values()) void this.#begin(watch);
        break;
      case 'change':
        this.#change(data.watch, data.event);
        break;
      case 'output':
        this.#terminals.get(data.watch)?.output(Uint8Array.from(atob(data.data), (c) => c.charCodeAt(0)));
        break;
      case 'end':
        if (this.#terminals.has(data.watch)) this.#terminalEnded(data.watch, data.status && new Failure(data.status.code, data.status.reason, data.status.message));
        else this.#ended(data.watch, data.status);
    }
  }

  #change(name: string, event: { type: string; object: KubeObject & { rows?: { object: KubeObject }[] } }) {
    const watch = this.#watches.get(name);
    if (!watch) return;
    if (event.type === 'ERROR') return this.#ended(name, event.object as unknown as Failure);
    const version = event.object.metadata?.resourceVersion || event.object.rows?.[0]?.object.metadata.resourceVersion;
    if (version) watch.version = version;
    watch.pause = FIRST_PAUSE;
    if (event.type !== 'BOOKMARK') watch.event(event.type, event.object);
  }

  #ended(name: string, status: Pick<Failure, 'code' | 'reason' | 'message'> | null) {
    const watch = this.#watches.get(name);
    if (!watch) return;
    if (status?.code === 410) return watch.expired();
    if (status && [400, 403, 404, 405].includes(status.code)) {
      return watch.failed(new Failure(status.code, status.reason, status.message));
    }
    watch.timer = setTimeout(() => void this.#begin(watch), status ? watch.pause : 0);
    watch.pause = Math.min(watch.pause * 2, LONGEST_PAUSE);
  }

  async #begin(watch: Watch) {
    const stream = this.#name;
    if (!stream || !this.#watches.has(watch.name)) return;
    const { path, table, version: resourceVersion } = watch;
    try {
      await json('PUT', `/watch/${stream}/${watch.name}`, { path, table, resourceVersion });
    } catch (error) {
      // With another stream it is begun again.
      if (stream === this.#name && error instanceof Failure && error.code !== 404) this.#ended(watch.name, error);
    }
  }
}

function within<T>(work: Promise<T>, time: number): Promise<T> {
  let timer: ReturnType<typeof setTimeout>;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('silent')), time);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

export const stream = new Stream();
