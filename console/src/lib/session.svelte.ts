// Who is signed in, and which parts of the API they reach.

import { Failure, get, json, pathOf, types, whenSignedOut, type Session } from './api';
import { forgetLists } from './live.svelte';
import { go, href } from './router.svelte';
import { stream } from './stream.svelte';

let session = $state.raw<Session | undefined>();
let known = $state(false);
let platform = $state(false);
let ended = $state(false);

export const me = {
  get session() {
    return session;
  },
  /** Whether it is known who is signed in. */
  get known() {
    return known;
  },
  /** Whether a session ended without being asked to: the person signs in again, and goes on where they were. */
  get ended() {
    return ended;
  },
  /** Whether the user reads all organizations and projects, and not only their own. */
  get platform() {
    return platform;
  },
  /** The path of the API below which the user's organizations and projects are. */
  get home() {
    return platform || !session ? '' : `/users/${encodeURIComponent(session.user)}`;
  },
};

async function enter(found: Session) {
  try {
    await get(`${pathOf('', types.project)}?limit=1`);
    platform = true;
  } catch (error) {
    if (!(error instanceof Failure) || error.code !== 403) throw error;
    platform = false;
  }
  session = found;
  ended = false;
}

export async function load() {
  whenSignedOut(() => {
    ended ||= session !== undefined;
    forget();
  });
  try {
    await enter(await json<Session>('GET', '/session'));
  } catch (error) {
    session = undefined;
    if (!(error instanceof Failure && error.code === 401)) console.warn(error);
  }
  known = true;
}

export async function signIn(way: 'link' | 'token', body: unknown, landing: string) {
  await enter(await json<Session>('POST', `/login/${way}`, body));
  go(landing, true);
}

function forget() {
  if (!session) return;
  session = undefined;
  forgetLists();
  stream.close();
}

export async function signOut(everywhere: boolean) {
  const query = everywhere ? '?everywhere=true' : '';
  const { location: away } = await json<{ location: string | null }>('DELETE', `/session${query}`);
  forget();
  if (away) location.assign(away);
  else go(href(['login']), true);
}
