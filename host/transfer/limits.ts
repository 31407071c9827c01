/** Limits of a store of received files, wherever the files are. */
import { formatBytes } from '../base/format-bytes.js';
import { mustBe } from '../errors/check-whole.js';
import { RefusalError } from '../errors/errors.js';

/** Unfinished files; one goes when another one comes. */
const UNFINISHED_MAX = 64;
/** A file that nothing was written to for so long goes before those that may be resumed. */
const RESUMED_MILLIS = 24 * 3_600_000;
/** Unfinished files that nothing was written to for so long are removed. */
export const EXPIRE_MILLIS = 7 * 24 * 3_600_000;

/** Throws MisuseError for a limit that is no number from 0 on. */
export function checkStoreLimits(limits: {
  readonly quotaBytes?: number | undefined;
  readonly expireMillis?: number | undefined;
}): void {
  for (const name of ['quotaBytes', 'expireMillis'] as const) {
    const value: unknown = limits[name];
    if (value === undefined || (typeof value === 'number' && value >= 0)) continue;
    throw mustBe(name, 'a number from 0 on', value);
  }
}

export interface Unfinished {
  readonly name: string;
  /** When something was written to it last, in milliseconds. */
  readonly changedMillis: number;
  /** It grows with each piece that is kept. */
  readonly journalBytes: number;
}

/**
 * Those that nothing was written to for `expireMillis`. Beyond a limit the ones that rest for a day
 * go, the oldest one first, then those with the fewest pieces: a sender that begins many files does
 * not remove large ones of others.
 */
export function expiredOf(
  found: readonly Unfinished[],
  expireMillis: number,
  nowMillis: number,
): Unfinished[] {
  const bytesOf = ({ changedMillis, journalBytes }: Unfinished): number =>
    nowMillis - changedMillis > RESUMED_MILLIS ? -1 : journalBytes;
  const all = [...found].sort(
    (a, b) => bytesOf(a) - bytesOf(b) || a.changedMillis - b.changedMillis,
  );
  const beyond = all.length - UNFINISHED_MAX;
  return all.filter(
    ({ changedMillis }, index) => index < beyond || nowMillis - changedMillis > expireMillis,
  );
}

/** Milliseconds since 1970. */
export function systemMillis(): number {
  return performance.timeOrigin + performance.now();
}

/** Throws RefusalError ENOSPC where `size` bytes more than `used` exceed the quota. */
export function checkQuotaOf(
  { name, size }: { readonly name: string; readonly size: number },
  used: number,
  quotaBytes: number,
): void {
  if (used + size <= quotaBytes) return;
  throw new RefusalError(
    'ENOSPC',
    `${name} needs ${formatBytes(size)}, and ${formatBytes(used)} of the ` +
      `server's quota of ${formatBytes(quotaBytes)} are used; raise it (option quotaBytes; --quota)`,
  );
}
