// Addresses of pages: everything that is on screen is in the address, and the browser's back button works.

export const ROOT = '/console';

function read() {
  const path = location.pathname.startsWith(ROOT) ? location.pathname.slice(ROOT.length) : '/';
  const segments = path.split('/').filter(Boolean).map(decode);
  return { path: path || '/', segments, query: new URLSearchParams(location.search) };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

let here = $state.raw(read());
addEventListener('popstate', () => (here = read()));

export const route = {
  get path() {
    return here.path;
  },
  get segments() {
    return here.segments;
  },
  get query() {
    return here.query;
  },
};

/** The address of a page, of its segments and its query. */
export function href(segments: string[], query: Record<string, string | undefined> = {}): string {
  const wanted = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  const text = new URLSearchParams(wanted).toString();
  return `${ROOT}/${segments.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

export function go(to: string, replace = false) {
  if (to === location.pathname + location.search) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', to);
  here = read();
  if (!replace) scrollTo(0, 0);
}

/** Changes fields of the query, in place. */
export function setQuery(change: Record<string, string | undefined>) {
  const query = new URLSearchParams(here.query);
  for (const [name, value] of Object.entries(change)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ''), true);
}

/** Follows links of the console without loading the page again. */
export function follow(event: MouseEvent) {
  const link = (event.target as Element).closest?.('a');
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(`${ROOT}/`)) return;
  event.preventDefault();
  go(link.pathname + link.search);
}
