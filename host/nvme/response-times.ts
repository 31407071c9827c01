/**
 * How long media take (seed 002 names four of them): models for a target's `delayMicros`, so that a
 * load meets a disk where there is memory. The same seed gives the same times.
 */
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import type { StoreRequest } from './store.js';

/** Model of a medium. */
export type NvmeMedium = 'ram' | 'ssd' | 'disk' | 'hybrid';

interface Medium {
  /** Microseconds until the first byte: at least, and on top of that on average. */
  readonly base: number;
  readonly spread: number;
  readonly microsPerMebibyte: number;
}

/** Flash reads in 80 us; a disk turns 120 times a second, and its head travels as long. */
const MEDIA: Readonly<Record<'ram' | 'ssd' | 'disk', Medium>> = {
  ram: { base: 0, spread: 0, microsPerMebibyte: 0 },
  ssd: { base: 80, spread: 40, microsPerMebibyte: 400 },
  disk: { base: 3000, spread: 5000, microsPerMebibyte: 6000 },
};
/** Of a hybrid: what finds itself in flash. */
const HYBRID_HITS = 0.8;

/** Throws MisuseError for an unknown medium. */
export function nvmeResponseTimes(medium: NvmeMedium, seed = 1): (request: StoreRequest) => number {
  if (medium !== 'hybrid' && !Object.hasOwn(MEDIA, medium)) {
    throw new MisuseError('medium', `must be ram, ssd, disk or hybrid, got ${shown(medium)}`);
  }
  let state = Math.imul(seed, 0x9e3779b9) | 1;
  const chance = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  return ({ length }) => {
    const kind = medium === 'hybrid' ? (chance() < HYBRID_HITS ? 'ssd' : 'disk') : medium;
    const { base, spread, microsPerMebibyte } = MEDIA[kind];
    // Most are near the base, few are far.
    const late = spread * -Math.log(1 - chance());
    return base + late + (length / 2 ** 20) * microsPerMebibyte;
  };
}
