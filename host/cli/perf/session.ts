/**
 * Two sides that know each other: what they say in which order (perftest's), what they measure in
 * between, and what comes of it.
 */
import { RefusalError, type Context, type EventChannel, type RdmaListener } from '../../index.js';
import { Bandwidth, type BandwidthSample } from './bandwidth.js';
import { exchange, within, type PerfControl } from './control.js';
import * as wire from './exchange.js';
import type { PerfBandwidthReport, PerfDestination } from './exchange.js';
import { Latency } from './latency.js';
import { isTwoSided, termsOf, type PerfOptions, type PerfPlan } from './options.js';
import { Pace } from './pace.js';
import { PerfPath, mtuOf, type PerfPeer } from './path.js';
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
  /** The connection manager's client: whom it asks. */
  readonly server?: { readonly address: string; readonly port: number; readonly udpPort: number };
  /** Its server: who asks, and where. */
  readonly listener?: RdmaListener;
  readonly datagrams?: EventChannel | undefined;
  readonly peer?: string;
}

/** Of Linux's pages, and of the cache lines of most machines. */
const PAGE_BYTES = 4096;
const LINE_BYTES = 64;
/** Until the other side says what it has to say without measuring before. */
const PATIENCE_MILLIS = 30_000;
const ROCE_PORT = 4791;
const GOODBYE_MILLIS = 1000;
/** What warms up at most. */
const WARM_UP_MESSAGES = 1000;
const WARM_UP_BYTES = 64 * 2 ** 20;

export class PerfSession {
  readonly #o: SessionOptions;
  readonly #plan: PerfPlan;
  readonly #control: PerfControl;
  readonly #isGbits: boolean;
  #isOwnKind = false;
  #peerDevice: PerfPeer = { port: ROCE_PORT };
  #path!: PerfPath;
  #mtu = 0;
  #rows: Row[] = [];
  #last: BandwidthSample | undefined;
  #cpuStart = process.cpuUsage();

  constructor(options: SessionOptions) {
    this.#o = options;
    this.#plan = options.plan;
    this.#control = options.control;
    this.#isGbits = options.options.reportGbits ?? false;
  }

  /** Rejects with RefusalError: EPROTO, ECONNRESET, EMSGSIZE, EIO, ETIMEDOUT. */
  async run(): Promise<object> {
    await this.#meet();
    await this.#prepare();
    await this.#head();
    await this.#measureAll();
    await this.#finish();
    await this.#tail();
    return this.#json();
  }

  /** Ends the connections, the client first. */
  async end(): Promise<void> {
    const { asks } = this.#control;
    await this.#path.close(asks);
    if (this.#control.kind === 'tcp') await this.#control.send(wire.DONE).catch(() => {});
    // perftest's client leaves when it has all: who goes first leaves it waiting.
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
      throw new RefusalError('EMSGSIZE', `a datagram has at most ${most} bytes, not ${sizes[0]}`);
    }
  }

  #introduction(): Buffer {
    const { device } = this.#o.context;
    return wire.encodeNote({
      terms: termsOf(this.#plan),
      port: device.info.local.port,
      receiveBufferBytes: device.info.receiveBufferBytes,
    });
  }

  /** Throws RefusalError EPROTO unless the other side does what we do. */
  #agree(note: { readonly [name: string]: unknown }): void {
    const theirs = (note['terms'] ?? {}) as { readonly [name: string]: unknown };
    for (const [name, ours] of Object.entries(termsOf(this.#plan))) {
      if (theirs[name] === ours) continue;
      const said = wire.quoted(String(theirs[name])).slice(1, -1);
      const what = `the sides differ: ${name} is ${String(ours)} here and ${said} there`;
      throw new RefusalError('EPROTO', what);
    }
    const port = wire.numberOf(note['port'], ROCE_PORT);
    const receiveBufferBytes = Math.floor(wire.numberOf(note['receiveBufferBytes']));
    if (!Number.isInteger(port) || port < 1 || port > 65535 || receiveBufferBytes > 2 ** 31) {
      throw new RefusalError('EPROTO', 'the peer’s device is nowhere');
    }
    this.#peerDevice = { port, receiveBufferBytes, ownKind: true };
  }

  #ownMtu(): number {
    const { activeMtu } = this.#o.context.queryPort();
    const asked = this.#plan.mtuBytes;
    if (asked === undefined) return activeMtu;
    if (mtuOf(asked) <= activeMtu) return mtuOf(asked);
    throw new RefusalError(
      'EINVAL',
      `the path MTU is at most ${128 << activeMtu} here, not ${asked}`,
    );
  }

  /** Connected queue pairs. The order of what is said is each program's own. */
  async #prepare(): Promise<void> {
    const { context, server, listener, datagrams, peer = '' } = this.#o;
    const isByHand = this.#control.kind === 'tcp';
    if (isByHand) this.#path = PerfPath.unconnected(context, this.#plan);
    else {
      // The client asks when the server can be asked.
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
    if (isByHand) this.#path.connect(theirs, this.#peerDevice, this.#mtu);
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
  async #handshake(patience = PATIENCE_MILLIS): Promise<void> {
    const { context } = this.#o;
    const nobody = { outs: 0, qpn: 0, psn: 0, rkey: 0, vaddr: 0n, gid: context.queryGid() };
    await this.#shake(this.#path?.destinations[0] ?? nobody, patience);
  }

  async #shake(ours: PerfDestination, patience = PATIENCE_MILLIS) {
    if (this.#control.kind === 'cm') {
      const bytes = wire.encodeDestination(ours);
      return wire.decodeDestination(await this.#exchange(bytes, patience));
    }
    const bytes = wire.encodeDestinationText(ours);
    return wire.decodeDestinationText(await this.#exchange(bytes, patience));
  }

  #exchange(ours: Uint8Array, patience = PATIENCE_MILLIS): Promise<Buffer> {
    return exchange(this.#control, ours.length, () => ours, patience);
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
    this.#cpuStart = process.cpuUsage();
    let row: Row | undefined;
    if (this.#isActive) {
      if (isFirst) await this.#warmUp(bytes);
      row = await (this.#plan.test === 'bw'
        ? this.#bandwidth(bytes, progress)
        : this.#latency(bytes, progress));
    }
    if (this.#isOwnKind) row = await this.#exchangeUsage(row, bytes);
    if (row) await this.#add(row);
  }

  /** Compilers need some messages; who has peers of perftest's kind may send only one-sidedly. */
  async #warmUp(bytes: number): Promise<void> {
    const { warmUp, iters, txDepth } = this.#plan;
    const affordable = Math.min(WARM_UP_MESSAGES, iters, Math.floor(WARM_UP_BYTES / bytes));
    let count = warmUp ?? Math.max(affordable, Math.min(txDepth, 16));
    count -= count % this.#plan.postList;
    count -= count % this.#plan.recvPostList;
    const isAlone = !isTwoSided(this.#plan) || this.#plan.verb !== 'send';
    const isWriteLat = this.#plan.verb === 'write' && this.#plan.test === 'lat';
    if (count === 0 || (!this.#isOwnKind && (!isAlone || isWriteLat))) return;
    // The number of the last WRITE must not be that of the first one to come.
    if (isWriteLat && (count & 255) === 1) count++;
    if (this.#plan.test === 'lat') {
      const run = new Latency({ ...this.#runOf(bytes), iters: count });
      if (this.#plan.verb === 'send') await this.#handshake();
      await run.measure();
      return;
    }
    const run = new Bandwidth({ ...this.#bandwidthRunOf(bytes), iters: count });
    if (this.#plan.verb === 'send') await this.#handshake();
    await run.measure();
  }

  #runOf(bytes: number) {
    const { context, signal } = this.#o;
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
      // One-sided in both directions: nobody waits for anybody.
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
    if (isSend || bidirectional) await this.#handshake();
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
    if (this.#plan.verb === 'send') await this.#handshake();
    const cpuStart = process.cpuUsage();
    const sample = await run.measure();
    const cpu = cpuSince(cpuStart, bytes, sample.messages);
    const times = report.waysOf(sample, this.#plan);
    await this.#list(times);
    const { durationSeconds, iters } = this.#plan;
    const iterations = durationSeconds === undefined ? iters : sample.messages;
    const latency = report.latencyRow(bytes, iterations, times);
    return { bytes, latency, seconds: sample.seconds, cpu, lost: sample.lost };
  }

  /** What our own kind tells of each size: CPU time, and to whom was worked on, the result. */
  async #exchangeUsage(row: Row | undefined, bytes: number): Promise<Row> {
    let cpuSeconds = 0;
    const usage = (): Buffer => {
      cpuSeconds = row?.cpu?.seconds ?? cpuSince(this.#cpuStart, 0, 0).seconds;
      return wire.encodeNote({ cpuSeconds, row });
    };
    const note = wire.decodeNote(await exchange(this.#control, wire.NOTE_BYTES, usage));
    const seconds = wire.numberOf(note['cpuSeconds']);
    if (row) return { ...row, peerCpu: { ...row.cpu!, seconds } };
    const theirs = readRow(note['row'], bytes);
    const { messages } = theirs;
    return {
      ...theirs.row,
      cpu: { seconds: cpuSeconds, bytes: bytes * messages, messages },
      peerCpu: { seconds, bytes: bytes * messages, messages },
    };
  }

  /** What follows the last size. */
  async #finish(): Promise<void> {
    const { verb, test, bidirectional } = this.#plan;
    // A WRITE's latency is over when the last one has come: nobody says so.
    if (test === 'lat' && verb === 'write') return;
    if (test === 'bw' && verb !== 'send' && !bidirectional) {
      await this.#handshake(Infinity);
      const local = this.#last && report.bandwidthRow(this.#last, this.#isGbits);
      const remote = await this.#exchangeReports(local);
      if (!this.#control.asks && !this.#isOwnKind) {
        await this.#add({ bytes: remote.bytes, bandwidth: remote, seconds: 0, lost: 0 });
      }
    }
    await this.#handshake(Infinity);
  }

  async #add(row: Row): Promise<void> {
    this.#rows.push(row);
    if (row.bandwidth) await this.#o.say(report.bandwidthLine(row.bandwidth, this.#isGbits));
    if (row.latency) {
      const isTimed = this.#plan.durationSeconds !== undefined;
      const line = isTimed
        ? report.latencyDurationLine(row.latency, row.seconds)
        : report.latencyLine(row.latency);
      await this.#o.say(line);
    }
    if (row.lost > 0) this.#o.complain(`${row.lost} messages of ${row.bytes} bytes are lost`);
  }

  /** `--histogram`, `--unsorted`. */
  async #list(times: Float64Array): Promise<void> {
    const { histogram, unsorted } = this.#o.options;
    for (const list of [
      unsorted ? times : undefined,
      histogram ? times.slice().sort() : undefined,
    ]) {
      if (!list) continue;
      await this.#o.say('#, usec');
      for (const [index, time] of list.entries()) {
        await this.#o.say(`${index + 1}, ${Number(time.toPrecision(6))}`);
      }
    }
    if (histogram || unsorted) await this.#columns();
  }

  async #head(): Promise<void> {
    const { context, say } = this.#o;
    const { gid, port } = context.local;
    const where = `${gid}, UDP port ${port}`;
    for (const line of report.planLines(this.#plan, where, 128 << this.#mtu)) await say(line);
    if (!(this.#o.options.histogram || this.#o.options.unsorted)) await this.#columns();
  }

  async #columns(): Promise<void> {
    if (this.#plan.test === 'bw') return this.#o.say(report.bandwidthHead(this.#isGbits));
    const isTimed = this.#plan.durationSeconds !== undefined;
    await this.#o.say(isTimed ? report.LATENCY_DURATION_HEAD : report.LATENCY_HEAD);
  }

  async #tail(): Promise<void> {
    const { say, options } = this.#o;
    await say(report.RULE);
    for (const side of options.reportBoth ? (['local', 'remote'] as const) : []) {
      await say(`\n ${side === 'local' ? 'Local' : 'Remote'} results: `);
      await this.#columns();
      for (const { both } of this.#rows) {
        if (both) await say(report.bandwidthLine(both[side], this.#isGbits));
      }
      await say(report.RULE);
    }
    const measured = this.#rows.filter(({ cpu }) => cpu);
    if (measured.length === 0) return;
    await say(report.CPU_HEAD);
    for (const { bytes, cpu, peerCpu } of measured) await say(report.cpuLine(bytes, cpu!, peerCpu));
    await say(report.RULE);
  }

  #json(): object {
    const { verb, test, connection, qps, txDepth, bidirectional } = this.#plan;
    const { retransmittedPkts } = this.#o.context.counters();
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
      rows: this.#rows.map((row) => report.jsonRow(row, this.#isGbits)),
    };
  }
}

function cpuSince(start: NodeJS.CpuUsage, bytes: number, messages: number): PerfCpu {
  const { user, system } = process.cpuUsage(start);
  return { seconds: (user + system) / 1e6, bytes: bytes * messages, messages };
}

/** A row as the other side says it: hostile, so it is made anew. */
function readRow(value: unknown, bytes: number): { row: Row; messages: number } {
  const said = (typeof value === 'object' && value !== null ? value : {}) as {
    readonly [name: string]: unknown;
  };
  const part = (name: string): { readonly [name: string]: unknown } => {
    const found = said[name];
    return typeof found === 'object' && found !== null ? (found as typeof said) : {};
  };
  const numbers = <Name extends string>(name: string, names: readonly Name[]) =>
    Object.fromEntries(names.map((one) => [one, wire.numberOf(part(name)[one])])) as {
      [One in Name]: number;
    };
  const seconds = wire.numberOf(said['seconds']);
  if ('latency' in said) {
    const latency = { ...numbers('latency', report.LATENCY_NAMES), bytes };
    return { row: { bytes, latency, seconds, lost: 0 }, messages: latency.iterations };
  }
  const bandwidth = {
    ...numbers('bandwidth', ['iters', 'peak', 'average', 'messageRate'] as const),
    bytes,
  };
  return { row: { bytes, bandwidth, seconds, lost: 0 }, messages: bandwidth.iters };
}
