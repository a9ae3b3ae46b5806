// What the user may do. The API answers (SelfSubjectAccessReview); what it refuses is shown as such, with its reason.

import { post } from './api';

export interface Ask {
  /** The path of the plane or context that the action is in. */
  base: string;
  verb: string;
  /** A path that is no resource's, in place of what follows. */
  path?: string;
  group?: string;
  resource?: string;
  subresource?: string;
  namespace?: string;
  name?: string;
}

export interface Verdict {
  allowed: boolean;
  reason: string;
}

const LIFE = 30_000;
const MOST = 500;
const answers = new Map<string, { at: number; verdict: Promise<Verdict> }>();

async function decide(ask: Ask): Promise<Verdict> {
  // Whoever may do something to all objects of a type may do it to this one: a list of many asks once.
  if (ask.name && (await may({ ...ask, name: undefined })).allowed) return { allowed: true, reason: '' };
  return review(ask);
}

async function review({ base, path, ...attributes }: Ask): Promise<Verdict> {
  const body = {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: path ? { nonResourceAttributes: { path, verb: attributes.verb } } : { resourceAttributes: attributes },
  };
  const answer = await post<{ status: { allowed: boolean; reason?: string } }>(
    `${base}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`,
    body,
  );
  return { allowed: answer.status.allowed, reason: answer.status.reason ?? '' };
}

/** Whether something is allowed. Answers count for half a minute. */
export function may(ask: Ask): Promise<Verdict> {
  const key = JSON.stringify(ask);
  const found = answers.get(key);
  if (found && Date.now() - found.at < LIFE) return found.verdict;
  const verdict = decide(ask);
  // What could not be answered is asked again.
  verdict.catch(() => answers.delete(key));
  if (answers.size >= MOST) answers.clear();
  answers.set(key, { at: Date.now(), verdict });
  return verdict;
}

/** Whether all of something is allowed; of several refusals the first. */
async function mayAll(asks: Ask[]): Promise<Verdict> {
  const verdicts = await Promise.all(asks.map(may));
  return verdicts.find((one) => !one.allowed) ?? { allowed: true, reason: '' };
}

/** Whether something is allowed, for as long as the component is shown. Until it is known, it is not. */
export function useMay(ask: () => Ask | Ask[] | undefined): { readonly verdict: Verdict | undefined } {
  let verdict = $state.raw<Verdict | undefined>();
  $effect(() => {
    const wanted = ask();
    let current = true;
    verdict = undefined;
    if (wanted) {
      mayAll([wanted].flat()).then(
        (found) => current && (verdict = found),
        (error) => current && (verdict = { allowed: false, reason: String(error.message ?? error) }),
      );
    }
    return () => (current = false);
  });
  return {
    get verdict() {
      return verdict;
    },
  };
}
