// What a person types into a filter, as selectors of labels and fields. Pure.

const FIELD = /^(metadata|status|spec|involvedObject|type|reason)(\.|$)/;
const REQUIREMENT = /^(!?[A-Za-z0-9][\w./-]*)(?:(!=|==|=)([\w./:-]*)| +(in|notin) *(\([^)]*\)))?$/;

/** The requirements of a selector; commas within parentheses part nothing. */
export const parts = (selector: string): string[] => (selector.match(/(?:\([^)]*\)|[^,(])+/g) ?? []).map((one) => one.trim()).filter(Boolean);

export const joined = (all: string[]): string => [...new Set(all)].join(',');

export interface Selectors {
  labels: string[];
  fields: string[];
}

/** The selectors that a text is; nothing where it is a text to look for. */
export function selectorsOf(text: string): Selectors | undefined {
  const found: Selectors = { labels: [], fields: [] };
  for (const part of parts(text)) {
    const match = REQUIREMENT.exec(part);
    if (!match) return;
    const [, key = '', operator] = match;
    if (FIELD.test(key) && operator) found.fields.push(part);
    else if (operator || match[4] || key.includes('/') || key.startsWith('!')) found.labels.push(part);
    else return;
  }
  return found.labels.length + found.fields.length ? found : undefined;
}
