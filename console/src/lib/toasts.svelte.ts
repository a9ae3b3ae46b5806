// Short messages about what was done.

let all = $state.raw<{ id: number; text: string; bad: boolean }[]>([]);
let next = 0;

export const toasts = {
  get all() {
    return all;
  },
};

export function toast(text: string, bad = false) {
  const id = next++;
  all = [...all.slice(-3), { id, text, bad }];
  setTimeout(() => (all = all.filter((toast) => toast.id !== id)), bad ? 10_000 : 4000);
}

/** Does something, and says so if it fails. */
export async function attempt(work: () => Promise<unknown>, done?: string): Promise<boolean> {
  try {
    await work();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), true);
    return false;
  }
}
