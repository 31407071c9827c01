/** `nvme connect -t rdma` and `nvme discover -t rdma`, for programs. */
import { checkMember } from '../errors/check-member.js';
import { checkFunction, mustBe, shown } from '../errors/check-whole.js';
import { checkKeys, checkObject } from '../base/options.js';
import { checkLimits } from '../base/wait-limits.js';
import { copyAuth, type AuthOptions } from '../cm/auth-option.js';
import { openTowards } from '../cm/connection-device.js';
import { lookUp } from '../cm/address-info.js';
import { MisuseError } from '../errors/errors.js';
import { createFmrPool, fmrPools } from '../pool/create-fmr-pool.js';
import type { FmrPool } from '../pool/fmr-pool.js';
import { checkPositive, type FmrPoolParams } from '../pool/params.js';
import type { Context } from '../verbs/context.js';
import type { UdpOpenOptions } from '../verbs/open-device.js';
import { Completions } from './completions.js';
import { DISCOVERY_NQN, NVME_RDMA_PORT } from './constants.js';
import { checkHostDhchap, type NvmeHostDhchap } from './dhchap-options.js';
import { Association } from './host-association.js';
import { namesOf } from './identity.js';
import { NvmeVolume, type NvmeVolumeEvent } from './volume.js';

/** Identity and settings of a host. */
export interface NvmeHostOptions {
  /** Default: a device is opened for this, and closed with it. */
  readonly context?: Context;
  /** How that device is opened; its address is found. */
  readonly device?: UdpOpenOptions;
  /** The UDP port of the device there. Default 4791. */
  readonly udpPort?: number;
  /** Name of this host. Default `nqn.2026-01.dev.verbena:host`. */
  readonly hostNqn?: string;
  /** 16 bytes. Default: made from `hostNqn`. */
  readonly hostId?: Uint8Array;
  /** As in `connect`: until a packet is sent again, 4.096 us * 2^it. Default: the link's, 17. */
  readonly ackTimeout?: number;
  /**
   * Authenticates the connections of all queues with a pre-shared key, and their packets: required
   * then, without a fallback. For targets of our own kind (`NvmeTargetOptions.auth`): Linux's has
   * no such connections. Default: none.
   */
  readonly auth?: AuthOptions;
  /** As in `connect`: how patient the connection manager is. */
  readonly cmResponseTimeout?: number;
  readonly maxCmRetries?: number;
  /** Ends the attempt, which rejects with its reason. No effect afterwards. */
  readonly signal?: AbortSignal;
}

/** How a volume is connected: which subsystem, from which device, with which pool. */
export interface ConnectNvmeOptions extends NvmeHostOptions {
  /** The subsystem. */
  readonly nqn: string;
  /** Authenticates each queue by DH-HMAC-CHAP. Default: a target that asks for it is refused. */
  readonly dhchap?: NvmeHostDhchap;
  /** Default: the first that there is. */
  readonly nsid?: number;
  /** Commands under way at most, 1 to 1023. Default 32. */
  readonly queueDepth?: number;
  /** Where regions come from. Default: the device's pool of the ULP `nvme`, made when missing. */
  readonly pool?: FmrPool;
  /** How that is made. */
  readonly poolParams?: Partial<FmrPoolParams>;
  /** Regions that are always the volume's own (L1). Default: the smaller of 8 and the depth. */
  readonly numMr?: number;
  /** The volume's share of regions that are scarce, against others'. Default 1. */
  readonly weight?: number;
  /** Of its own regions, how many the pool may have while it is short of them. Default 0. */
  readonly lendMrs?: number;
  /** Silence after which target and host end the controller. Default 5000; 0: no limit. */
  readonly keepAliveMillis?: number;
  /** A command that takes longer means that the target is gone. Default 30,000. */
  readonly ioTimeoutMillis?: number;
  /**
   * How long the volume tries to reconnect to a target that went away (`ctrl_loss_tmo` of Linux);
   * commands wait meanwhile. Then they fail. Default 600,000, as in Linux; 0: no reconnect.
   */
  readonly ctrlLossMillis?: number;
  /** Between two attempts. Default 1000. */
  readonly reconnectDelayMillis?: number;
  /** Exceptions of the callback are ignored. */
  readonly onEvent?: (event: NvmeVolumeEvent) => void;
}

/** A subsystem that a discovery service knows. */
export interface NvmeDiscovered {
  readonly nqn: string;
  readonly address: string;
  readonly port: number;
}

const HOST_NQN = 'nqn.2026-01.dev.verbena:host';
/** The largest transfer of most controllers. */
const HOST_OPTIONS =
  'context device udpPort hostNqn hostId auth ackTimeout cmResponseTimeout maxCmRetries signal';
const TIMES = 'keepAliveMillis ioTimeoutMillis ctrlLossMillis reconnectDelayMillis';
const OWN_OPTIONS =
  `nqn nsid dhchap queueDepth pool poolParams numMr weight lendMrs onEvent ${TIMES}` as const;
const MAX_LENGTH = 128 * 1024;
const CTRL_LOSS_MILLIS = 600_000;
/** `mrsMax` of the default pool. */
const POOL_MRS_MAX = 1024;
const OWN_MRS = 8;

/**
 * Connects a namespace of the target at `host` or `host:port` (4420 otherwise). Rejects with
 * MisuseError; RefusalError ECONNREFUSED, ETIMEDOUT, ENOENT (no such host, no such namespace),
 * EAGAIN (the resolver does not answer now), ENOMEM, EPROTO, EACCES (`auth`, `dhchap`); NvmeError
 * (ENOENT: no such subsystem; EACCES: this host is not allowed); the reason of `signal`.
 */
export async function connectNvme(
  target: string,
  options: ConnectNvmeOptions,
): Promise<NvmeVolume> {
  checkKeys('connectNvme', options, `${OWN_OPTIONS} ${HOST_OPTIONS}` as const);
  const { nqn, nsid, queueDepth = 32, keepAliveMillis = 5000, ioTimeoutMillis = 30_000 } = options;
  const { ctrlLossMillis = CTRL_LOSS_MILLIS, reconnectDelayMillis = 1000 } = options;
  const { numMr = Math.min(OWN_MRS, queueDepth), weight = 1, lendMrs = 0 } = options;
  if (typeof nqn !== 'string' || !nqn.startsWith('nqn.')) {
    throw new MisuseError('nqn', `must name a subsystem, got ${shown(nqn)}`);
  }
  const ranges: readonly [string, number, number, number][] = [
    ['queueDepth', queueDepth, 1, 1023],
    ['numMr', numMr, 1, 65536],
    ['lendMrs', lendMrs, 0, numMr],
    ['keepAliveMillis', keepAliveMillis, 0, 2 ** 32 - 1],
    ['ioTimeoutMillis', ioTimeoutMillis, 1, 2 ** 31],
    ['ctrlLossMillis', ctrlLossMillis, 0, Infinity],
    ['reconnectDelayMillis', reconnectDelayMillis, 0, 2 ** 31],
  ];
  for (const [name, value, least, most] of ranges) {
    const isWhole = Number.isInteger(value) || value === Infinity;
    if (!isWhole || value < least || value > most) {
      const limit = most === Infinity ? `${least} on, or Infinity` : `${least} to ${most}`;
      throw mustBe(name, `a whole number from ${limit}`, value);
    }
  }
  checkPositive('weight', weight);
  checkFunction('onEvent', options.onEvent);
  if (options.pool !== undefined) checkMember('pool', options.pool, 'createUser', 'an FmrPool');
  if (options.poolParams !== undefined) {
    checkObject('connectNvme', options.poolParams, 'poolParams');
  }
  const dhchap =
    options.dhchap === undefined
      ? undefined
      : { ...checkHostDhchap(options.dhchap), required: options.dhchap.required ?? true };
  const host = hostOf(options);
  const where = await placeOf(target);
  const context = options.context ?? (await openTowards(where.address, options.device));
  const found = options.pool ?? fmrPools(context).get('nvme');
  let pool = found;
  try {
    // Other contexts of the device use this pool as well: it ends with the device.
    pool ??= createFmrPool(context.openInner(), undefined, {
      maxLength: MAX_LENGTH,
      ulp: 'nvme',
      mrsMax: POOL_MRS_MAX,
      ...options.poolParams,
    });
    return await NvmeVolume.open(
      context,
      pool,
      { numMr, weight, lendMrs },
      {
        association: { ...where, ...host, nqn, keepAliveMillis, dhchap },
        ...{ queueDepth, nsid, ioTimeoutMillis, ctrlLossMillis, reconnectDelayMillis },
        onEvent: options.onEvent,
        ownContext: options.context === undefined,
        follows: options.context === undefined && options.device?.address === undefined,
      },
      options.signal,
    );
  } catch (error) {
    if (options.context === undefined) await context.close();
    throw error;
  }
}

/**
 * Subsystems that the discovery service at `host` or `host:port` lists. Rejects as `connectNvme`.
 */
export async function discoverNvme(
  target: string,
  options: NvmeHostOptions = {},
): Promise<NvmeDiscovered[]> {
  checkKeys('discoverNvme', options, HOST_OPTIONS);
  const host = hostOf(options);
  const where = await placeOf(target);
  const context = options.context ?? (await openTowards(where.address, options.device));
  try {
    const pd = context.allocPd();
    const completions = new Completions(context);
    try {
      const association = await Association.open(pd, completions, {
        ...where,
        ...host,
        nqn: DISCOVERY_NQN,
        keepAliveMillis: 0,
        signal: options.signal,
        onEnd: () => {},
      });
      const connecting = association.connecting();
      const log = association.discoveryLog().catch((error: unknown) => {
        throw connecting.failed(error);
      });
      const entries = await log.finally(() => connecting.over());
      await association.shutdown();
      return entries.map(({ subnqn, traddr, trsvcid }) => ({
        nqn: subnqn,
        address: traddr,
        port: Number(trsvcid),
      }));
    } finally {
      completions.close();
      pd.dealloc();
    }
  } finally {
    if (options.context === undefined) await context.close();
  }
}

function hostOf(options: NvmeHostOptions) {
  const { hostNqn = HOST_NQN, udpPort, cmResponseTimeout, maxCmRetries } = options;
  const { hostId = namesOf(hostNqn).uuid, ackTimeout } = options;
  checkLimits(options.signal ? { signal: options.signal } : {});
  options.signal?.throwIfAborted();
  const auth = copyAuth(options.auth); // For reconnects.
  if (!hostNqn.startsWith('nqn.'))
    throw new MisuseError('hostNqn', `must begin with nqn., got "${hostNqn}"`);
  if (hostId.length !== 16)
    throw new MisuseError('hostId', `must be 16 bytes, got ${hostId.length}`);
  return {
    ...{ hostNqn, hostId },
    ...(ackTimeout !== undefined && { ackTimeout }),
    ...(udpPort !== undefined && { udpPort }),
    ...(auth !== undefined && { auth }),
    ...(cmResponseTimeout !== undefined && { cmResponseTimeout }),
    ...(maxCmRetries !== undefined && { maxCmRetries }),
  };
}

/** Throws MisuseError; rejects with RefusalError ENOENT. */
async function placeOf(text: string): Promise<{ address: string; port: number }> {
  if (typeof text !== 'string') {
    throw new MisuseError('target', `must be text, host[:port], got ${typeof text}`);
  }
  const bracketed = /^\[([^\]]+)\](?::(\d{1,5}))?$/.exec(text);
  const plain = /^([^:\s[\]]+)(?::(\d{1,5}))?$/.exec(text);
  const bare = /^[0-9a-f]*:[0-9a-f:.]+$/i.test(text) ? [text, text, undefined] : undefined;
  const [, host, port = NVME_RDMA_PORT] = bracketed ?? plain ?? bare ?? [];
  if (host === undefined || Number(port) < 1 || Number(port) > 65535) {
    throw new MisuseError('target', `"${text}" is no host[:port]; [address]:port with IPv6`);
  }
  return { address: await lookUp(host), port: Number(port) };
}
