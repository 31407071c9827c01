/** What a pool of memory regions is made with, and how many regions a workload wants. */
import { checkKeys } from '../base/options.js';
import { checkWhole } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';

/** What happens to a pool: for logs and plots. */
export interface FmrPoolEvent {
  /**
   * `grown`, `shrunk`: regions were made, freed. `reclaimed`: users lent some of their own.
   * `exhausted`: fewer are free than the low-water mark, and no more can be made.
   */
  readonly kind: 'grown' | 'shrunk' | 'reclaimed' | 'exhausted';
  readonly count: number;
}

/** `ib_fmr_pool_params`. */
export interface FmrPoolParams {
  /** The longest memory of a region, in bytes. */
  readonly maxLength: number;
  /** Whose pool it is: a device has one pool per ULP. Default: `default`. */
  readonly ulp?: string;
  /** Regions at most, users' own included. Default: `regionsFor({})` and a tenth, twice over. */
  readonly mrsMax?: number;
  /** Shared regions that are made at once, and that are kept when nothing happens. Default 16. */
  readonly mrsMin?: number;
  /** More are made when fewer are free. Default: half of `mrsMin`. */
  readonly lowWater?: number;
  /** Regions created at a time. Default 32. */
  readonly growBlock?: number;
  /** Regions freed at a time. Default 8. */
  readonly shrinkBlock?: number;
  /** Buckets (L2), 4 to 8. Default 4. */
  readonly buckets?: number;
  /** Regions that a bucket keeps. Default 16. */
  readonly bucketMrs?: number;
  /** Idle time after which regions are returned and freed. Default 100,000. */
  readonly idleMicros?: number;
  /** How often the monitor looks, while there is something to do. Default 1000. */
  readonly monitorMicros?: number;
  /** Receives events. An exception is counted and does not propagate. */
  readonly onEvent?: (event: FmrPoolEvent) => void;
}

/** Parameters of a pool, all of them, as they were found to be right. */
export type CheckedParams = Required<Omit<FmrPoolParams, 'onEvent'>> &
  Pick<FmrPoolParams, 'onEvent'>;

/** What is to be served. */
export interface Workload {
  /** Bytes a second of the link. Default 1.25e9: 10 Gbit/s. */
  readonly linkBytesPerSecond?: number;
  /** How long the other side takes for a request. Default 1000: a busy SSD. */
  readonly responseMicros?: number;
  /** Bytes of a request. Default 65536. */
  readonly requestBytes?: number;
}

/**
 * Regions that keep a link busy, by Little's law: requests that arrive in a second, times how long
 * each stays. Nothing in it depends on the number of connections.
 */
export function regionsFor(workload: Workload): number {
  const { linkBytesPerSecond = 1.25e9, responseMicros = 1000, requestBytes = 65536 } = workload;
  for (const [name, value] of Object.entries({
    linkBytesPerSecond,
    responseMicros,
    requestBytes,
  })) {
    if (!(value > 0 && value < Infinity)) {
      throw new MisuseError(name, `must be a number above 0, got ${value}`);
    }
  }
  return Math.max(1, Math.ceil((linkBytesPerSecond / requestBytes) * (responseMicros / 1e6)));
}

/** Throws MisuseError. */
export function checkParams(params: FmrPoolParams): CheckedParams {
  const sizes = 'maxLength mrsMax mrsMin lowWater growBlock shrinkBlock buckets bucketMrs';
  checkKeys('createFmrPool', params, `${sizes} ulp idleMicros monitorMicros onEvent` as const);
  const {
    maxLength,
    ulp = 'default',
    mrsMax = Math.ceil(2.2 * regionsFor({})),
    mrsMin = Math.min(16, mrsMax),
    lowWater = Math.floor(mrsMin / 2),
    growBlock = 32,
    shrinkBlock = 8,
    buckets = 4,
    bucketMrs = 16,
    idleMicros = 100_000,
    monitorMicros = 1000,
    onEvent,
  } = params;
  checkWhole('maxLength', maxLength, 1, 2 ** 32 - 1);
  checkWhole('mrsMax', mrsMax, 1, 2 ** 24);
  checkWhole('mrsMin', mrsMin, 0, mrsMax);
  checkWhole('lowWater', lowWater, 0, mrsMax);
  checkWhole('growBlock', growBlock, 1, mrsMax > 2 ** 16 ? mrsMax : 2 ** 16);
  checkWhole('shrinkBlock', shrinkBlock, 1, 2 ** 16);
  checkWhole('buckets', buckets, 4, 8);
  checkWhole('bucketMrs', bucketMrs, 0, 2 ** 16);
  checkWhole('idleMicros', idleMicros, 0, 2 ** 40);
  checkWhole('monitorMicros', monitorMicros, 1, 2 ** 40);
  return {
    maxLength,
    ulp,
    mrsMax,
    mrsMin,
    lowWater,
    growBlock,
    shrinkBlock,
    buckets,
    bucketMrs,
    idleMicros,
    monitorMicros,
    ...(onEvent && { onEvent }),
  };
}
