/**
 * The options of `verbena perf`, with perftest's names and defaults, converted into a plan; and the
 * terms of a plan that both sides must share.
 */
import { InvalidArgumentError, Option, type Command } from 'commander';
import type { AuthOptions } from '../../cm/auth-option.js';
import { MisuseError } from '../../errors/errors.js';
import { ROCE_PORT } from '../../link/link.js';
import { QpType, WrOpcode } from '../../verbs/enums.js';
import { MAX_CQE, MAX_INLINE_DATA, MAX_QP_WR } from '../../verbs/limits.js';
import {
  addDscpOption,
  addNamedPortOption,
  localAddress,
  mtu,
  size,
  whole,
} from '../base/options.js';
import type { PskOptions } from '../base/psk-file.js';

const PERF_VERBS = ['write', 'read', 'send', 'atomic', 'flush', 'atomic-write'] as const;
const PERF_TESTS = ['bw', 'lat'] as const;
const CONNECTIONS = ['RC', 'UC', 'UD'] as const;
const PROGRESS = ['thread', 'poll', 'inline'] as const;
const ATOMICS = ['CMP_AND_SWAP', 'FETCH_AND_ADD'] as const;
const EXCHANGES = ['cm', 'tcp'] as const;

export type PerfVerb = (typeof PERF_VERBS)[number];
export type PerfTest = (typeof PERF_TESTS)[number];

/** Options as commander parses them. */
export interface PerfOptions extends PskOptions {
  readonly size?: number;
  readonly all?: boolean;
  readonly iters?: number;
  readonly duration?: number;
  readonly margin?: number;
  readonly txDepth?: number;
  readonly rxDepth?: number;
  readonly cqMod?: number;
  readonly inline?: number;
  readonly qp: number;
  readonly bidirectional?: boolean;
  readonly postList: number;
  readonly recvPostList: number;
  readonly mtu?: number;
  readonly port: number;
  readonly connection: (typeof CONNECTIONS)[number];
  readonly atomicType: (typeof ATOMICS)[number];
  readonly outs: number;
  readonly events?: boolean;
  readonly progress?: (typeof PROGRESS)[number];
  readonly warmUp?: number;
  readonly histogram?: boolean;
  readonly unsorted?: boolean;
  readonly reportBoth?: boolean;
  readonly reportGbits?: boolean;
  readonly perftest?: boolean;
  readonly exchange: (typeof EXCHANGES)[number];
  readonly bind?: string;
  readonly udpPort?: number;
  readonly dscp: number;
  readonly peerUdpPort: number;
  readonly json?: boolean;
}

/** Where the client connects, and with which key. */
export interface PerfServer {
  readonly address: string;
  readonly port: number;
  readonly udpPort: number;
  readonly auth?: AuthOptions;
}

export interface PerfPlan {
  readonly verb: PerfVerb;
  readonly test: PerfTest;
  readonly connection: PerfOptions['connection'];
  /** Bytes of a message, in turn. Datagrams: as far as the path MTU goes. */
  readonly sizes: readonly number[];
  readonly isAll: boolean;
  /** Messages of each queue pair and size; with a duration there is no such number. */
  readonly iters: number;
  readonly durationSeconds: number | undefined;
  /** At either end of a duration, not measured. */
  readonly marginSeconds: number;
  readonly txDepth: number;
  readonly rxDepth: number;
  /** Every so-manieth request is signalled; undefined: by size. */
  readonly cqMod: number | undefined;
  readonly inlineBytes: number;
  readonly qps: number;
  readonly bidirectional: boolean;
  readonly postList: number;
  readonly recvPostList: number;
  readonly mtuBytes: number | undefined;
  readonly atomicType: PerfOptions['atomicType'];
  readonly outs: number;
  readonly events: boolean;
  /** Messages before the first that is measured; undefined: some. */
  readonly warmUp: number | undefined;
}

const SIZE_MAX = 2 ** 30;
/** 2 to 2^23, as perftest has it. */
const ALL_SIZES = Array.from({ length: 23 }, (_, index) => 2 ** (index + 1));
const ITERS_MAX = 100_000_000;
const QPS_MAX = 16384;
const ATOMIC_BYTES = 8;
const CQ_MOD = 100;
/** Beyond, every request is signalled: a completion that stands for many says little. */
const CQ_MOD_BYTES_MAX = 8192;
/** perftest's for latencies: what fits into a work request of common adapters. */
const INLINE_BYTES = { write: 220, send: 236, datagram: 188 };

function choice<const Word extends string>(words: readonly Word[]): (text: string) => Word {
  return (text) => {
    const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`It must be one of ${words.join(', ')}.`);
  };
}

/** An argument or option that is one of these words. */
export const perfVerb = choice(PERF_VERBS);
export const perfTest = choice(PERF_TESTS);

/** perftest's letters where it has one. */
export function addPerfOptions(command: Command): Command {
  command
    .option('-s, --size <size>', 'bytes per message (bw: 64k, lat: 2)', size(1, SIZE_MAX))
    .option('-a, --all', 'sizes from 2 to 2^23')
    .option('-n, --iters <number>', 'messages (1000, write bw: 5000)', whole(5, ITERS_MAX))
    .option('-D, --duration <seconds>', 'duration in place of --iters', whole(1, 86400))
    .option('-f, --margin <seconds>', 'unmeasured time at each end of --duration', whole(0, 43200))
    .option('-t, --tx-depth <number>', 'sends in flight (bw: 128)', whole(1, MAX_QP_WR))
    .option('-r, --rx-depth <number>', 'receives posted (send: 512)', whole(1, MAX_QP_WR))
    .option('-Q, --cq-mod <number>', 'requests per completion (100)', whole(1, 1024))
    .option('-I, --inline <bytes>', 'largest size sent inline', whole(0, MAX_INLINE_DATA))
    .option('-q, --qp <number>', 'queue pairs', whole(1, QPS_MAX), 1)
    .option('-b, --bidirectional', 'both sides send')
    .option('-l, --post-list <number>', 'requests per post', whole(1, MAX_QP_WR), 1)
    .option('--recv-post-list <number>', 'receives per post', whole(1, MAX_QP_WR), 1)
    .option('-m, --mtu <bytes>', 'path MTU (default: the largest possible)', mtu);
  addNamedPortOption(command, '-p, --port <port>', 'the server’s port', 18515)
    .option('-c, --connection <type>', 'RC, UC or UD', choice(CONNECTIONS), 'RC')
    .option('-A, --atomic-type <type>', ATOMICS.join(' or '), choice(ATOMICS), 'FETCH_AND_ADD')
    .option('-o, --outs <number>', 'READs, atomics, FLUSHes in flight', whole(1, 128), 16)
    .option('-e, --events', 'wait for completion events instead of polling')
    .option('--progress <how>', 'where the engine runs: thread, poll or inline', choice(PROGRESS))
    .option('--warm-up <number>', 'messages before the measured ones', whole(0, ITERS_MAX))
    .option('-H, --histogram', 'lat: print all, sorted')
    .option('-U, --unsorted', 'lat: print all, in order')
    .option('--report-both', 'bidirectional: print both directions, too')
    .option('--report-gbits', 'Gb/sec in place of MiB/sec')
    .option('--bind <address>', 'local address (server: 127.0.0.1)', localAddress)
    .addOption(
      new Option('--exchange <how>', 'connection setup: cm (ib_* -R) or tcp (ib_* without -R)')
        .argParser(choice(EXCHANGES))
        .default('cm'),
    )
    .option('-R, --perftest', 'accepted for perftest; the peer may always be perftest');
  addNamedPortOption(command, '--peer-udp-port <port>', 'UDP port of the device there', ROCE_PORT);
  return addDscpOption(command)
    .option('--udp-port <port>', `UDP port of the local device (${ROCE_PORT})`, whole(0, 65535))
    .option('--json', 'print the result as JSON');
}

/** Throws MisuseError for what does not go together. */
export function planOf(verb: PerfVerb, test: PerfTest, options: PerfOptions): PerfPlan {
  const { connection, all = false, events = false, bidirectional = false, qp: qps } = options;
  const iters = options.iters ?? (verb === 'write' && test === 'bw' ? 5000 : 1000);
  const isTimed = options.duration !== undefined;
  const most = isTimed ? MAX_QP_WR : iters;
  const { postList, recvPostList } = options;
  const txDepth = Math.min(options.txDepth ?? (test === 'bw' ? 128 : 1), most);
  const rxDepth = Math.min(options.rxDepth ?? 512, most);
  const plan: PerfPlan = {
    verb,
    test,
    connection,
    sizes: all ? ALL_SIZES : [options.size ?? sizeOf(verb, test)],
    isAll: all,
    iters,
    durationSeconds: options.duration,
    marginSeconds: options.margin ?? (options.duration ?? 0) / 4,
    txDepth,
    rxDepth: verb === 'send' ? rxDepth : 1,
    cqMod: options.cqMod ?? (postList > 1 ? postList : undefined),
    inlineBytes: options.inline ?? inlineOf(verb, test, connection),
    qps,
    bidirectional,
    postList,
    recvPostList,
    mtuBytes: options.mtu,
    atomicType: options.atomicType,
    outs: options.outs,
    events,
    warmUp: options.warmUp,
  };
  checkVerb(plan, options);
  checkTest(plan, options);
  checkDepths(plan, isTimed);
  return plan;
}

/** True if the responder answers each request, as it answers READs; `outs` limits their number. */
export function isAnswered(verb: PerfVerb): boolean {
  return verb !== 'write' && verb !== 'send';
}

/** Of one size. */
function isWord(verb: PerfVerb): boolean {
  return verb === 'atomic' || verb === 'atomic-write';
}

function sizeOf(verb: PerfVerb, test: PerfTest): number {
  if (isWord(verb)) return ATOMIC_BYTES;
  return test === 'bw' ? 65536 : 2;
}

function inlineOf(verb: PerfVerb, test: PerfTest, connection: string): number {
  if (test === 'bw' || (verb !== 'write' && verb !== 'send')) return 0;
  return connection === 'UD' ? INLINE_BYTES.datagram : INLINE_BYTES[verb];
}

function checkVerb({ verb, connection, recvPostList }: PerfPlan, options: PerfOptions): void {
  if (isWord(verb) && (options.all || (options.size ?? ATOMIC_BYTES) !== ATOMIC_BYTES)) {
    throw new MisuseError(
      options.all ? '--all' : '--size',
      `must be 8 for atomic and atomic-write, got ${options.all ? 'all sizes' : options.size}`,
    );
  }
  if (connection === 'UD' && options.pskFile !== undefined) {
    throw new MisuseError(
      '--psk-file',
      'is not valid with -c UD, as datagrams have no authentication: use -c RC or UC',
    );
  }
  const isReliable = connection === 'RC';
  if (!isReliable && isAnswered(verb)) {
    throw new MisuseError('--connection', `${connection} does not support ${verb}: use -c RC`);
  }
  if (connection === 'UD' && verb === 'write') {
    throw new MisuseError(
      '--connection',
      `${connection} does not support ${verb}: use -c RC or UC`,
    );
  }
  if (recvPostList > 1 && verb !== 'send')
    throw new MisuseError('--recv-post-list', 'is only valid with send');
}

function checkTest(plan: PerfPlan, options: PerfOptions): void {
  const { test, verb, qps, events, bidirectional, postList, recvPostList } = plan;
  if (test === 'lat') {
    const forBandwidth = {
      '--qp': qps > 1,
      '--bidirectional': bidirectional,
      '--post-list': postList > 1,
      '--recv-post-list': recvPostList > 1,
      '--report-both': options.reportBoth,
      '--report-gbits': options.reportGbits,
    };
    for (const [name, isAsked] of Object.entries(forBandwidth)) {
      if (isAsked) throw new MisuseError(name, 'is only valid with bw');
    }
    if (events && verb === 'write') {
      throw new MisuseError(
        '--events',
        'is not valid with write lat: a WRITE causes no event at the peer',
      );
    }
  } else if (options.histogram || options.unsorted) {
    throw new MisuseError(
      options.histogram ? '--histogram' : '--unsorted',
      'is only valid with lat',
    );
  }
  if (options.reportBoth && !bidirectional) {
    throw new MisuseError('--report-both', 'is only valid with --bidirectional');
  }
  const { durationSeconds, marginSeconds, isAll } = plan;
  if (durationSeconds === undefined) {
    if (options.margin !== undefined)
      throw new MisuseError('--margin', 'is only valid with --duration');
    return;
  }
  for (const name of ['iters', 'all', 'histogram', 'unsorted'] as const) {
    if (options[name]) throw new MisuseError(`--${name}`, 'is not valid with --duration');
  }
  if (durationSeconds <= 2 * marginSeconds || isAll) {
    throw new MisuseError(
      '--margin',
      `must be less than half of --duration, got ${marginSeconds} of ${durationSeconds}`,
    );
  }
}

function checkDepths(plan: PerfPlan, isTimed: boolean): void {
  const { qps, txDepth, rxDepth, iters, postList, recvPostList, cqMod = postList } = plan;
  const lists = { '--post-list': [postList, txDepth], '--recv-post-list': [recvPostList, rxDepth] };
  for (const [name, [list = 1, depth = 1]] of Object.entries(lists)) {
    if (list === 1) continue;
    if (list > depth) throw new MisuseError(name, `must be at most the depth, ${depth}`);
    if (!isTimed && iters % list !== 0) {
      throw new MisuseError(name, `must divide the number of messages, ${iters}`);
    }
  }
  if (postList > 1 && postList % cqMod !== 0) {
    throw new MisuseError('--cq-mod', `must divide the post list, ${postList}`);
  }
  for (const [name, depth] of Object.entries({ '--tx-depth': txDepth, '--rx-depth': rxDepth })) {
    if (qps * depth > MAX_CQE) {
      throw new MisuseError(
        name,
        `times --qp must be at most ${MAX_CQE}, the size of a completion queue`,
      );
    }
  }
}

/** Of how many requests of this size one is signalled. */
export function cqModOf({ cqMod, txDepth, connection }: PerfPlan, bytes: number): number {
  if (cqMod !== undefined) return Math.min(cqMod, txDepth);
  return bytes > CQ_MOD_BYTES_MAX && connection !== 'UD' ? 1 : Math.min(CQ_MOD, txDepth);
}

export const QP_TYPES = { RC: QpType.RC, UC: QpType.UC, UD: QpType.UD } as const;

export function opcodeOf({ verb, atomicType }: PerfPlan): number {
  switch (verb) {
    case 'write':
      return WrOpcode.RDMA_WRITE;
    case 'read':
      return WrOpcode.RDMA_READ;
    case 'send':
      return WrOpcode.SEND;
    case 'flush':
      return WrOpcode.FLUSH;
    case 'atomic-write':
      return WrOpcode.ATOMIC_WRITE;
    default:
      return atomicType === 'FETCH_AND_ADD'
        ? WrOpcode.ATOMIC_FETCH_AND_ADD
        : WrOpcode.ATOMIC_CMP_AND_SWP;
  }
}

/** Does the passive side work, too? Otherwise it only waits for the end. */
export function isTwoSided({ verb, test, bidirectional }: PerfPlan): boolean {
  return verb === 'send' || bidirectional || (verb === 'write' && test === 'lat');
}

/** Names are options. Both sides must say the same. */
export type PerfTerms = { readonly [name: string]: string | number | boolean };

export function termsOf(plan: PerfPlan): PerfTerms {
  const { verb, test, connection, isAll, sizes, durationSeconds = 0, qps, bidirectional } = plan;
  return {
    verb,
    test,
    connection,
    all: isAll,
    size: isAll ? 0 : sizes[0]!,
    iters: durationSeconds > 0 ? 0 : plan.iters,
    duration: durationSeconds,
    qp: qps,
    bidirectional,
    warmUp: plan.warmUp ?? -1,
  };
}

/** Options of the terms that have another name, or none: the words of the command. */
const TERM_OPTIONS: { readonly [name: string]: string } = {
  verb: 'verb',
  test: 'test',
  warmUp: '--warm-up',
};

/** The first term in which the sides differ, and the remedy; undefined: they agree. `quoted`: text of a value. */
export function differenceOf(
  ours: PerfTerms,
  theirs: { readonly [name: string]: unknown },
  quoted: (value: unknown) => string,
): string | undefined {
  const lengthOf = ({ iters, duration }: typeof theirs): string => {
    const isTimed = typeof duration === 'number' && duration > 0;
    return isTimed ? `--duration ${quoted(duration)}` : `--iters ${quoted(iters)}`;
  };
  const name = Object.keys(ours).find((name) => ours[name] !== theirs[name]);
  if (name === undefined) return undefined;
  const [here, there] = [lengthOf(ours), lengthOf(theirs)];
  if (name === 'iters' && (ours['duration'] === 0) !== there.startsWith('--iters')) {
    const remedy = 'both sides need --duration, or both --iters, with the same number';
    return `the options differ: ${here} is here and ${there} at the peer; ${remedy}`;
  }
  const [value, said] = [ours[name], theirs[name]].map((one) => (one === -1 ? 'unset' : one));
  const difference = `${name} is ${String(value)} here and ${quoted(said)} at the peer`;
  const option = TERM_OPTIONS[name] ?? `--${name}`;
  return `the options differ: ${difference}; start both sides with the same ${option}`;
}
