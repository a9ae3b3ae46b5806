// What the server's documents below /debug say, and when something of it is due. Pure.

export interface Certificate {
  use: string;
  name: string;
  authority: boolean;
  notBefore?: string;
  notAfter?: string;
}

export interface ServerDocument {
  host: string;
  process: number;
  processors: number;
  version: string;
  store: string;
  startTime: string;
  certificates: Certificate[];
  cache: { planes: number; bytes: number; budgetBytes: number; censusBytes: number; loads: number; evictions: number };
}

export interface ResidentPlanes {
  planes: number;
  items: { plane: string; project?: string | null; bytes: number; idleSeconds: number; inUse: boolean }[];
}

export interface SlowRequests {
  thresholdMilliseconds: number;
  items: {
    time: string;
    milliseconds: number;
    verb: string;
    path: string;
    code: number;
    user: string;
    userAgent: string;
    auditID: string;
    plane?: string | null;
    project?: string | null;
  }[];
}

const DAY = 86_400_000;
/** Days before its end in which a certificate is complained of: doctor's number. */
const SOON = 14;

/** How many days a certificate is valid yet, and how bad that is. */
export function validity({ notAfter }: Certificate, now: number): { days: number; tone: 'good' | 'warn' | 'bad' } {
  const days = Math.floor((Date.parse(notAfter ?? '') - now) / DAY);
  return { days, tone: !(days >= 0) ? 'bad' : days <= SOON ? 'warn' : 'good' };
}

/** Whether whoever holds a Lease has renewed it in time. */
export function isHeld(spec: { renewTime?: string; leaseDurationSeconds?: number } | undefined, now: number): boolean {
  const age = (now - Date.parse(spec?.renewTime ?? '')) / 1000;
  return age <= 2 * (spec?.leaseDurationSeconds ?? 15);
}
