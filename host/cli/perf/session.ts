/**
 * One run of `verbena perf` after both sides are connected: perftest's messages in perftest's
 * order, the measurements between them, and the result.
 */
import type { Context, EventChannel, RdmaListener } from '../../index.js';
import { RefusalError } from '../../errors/errors.js';
import { ROCE_PORT } from '../../link/link.js';
import { Bandwidth, type BandwidthSample } from './bandwidth.js';
import { exchange, within, type PerfControl } from './control.js';
import * as wire from './exchange.js';
import type { PerfBandwidthReport, PerfDestination } from './exchange.js';
import { Latency } from './latency.js';
import { differenceOf, isTwoSided, termsOf } from './options.js';
import type { PerfOptions, PerfPlan, PerfServer } from './options.js';
import { Pace } from './pace.js';
import { PerfPath, mtuOf, type PerfPeer } from './path.js';
import { PerfPrintout } from './printout.js';
import { PerfProgress } from './progress.js';
import * as report from './report.js';
import type { PerfCpu, PerfRow as Row } from './report.js';

export interface SessionOptions {
  readonly context: Context;
  readonly control: PerfControl;
  readonly plan: PerfPlan;
  readonly options: PerfOptions;
  readonly signal: AbortSignal;
  readonly say: (line: string) => Promise<void>;
  readonly complain: (line: string) => void;
  /** The server, if this side is a client of the connection manager. */
  readonly server?: PerfServer;
  /** The listener, if this side is a server of the connection manager. */
  readonly listener?: RdmaListener;
  readonly datagrams?: EventChannel | undefined;
  readonly peer?: string;
}

/** Of Linux's pages, and of the cache lines of most machines. */
const PAGE_BYTES = 4096;
const LINE_BYTES = 64;
/** Until the other side says what it has to say without measuring before. */
const TIMEOUT_MILLIS = 30_000;
const GOODBYE_MILLIS = 1000;
/** Limits of the warm-up: messages, and bytes. */
const WARM_UP_MESSAGES = 1000;
const WARM_UP_BYTES = 64 * 2 ** 20;

export class PerfSession {
  readonly #options: SessionOptions;
  readonly #plan: PerfPlan;
  readonly #control: PerfControl;
  readonly #isGbits: boolean;
  readonly #printout: PerfPrintout;
  #isOwnKind = false;
  #peerDevice: PerfPeer = { port: ROCE_PORT };
  /** The peer posts messages in multiples of this. */
  #peerStep = 1;
  #path!: PerfPath;
  #mtu = 0;
  #last: BandwidthSample | undefined;
  #cpuStart = process.cpuUsage();

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#plan = options.plan;
    this.#control = options.control;
    this.#isGbits = options.options.reportGbits ?? false;
    this.#printout = new PerfPrintout(options);
  }

  /** Rejects with RefusalError: EPROTO, ECONNRESET, EMSGSIZE, EIO, ETIMEDOUT. */
  async run(): Promise<object> {
    await this.#meet();
    await this.#prepare();
    await this.#printout.head(128 << this.#mtu);
    await this.#measureAll();
    await this.#finish();
    await this.#printout.tail();
    return this.#result();
  }

  /** Ends the connections, the client first. */
  async end(): Promise<void> {
    const { asks } = this.#control;
    await this.#path.close(asks);
    if (this.#control.kind === 'tcp') await this.#control.send(wire.DONE).catch(() => {});
    // perftest's client leaves when it has its results: a peer that leaves earlier keeps it
    // waiting.
    else if (!asks) await within(GOODBYE_MILLIS, this.#control.over);
    await this.#control.close();
  }

  /** Versions, what only our own kind says, and what both can. */
  async #meet(): Promise<void> {
    const { isOwnKind } = wire.decodeVersion(await this.#exchange(wire.encodeVersion()));
    this.#isOwnKind = isOwnKind;
    if (isOwnKind) this.#agree(wire.decodeNote(await this.#exchange(this.#introduction())));
    for (const value of [PAGE_BYTES, LINE_BYTES]) {
      await this.#exchange(wire.encodeNumber(value));
    }
    const own = this.#ownMtu();
    this.#mtu = Math.min(own, wire.decodeMtu(await this.#exchange(wire.encodeMtu(own))));
    const { connection, isAll, sizes } = this.#plan;
    if (connection === 'UD' && !isAll && sizes[0]! > 128 << this.#mtu) {
      const most = 128 << this.#mtu;
      throw new RefusalError(
        'EMSGSIZE',
        `--size ${sizes[0]} exceeds the largest datagram, ${most} bytes; choose a ` +
          'smaller one, or -c RC',
      );
    }
  }

  #introduction(): Buffer {
    const { device } = this.#options.context;
    return wire.encodeNote({
      terms: termsOf(this.#plan),
      port: device.info.local.port,
      receiveBufferBytes: device.info.receiveBufferBytes,
      step: stepOf(this.#plan),
    });
  }

  /** Throws RefusalError EPROTO unless the other side does what we do. */
  #agree(note: { readonly [name: string]: unknown }): void {
    const theirs = (note['terms'] ?? {}) as { readonly [name: string]: unknown };
    const quoted = (value: unknown): string =>
      wire
        .quoted(typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing'))
        .slice(1, -1);
    const difference = differenceOf(termsOf(this.#plan), theirs, quoted);
    if (difference !== undefined) throw new RefusalError('EPROTO', difference);
    const whole = (name: string, least: number, most: number): number => {
      const value = wire.numberOf(note[name], NaN);
      if (Number.isInteger(value) && value >= least && value <= most) return value;
      throw new RefusalError(
        'EPROTO',
        `invalid ${name} from peer: ${wire.quoted(String(note[name]))}`,
      );
    };
    this.#peerStep = whole('step', 1, 2 ** 32);
    this.#peerDevice = {
      port: whole('port', 1, 65535),
      receiveBufferBytes: whole('receiveBufferBytes', 0, 2 ** 31),
      ownKind: true,
    };
  }

  #ownMtu(): number {
    const { activeMtu } = this.#options.context.queryPort();
    const asked = this.#plan.mtuBytes;
    if (asked === undefined) return activeMtu;
    if (mtuOf(asked) <= activeMtu) return mtuOf(asked);
    throw new RefusalError(
      'EINVAL',
      `--mtu ${asked} exceeds the path MTU of the link, ${128 << activeMtu}; choose a smaller one`,
    );
  }

  /** Connected queue pairs. The order of what is said is each program's own. */
  async #prepare(): Promise<void> {
    const { context, server, listener, datagrams, peer = '' } = this.#options;
    const isByHand = this.#control.kind === 'tcp';
    if (isByHand) this.#path = PerfPath.unconnected(context, this.#plan);
    else {
      // The client begins when the server is ready.
      await this.#handshake();
      this.#path = server
        ? await PerfPath.connected(context, this.#plan, server, this.#mtu)
        : await PerfPath.accepted(context, this.#plan, listener!, datagrams, peer);
      await this.#handshake();
    }
    const { verb, test } = this.#plan;
    const isOneByOne = test === 'lat' && verb !== 'send';
    if (isOneByOne) await this.#handshake();
    const theirs = await this.#tellDestinations();
    this.#path.aim(theirs);
    const { session } = this.#control;
    if (isByHand) this.#path.connect(theirs, this.#peerDevice, this.#mtu, session);
    if (verb === 'send') await this.#handshake();
    await this.#tellDestinations();
    if (verb !== 'send') await this.#handshake();
  }

  async #tellDestinations(): Promise<PerfDestination[]> {
    const theirs: PerfDestination[] = [];
    for (const ours of this.#path.destinations) theirs.push(await this.#shake(ours));
    return theirs;
  }

  /** Nothing is said: both sides have come so far. */
  async #handshake(timeoutMillis = TIMEOUT_MILLIS): Promise<void> {
    const { context } = this.#options;
    const empty = { outs: 0, qpn: 0, psn: 0, rkey: 0, vaddr: 0n, gid: context.queryGid() };
    await this.#shake(this.#path?.destinations[0] ?? empty, timeoutMillis);
  }

  async #shake(ours: PerfDestination, timeoutMillis = TIMEOUT_MILLIS) {
    if (this.#control.kind === 'cm') {
      const bytes = wire.encodeDestination(ours);
      return wire.decodeDestination(await this.#exchange(bytes, timeoutMillis));
    }
    const bytes = wire.encodeDestinationText(ours);
    return wire.decodeDestinationText(await this.#exchange(bytes, timeoutMillis));
  }

  #exchange(ours: Uint8Array, timeoutMillis = TIMEOUT_MILLIS): Promise<Buffer> {
    return exchange(this.#control, ours.length, () => ours, timeoutMillis);
  }

  async #exchangeReports(ours: PerfBandwidthReport | undefined): Promise<PerfBandwidthReport> {
    const theirs: Buffer[] = [];
    for (const bytes of wire.encodeReport(ours)) theirs.push(await this.#exchange(bytes));
    return wire.decodeReport(theirs);
  }

  async #measureAll(): Promise<void> {
    const { sizes, connection } = this.#plan;
    const most = connection === 'UD' ? 128 << this.#mtu : Infinity;
    const fitting = sizes.filter((bytes) => bytes <= most);
    const progress = new PerfProgress(this.#plan, fitting.length);
    try {
      for (const [index, bytes] of fitting.entries()) {
        progress.begin(index);
        await this.#measureOne(bytes, index === 0, progress);
      }
    } finally {
      progress.stop();
    }
  }

  /** Does this side work, or is it worked on? */
  get #isActive(): boolean {
    return this.#control.asks || isTwoSided(this.#plan);
  }

  async #measureOne(bytes: number, isFirst: boolean, progress: PerfProgress): Promise<void> {
    if (isFirst) await this.#warmUp(bytes);
    this.#cpuStart = process.cpuUsage();
    let row: Row | undefined;
    if (this.#isActive) {
      row = await (this.#plan.test === 'bw'
        ? this.#bandwidth(bytes, progress)
        : this.#latency(bytes, progress));
    }
    if (this.#isOwnKind) row = await this.#exchangeUsage(row, bytes);
    if (row) await this.#printout.add(row);
  }

  /**
   * Compilers need some messages. To a peer that is perftest only one-sided requests are possible.
   */
  async #warmUp(bytes: number): Promise<void> {
    const { verb, test } = this.#plan;
    const isWriteLat = verb === 'write' && test === 'lat';
    let count = this.#warmUpCount(bytes);
    // The number of the last WRITE must not be that of the first one to come.
    if (isWriteLat && (count & 255) === 1) count++;
    const isUnnoticed = verb !== 'send' && !isWriteLat;
    if (count > 0 && this.#isActive && (this.#isOwnKind || isUnnoticed)) {
      const run =
        test === 'lat'
          ? new Latency({ ...this.#runOf(bytes), iters: count })
          : new Bandwidth({ ...this.#bandwidthRunOf(bytes), iters: count });
      if (verb === 'send') await this.#handshake(Infinity);
      await run.measure();
    }
    // The passive side measures its CPU time from here on.
    if (this.#isOwnKind) await this.#handshake(Infinity);
  }

  /** The same on both sides. */
  #warmUpCount(bytes: number): number {
    const { warmUp, iters } = this.#plan;
    const affordable = Math.min(WARM_UP_MESSAGES, iters, Math.ceil(WARM_UP_BYTES / bytes));
    const step = leastMultiple(stepOf(this.#plan), this.#peerStep);
    return Math.floor((warmUp ?? affordable) / step) * step;
  }

  #runOf(bytes: number) {
    const { context, signal } = this.#options;
    const pace = new Pace({
      context,
      control: this.#control,
      signal,
      events: this.#plan.events,
      isInline: context.device.link !== undefined && !context.device.polled,
    });
    const iters = this.#plan.durationSeconds === undefined ? this.#plan.iters : undefined;
    // perftest's server writes first, and in all else its client begins.
    const isWriteLat = this.#plan.verb === 'write' && this.#plan.test === 'lat';
    const startsFirst = this.#control.asks !== isWriteLat;
    return { path: this.#path, pace, bytes, iters, startsFirst };
  }

  #bandwidthRunOf(bytes: number) {
    const { verb, bidirectional } = this.#plan;
    const isSend = verb === 'send';
    const { asks } = this.#control;
    return {
      ...this.#runOf(bytes),
      sends: asks || bidirectional,
      receives: isSend && (!asks || bidirectional),
      // One-sided in both directions: no side waits for the other.
      startsFirst: asks || !isSend,
    };
  }

  async #bandwidth(bytes: number, progress: PerfProgress): Promise<Row> {
    const { verb, bidirectional, isAll, durationSeconds } = this.#plan;
    const isSend = verb === 'send';
    const isTimedSend = isSend && durationSeconds !== undefined;
    const run = new Bandwidth({
      ...this.#bandwidthRunOf(bytes),
      countsBoth: bidirectional && isTimedSend && !this.#isOwnKind,
      progress: (messages) => progress.update(messages),
    });
    if (isSend || bidirectional) await this.#handshake(Infinity);
    const cpuStart = process.cpuUsage();
    const sample = await run.measure();
    const cpu = cpuSince(cpuStart, bytes, sample.messages);
    this.#last = sample;
    if (bidirectional && !isSend && isAll) await this.#handshake(Infinity);
    const local = report.bandwidthRow(sample, this.#isGbits);
    let row: Row = { bytes, bandwidth: local, seconds: sample.seconds, cpu, lost: sample.lost };
    if (bidirectional && (!isTimedSend || this.#isOwnKind)) {
      const remote = await this.#exchangeReports(local);
      row = { ...row, bandwidth: report.addRows(local, remote), both: { local, remote } };
    }
    if (isSend && isAll) await this.#handshake(Infinity);
    return row;
  }

  async #latency(bytes: number, progress: PerfProgress): Promise<Row> {
    const run = new Latency({
      ...this.#runOf(bytes),
      progress: (messages) => progress.update(messages),
    });
    if (this.#plan.verb === 'send') await this.#handshake(Infinity);
    const cpuStart = process.cpuUsage();
    const sample = await run.measure();
    const cpu = cpuSince(cpuStart, bytes, sample.messages);
    const times = report.waysOf(sample, this.#plan);
    await this.#printout.list(times);
    const { durationSeconds, iters } = this.#plan;
    const iterations = durationSeconds === undefined ? iters : sample.messages;
    const latency = report.latencyRow(bytes, iterations, times);
    return { bytes, latency, seconds: sample.seconds, cpu, lost: sample.lost };
  }

  /**
   * Exchanges the CPU time of a size between Verbena peers, and the result for the passive side.
   */
  async #exchangeUsage(row: Row | undefined, bytes: number): Promise<Row> {
    let cpuSeconds = 0;
    const usage = (): Buffer => {
      cpuSeconds = row?.cpu?.seconds ?? cpuSince(this.#cpuStart, 0, 0).seconds;
      return wire.encodeNote({ cpuSeconds, row });
    };
    const note = wire.decodeNote(await exchange(this.#control, wire.NOTE_BYTES, usage));
    const seconds = wire.numberOf(note['cpuSeconds']);
    if (row) return { ...row, peerCpu: { ...row.cpu!, seconds } };
    const theirs = report.readRow(note['row'], bytes);
    const { messages } = theirs;
    return {
      ...theirs.row,
      cpu: { seconds: cpuSeconds, bytes: bytes * messages, messages },
      peerCpu: { seconds, bytes: bytes * messages, messages },
    };
  }

  /** Handshake and reports after the last size. */
  async #finish(): Promise<void> {
    const { verb, test, bidirectional } = this.#plan;
    // The last WRITE ends a latency run: no message reports it.
    if (test === 'lat' && verb === 'write') return;
    if (test === 'bw' && verb !== 'send' && !bidirectional) {
      await this.#handshake(Infinity);
      const local = this.#last && report.bandwidthRow(this.#last, this.#isGbits);
      const remote = await this.#exchangeReports(local);
      if (!this.#control.asks && !this.#isOwnKind) {
        await this.#printout.add({ bytes: remote.bytes, bandwidth: remote, seconds: 0, lost: 0 });
      }
    }
    await this.#handshake(Infinity);
  }

  #result(): object {
    const { verb, test, connection, qps, txDepth, bidirectional } = this.#plan;
    const { retransmittedPkts } = this.#options.context.counters();
    return {
      verb,
      test,
      connection,
      role: this.#control.asks ? 'client' : 'server',
      peer: this.#isOwnKind ? 'verbena' : 'perftest',
      mtuBytes: 128 << this.#mtu,
      qps,
      txDepth,
      bidirectional,
      retransmittedPackets: Number(retransmittedPkts),
      path: this.#path.connections[0]?.qp.pathState(),
      rows: this.#printout.json(),
    };
  }
}

/** Messages are posted, and received, in lists. */
function stepOf({ postList, recvPostList }: PerfPlan): number {
  return leastMultiple(postList, recvPostList);
}

/** The least common one. */
function leastMultiple(one: number, other: number): number {
  let [a, b] = [one, other];
  while (b > 0) [a, b] = [b, a % b];
  return (one / a) * other;
}

function cpuSince(start: NodeJS.CpuUsage, bytes: number, messages: number): PerfCpu {
  const { user, system } = process.cpuUsage(start);
  return { seconds: (user + system) / 1e6, bytes: bytes * messages, messages };
}
