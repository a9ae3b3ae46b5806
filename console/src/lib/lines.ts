// Pieces of a text as lines. Pure.

/** Characters of a line; what is longer becomes several. */
const LONGEST = 16_384;

/** Takes pieces and gives the lines that are complete; a line without an end is given once it is long. */
export function splitter(): { take(piece: string): string[]; rest(): string[] } {
  let rest = '';
  return {
    take(piece) {
      const found = (rest + piece).split('\n');
      rest = found.pop() ?? '';
      while (rest.length > LONGEST) {
        found.push(rest.slice(0, LONGEST));
        rest = rest.slice(LONGEST);
      }
      return found;
    },
    rest: () => (rest ? [rest] : []),
  };
}
