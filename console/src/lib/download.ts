// Files that the browser saves. What is in them goes into no address and no history.

import { send } from './api';

/** Saves bytes as a file. */
export function save(blob: Blob, name: string) {
  const link = document.createElement('a');
  const url = URL.createObjectURL(blob);
  link.href = url;
  link.download = name;
  link.click();
  // The browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Saves an answer of the API as a file; tells how many bytes have come. */
export async function saveAnswer(path: string, name: string, progress: (bytes: number) => void) {
  const answer = await send('GET', `/k8s${path}`, { headers: { Accept: '*/*' } });
  let bytes = 0;
  const counted = answer.body?.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(piece, controller) {
        bytes += piece.byteLength;
        progress(bytes);
        controller.enqueue(piece);
      },
    }),
  );
  save(await new Response(counted).blob(), name);
}
