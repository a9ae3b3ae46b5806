// Commands of kubectl for what is on screen.

/** A word of a command, quoted where a shell would read it otherwise. */
export const word = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** `kubectl` with the server of a plane or context. Each word is quoted: a page's address, which anybody can write, ends up here. */
export const kubectl = (server: string, base: string, ...words: string[]): string =>
  ['kubectl', ...(base ? ['--server', server + base] : []), ...words].map(word).join(' ');

/** The words of a command line, with quotes as a shell reads them. */
export const words = (line: string): string[] =>
  (line.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []).map((one) => one.replace(/'([^']*)'|"([^"]*)"/g, (_, single, double) => single ?? double ?? ''));
