/** Options and events of a target. */
import { checkArray, checkKeys } from '../base/options.js';
import { checkAuth, type AuthOptions } from '../cm/auth-option.js';
import { checkMember } from '../errors/check-member.js';
import { checkFunction, checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { DISCOVERY_NQN } from './constants.js';
import type { NvmeTargetDhchap } from './dhchap-options.js';
import type { IoCounters } from './io.js';
import type { NvmeStore, StoreRequest } from './store.js';

/** Settings of an NVMe target. */
export interface NvmeTargetOptions {
  /** Where the namespace's blocks are. It is closed with the target. */
  readonly store: NvmeStore;
  /** The subsystem's name. Default `nqn.2026-01.dev.verbena:target`. */
  readonly nqn?: string;
  /** Default 4420; 0: a free one. */
  readonly port?: number;
  /** Bytes of a block: 512 (the default) or 4096. */
  readonly blockBytes?: number;
  /** Names of hosts that may connect. Default: any. */
  readonly hosts?: readonly string[];
  /** Hosts authenticate by DH-HMAC-CHAP, each queue; instead of `hosts`. Default: no host does. */
  readonly dhchap?: NvmeTargetDhchap;
  /**
   * Takes connections only that prove a pre-shared key; all their packets carry tags. For hosts of
   * our own kind (`connectNvme({ auth })`): Linux's initiator has no such connections. Beside
   * `hosts` and `dhchap`. Default: none.
   */
  readonly auth?: AuthOptions;
  readonly serial?: string;
  readonly model?: string;
  /** Controllers at a time. Default 64. */
  readonly controllersMax?: number;
  /** I/O queues of a controller. Default 8. */
  readonly ioQueuesMax?: number;
  /** Queues of all controllers. Default 256. */
  readonly queuesMax?: number;
  /**
   * Queues of one source: an IPv4 address, or an IPv6 network of 64 bits. Default: a quarter of
   * `queuesMax`, and those of one controller at least. Half of them, and at least 16, may be waiting
   * for their Connect.
   */
  readonly queuesPerSource?: number;
  /** Commands under way in a queue, at most 1024. Default 128. */
  readonly queueDepthMax?: number;
  /** Data in flight where the store is no memory, in bytes. Default 16 MiB. */
  readonly dataBytes?: number;
  /** Data that commands may carry in their capsule. Default 4096. */
  readonly inCapsuleBytes?: number;
  /** A connection that says no Connect for so long is ended. Default 3000. */
  readonly connectMillis?: number;
  /** Until a packet is sent again: 4.096 us * 2^it. Default: the link's, 17. */
  readonly ackTimeout?: number;
  /** How long a request takes besides, in microseconds: `nvmeResponseTimes` has models. */
  readonly delayMicros?: (request: StoreRequest) => number;
  /** Receives events. Its exceptions are ignored. */
  readonly onEvent?: (event: NvmeTargetEvent) => void;
}

/** A host came, went, or was refused. */
export interface NvmeTargetEvent {
  readonly kind: 'connected' | 'disconnected' | 'refused' | 'failed';
  /** Address of the host. */
  readonly peer: string;
  readonly hostNqn: string;
  readonly cntlid: number;
  readonly qid: number;
  /** Why, where something ended or was refused. */
  readonly reason: string;
}

/** Counters of a target, and its current load. */
export interface NvmeTargetStats extends Readonly<IoCounters> {
  readonly controllers: number;
  readonly queues: number;
  /** Connections, Connect commands and authentications that were refused. */
  readonly refused: number;
  /** Commands that waited for a buffer. */
  readonly dataWaits: number;
  /** Queues that hosts have authenticated. */
  readonly authenticated: number;
  /** Authentications that failed, or that hosts left unfinished. */
  readonly authenticationFailures: number;
}

export const CNTLID_MAX = 0xffef;
/** log2 of the pages of the largest transfer. */
export const MAX_TRANSFER_SHIFT = 5;
export const PAGE_BYTES = 4096;

const LIMITS =
  'controllersMax ioQueuesMax queuesMax queuesPerSource queueDepthMax dataBytes inCapsuleBytes';
const NAMES = 'nqn hosts dhchap serial model';
const TARGET_OPTIONS =
  `store port blockBytes auth connectMillis ackTimeout delayMicros onEvent ${NAMES} ${LIMITS}` as const;

/** Throws MisuseError. */
export function checkTargetOptions(options: NvmeTargetOptions): void {
  checkKeys('openNvmeTarget', options, TARGET_OPTIONS);
  const { nqn, blockBytes = 512, inCapsuleBytes = PAGE_BYTES } = options;
  if (options.auth !== undefined) checkAuth(options.auth);
  const ranges: readonly [keyof NvmeTargetOptions, number, number][] = [
    ['port', 0, 65535],
    ['controllersMax', 1, CNTLID_MAX],
    ['ioQueuesMax', 1, 1024],
    ['queuesMax', 1, 65536],
    ['queuesPerSource', 1, 65536],
    ['queueDepthMax', 2, 1024],
    ['dataBytes', PAGE_BYTES << MAX_TRANSFER_SHIFT, 2 ** 31],
    ['inCapsuleBytes', 0, 65536],
    ['ackTimeout', 0, 31],
    ['connectMillis', 1, 2 ** 31],
  ];
  for (const [name, least, most] of ranges) {
    const value = options[name] as number | undefined;
    if (value !== undefined) checkWhole(name, value, least, most);
  }
  if (nqn !== undefined && !/^nqn\.[!-~]{1,218}$/.test(nqn)) {
    throw new MisuseError('nqn', `must be a name as in nqn.2014-08.org.nvmexpress, got "${nqn}"`);
  }
  if (options.hosts !== undefined) {
    checkArray('hosts', options.hosts, 'NQNs');
    for (const host of options.hosts) {
      if (typeof host !== 'string') throw mustBe('hosts', 'an array of NQNs', host);
    }
  }
  checkFunction('delayMicros', options.delayMicros);
  checkFunction('onEvent', options.onEvent);
  if (options.hosts && options.dhchap) {
    throw new MisuseError(
      'hosts',
      'is not valid with dhchap.hosts, which names all hosts that may connect: leave hosts out',
    );
  }
  if (nqn === DISCOVERY_NQN)
    throw new MisuseError('nqn', `must not be that of discovery services, got ${shown(nqn)}`);
  if (blockBytes !== 512 && blockBytes !== 4096) {
    throw mustBe('blockBytes', '512 or 4096', blockBytes);
  }
  if (inCapsuleBytes % 16 !== 0) throw mustBe('inCapsuleBytes', 'a multiple of 16', inCapsuleBytes);
  const stores = 'an NvmeStore, as new NvmeRamStore(context, bytes)';
  for (const method of ['read', 'write', 'writeZeroes', 'flush', 'close'] as const) {
    checkMember('store', options.store, method, stores);
  }
  if (!(options.store.length >= blockBytes))
    throw new MisuseError(
      'store',
      `must have a block of ${blockBytes} bytes, got ${options.store.length}`,
    );
}
