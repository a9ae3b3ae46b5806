// The first lines of a list that is no virtual table: each line asks the API what may be done with it.

const STEP = 100;

export interface Part<T> {
  readonly items: T[];
  /** How many are not shown. */
  readonly left: number;
  more(): void;
}

/** A hundred of a list, and more of them as they are asked for. */
export function usePart<T>(all: () => T[]): Part<T> {
  let count = $state(STEP);
  return {
    get items() {
      return all().slice(0, count);
    },
    get left() {
      return Math.max(0, all().length - count);
    },
    more: () => (count += STEP),
  };
}
