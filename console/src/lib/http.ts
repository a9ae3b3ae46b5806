// One exchange of HTTP over a connection of bytes: a port of a Pod that is forwarded. Pure.

const END = '\r\n\r\n';

/** A request that asks for an answer which ends with its connection. */
export function requestOf(method: string, path: string, port: number): string {
  // What is no character of a path is escaped: nothing that is typed adds a line.
  const target = encodeURI(path.startsWith('/') ? path : `/${path}`).replaceAll('%25', '%');
  return [`${method} ${target} HTTP/1.0`, `Host: localhost:${port}`, 'User-Agent: freehold-console', 'Accept: */*', 'Connection: close'].join('\r\n') + END;
}

export interface Answer {
  status: string;
  headers: [string, string][];
  body: Uint8Array;
}

const find = (bytes: Uint8Array, text: string, from = 0): number => {
  const wanted = new TextEncoder().encode(text);
  for (let at = from; at + wanted.length <= bytes.length; at++) {
    if (wanted.every((byte, index) => bytes[at + index] === byte)) return at;
  }
  return -1;
};

/** The pieces of a body that comes in chunks, joined; as far as they are there. */
function unchunked(body: Uint8Array): Uint8Array {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < body.length; ) {
    const line = find(body, '\r\n', at);
    const size = line < 0 ? 0 : Number.parseInt(new TextDecoder().decode(body.subarray(at, line)), 16);
    if (!size) break;
    pieces.push(body.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** What came, as an answer; nothing where it is no HTTP. */
export function answerOf(bytes: Uint8Array): Answer | undefined {
  const end = find(bytes, END);
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, end < 0 ? bytes.length : end));
  const [status = '', ...lines] = head.split('\r\n');
  if (!status.startsWith('HTTP/')) return;
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
  const body = end < 0 ? new Uint8Array() : bytes.subarray(end + END.length);
  const chunked = headers.some(([name, value]) => name.toLowerCase() === 'transfer-encoding' && /chunked/i.test(value));
  return { status, headers, body: chunked ? unchunked(body) : body };
}

/** A body as text; nothing where it is no text. */
export function textOf({ headers, body }: Answer): string | undefined {
  const type = headers.find(([name]) => name.toLowerCase() === 'content-type')?.[1] ?? '';
  if (/^(image|audio|video|font)\//.test(type)) return;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch {
    return;
  }
}
