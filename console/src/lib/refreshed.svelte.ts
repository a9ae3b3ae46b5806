// Documents that are no objects, so that nothing tells of their changes: they are read while a page shows them.

import { Failure } from './api';

const PAUSE = 5000;

export interface Refreshed<T> {
  readonly value: T | undefined;
  readonly failure: string;
}

/** Reads something now and every five seconds, as long as the component is shown and its page is in front. */
export function useRefreshed<T>(read: (signal: AbortSignal) => Promise<T>): Refreshed<T> {
  let value = $state.raw<T | undefined>();
  let failure = $state('');
  $effect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const load = async () => {
      let refused = false;
      try {
        if (!document.hidden) value = await read(abort.signal);
        failure = '';
      } catch (error) {
        if (abort.signal.aborted) return;
        failure = error instanceof Error ? error.message : String(error);
        refused = error instanceof Failure && (error.code === 403 || error.code === 404);
      }
      // What the user may not read is not asked for again and again.
      if (!abort.signal.aborted && !refused) timer = setTimeout(load, PAUSE);
    };
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  });
  return {
    get value() {
      return value;
    },
    get failure() {
      return failure;
    },
  };
}
