/** Parameters of a pool, and the number of regions that a workload needs. */
import { checkKeys, checkObject } from '../base/options.js';
import { checkFunction, checkWhole, mustBe } from '../errors/check-whole.js';

/** Events of a pool, for logs and plots. */
export interface FmrPoolEvent {
  /**
   * `grown`, `shrunk`: regions were created, freed. `reclaimed`: users lent some of their own.
   * `exhausted`: fewer are free than the low-water mark, and no more can be created.
   */
  readonly kind: 'grown' | 'shrunk' | 'reclaimed' | 'exhausted';
  readonly count: number;
}

/** `ib_fmr_pool_params`. */
export interface FmrPoolParams {
  /** Longest memory that a region can register, in bytes. */
  readonly maxLength: number;
  /** Name of the ULP: a device has one pool for each. Default: `default`. */
  readonly ulp?: string;
  /** Limit of regions, users' own included. Default: 2.2 times `regionsFor({})`. */
  readonly mrsMax?: number;
  /** Shared regions created at first, and kept when the pool is idle. Default 16. */
  readonly mrsMin?: number;
  /** Low-water mark: with fewer free regions more are created. Default: half of `mrsMin`. */
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
  /**
   * Half-life of remembered demand: the pool keeps as many regions free as the largest recent burst
   * took. Default: twice `idleMicros`.
   */
  readonly demandMicros?: number;
  /** Interval of the monitor while it has work. Default 1000. */
  readonly monitorMicros?: number;
  /** Receives events. An exception is counted and does not propagate. */
  readonly onEvent?: (event: FmrPoolEvent) => void;
}

/** Checked parameters of a pool. */
export type CheckedParams = Required<Omit<FmrPoolParams, 'onEvent'>> &
  Pick<FmrPoolParams, 'onEvent'>;

/** Counters since the pool was created. */
export interface FmrPoolStats {
  /** All regions of all processes, users' own included. */
  readonly total: number;
  /** Regions in the global pool. */
  readonly free: number;
  /** Regions in the buckets. */
  readonly inBuckets: number;
  /** Of all processes, as the next two counters. */
  readonly users: number;
  readonly created: number;
  readonly freed: number;
  /** Lent by users of this process. */
  readonly reclaimed: number;
  /** Exceptions of callbacks. */
  readonly callbackErrors: number;
  /** Regions that the device could not create. */
  readonly refused: number;
  /** Free regions below which the monitor creates more: `lowWater`, or the largest recent burst. */
  readonly mark: number;
}

/** A workload. */
export interface Workload {
  /** Bytes a second of the link. Default 1.25e9: 10 Gbit/s. */
  readonly linkBytesPerSecond?: number;
  /** Time in which the other side serves a request. Default 1000: a busy SSD. */
  readonly responseMicros?: number;
  /** Bytes of a request. Default 65536. */
  readonly requestBytes?: number;
}

/** Throws MisuseError unless `value` is a number above 0, and finite. */
export function checkPositive(name: string, value: number): void {
  if (Number.isFinite(value) && value > 0) return;
  throw mustBe(name, 'a number above 0', value);
}

/**
 * Regions that keep a link busy, by Little's law: requests per second times the time of each. The
 * number of connections does not matter.
 */
export function regionsFor(workload: Workload): number {
  checkObject('regionsFor', workload, 'workload');
  const { linkBytesPerSecond = 1.25e9, responseMicros = 1000, requestBytes = 65536 } = workload;
  for (const [name, value] of Object.entries({
    linkBytesPerSecond,
    responseMicros,
    requestBytes,
  })) {
    checkPositive(name, value);
  }
  return Math.max(1, Math.ceil((linkBytesPerSecond / requestBytes) * (responseMicros / 1e6)));
}

/** Throws MisuseError. */
export function checkParams(params: FmrPoolParams): CheckedParams {
  const sizes = 'maxLength mrsMax mrsMin lowWater growBlock shrinkBlock buckets bucketMrs';
  checkKeys(
    'createFmrPool',
    params,
    `${sizes} ulp idleMicros demandMicros monitorMicros onEvent` as const,
  );
  for (const name of ['mrsMax', 'mrsMin', 'idleMicros'] as const) {
    // Defaults of others are computed from these.
    const value = params[name];
    if (value !== undefined) checkWhole(name, value, 0, 2 ** 40);
  }
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
    demandMicros = 2 * idleMicros,
    monitorMicros = 1000,
    onEvent,
  } = params;
  if (typeof ulp !== 'string') throw mustBe('ulp', 'text', ulp);
  checkWhole('maxLength', maxLength, 1, 2 ** 32 - 1);
  checkWhole('mrsMax', mrsMax, 1, 2 ** 24);
  checkWhole('mrsMin', mrsMin, 0, mrsMax);
  checkWhole('lowWater', lowWater, 0, mrsMax);
  checkWhole('growBlock', growBlock, 1, mrsMax > 2 ** 16 ? mrsMax : 2 ** 16);
  checkWhole('shrinkBlock', shrinkBlock, 1, 2 ** 16);
  checkWhole('buckets', buckets, 4, 8);
  checkWhole('bucketMrs', bucketMrs, 0, 2 ** 16);
  checkWhole('idleMicros', idleMicros, 0, 2 ** 40);
  checkWhole('demandMicros', demandMicros, 0, 2 ** 41);
  checkWhole('monitorMicros', monitorMicros, 1, 2 ** 40);
  checkFunction('onEvent', onEvent);
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
    demandMicros,
    monitorMicros,
    ...(onEvent && { onEvent }),
  };
}
