/**
 * A stream of WRITEs over the network, as two programs:
 *
 *     node build/test/net/stream.js serve ADDRESS
 *     node build/test/net/stream.js send LOCAL REMOTE OPTIONS
 *
 * OPTIONS is JSON (StreamOptions). The sender prints a StreamResult as its only line.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import {
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
  connect,
  explainWcStatus,
  listen,
  openDevice,
  type Context,
  type RdmaConnection,
} from '../../host/index.js';
import type { DeviceOptions } from '../../host/device/device.js';
import { ALL_ACCESS } from '../support/pair.js';

const PORT = 7000;
const REGION_BYTES = 2 ** 20;
const MEMORY_BYTES = 512 * 2 ** 20;
/** Packets kept ahead of a gap, of all queue pairs together. */
const REORDER_PACKETS = 8192;
/** Between READs of the probe. */
const PROBE_MILLIS = 2;
const SLICE_MILLIS = 100;

export interface StreamOptions {
  readonly seconds: number;
  readonly qps?: number;
  /** Bytes of a request. */
  readonly size?: number;
  /** Requests under way, of each queue pair. */
  readonly depth?: number;
  readonly verb?: 'write' | 'read';
  /** A queue pair beside them READs 64 bytes, again and again. */
  readonly probes?: boolean;
  /** Connected, it makes the file `${gate}.ready`, and begins when the file `gate` is there. */
  readonly gate?: string;
  /** Of the sender's device. */
  readonly congestionControl?: Control;
  /** Of both sides; see `CmOptions`. */
  readonly payloadBytes?: number;
}

type Control = Exclude<DeviceOptions['congestionControl'], undefined>;
type SenderOptions = Required<Omit<StreamOptions, 'gate'>> & Pick<StreamOptions, 'gate'>;

export interface StreamResult {
  /** Payload of completed requests. */
  readonly mbps: number;
  readonly byQueuePair: readonly number[];
  /** Mbit/s in each tenth of a second. */
  readonly slices: readonly number[];
  /** Of the path, in the same times: packets of the window, milliseconds of a round trip. */
  readonly windows: readonly number[];
  readonly roundTrips: readonly number[];
  /** Queue pairs that completed nothing for a whole second. */
  readonly starved: number;
  readonly packets: number;
  readonly retransmitted: number;
  /** Congestion notifications of the receiver. */
  readonly notified: number;
  /** Round trips of the probe in milliseconds, in order. */
  readonly probes: readonly number[];
  /** Milliseconds of one request, in order. */
  readonly latencies: readonly number[];
  /** A sentence of each queue pair that failed, with when. */
  readonly errors: readonly string[];
}

interface Target {
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

const open = (address: string, congestionControl: Control = 'auto'): Promise<Context> =>
  openDevice({ address, memoryBytes: MEMORY_BYTES, congestionControl });

const capOf = (depth: number, qps: number) => ({
  maxSendWr: depth,
  maxRecvWr: 1,
  reorderPackets: Math.floor(REORDER_PACKETS / qps),
});

async function serve(address: string): Promise<void> {
  const context = await open(address);
  const listener = await listen({ address, port: PORT }, { context });
  const memory = context.alloc(REGION_BYTES);
  console.log('listening');
  for (;;) {
    const request = await listener.getRequest();
    if (!request) return;
    const mr = request.id.pd.regMr(memory, ALL_ACCESS);
    const privateData = Buffer.alloc(12);
    privateData.writeBigUInt64BE(mr.addr);
    privateData.writeUInt32BE(mr.rkey, 8);
    const wanted = Buffer.from(request.privateData);
    const qp = { cap: capOf(16, wanted.readUInt32BE()) };
    const payloadBytes = wanted.readUInt32BE(4);
    request
      .accept({ privateData, qp, payloadBytes, responderResources: 16 })
      .then((connection) => connection.disconnected)
      .catch((error: Error) => console.error(error.message));
  }
}

class Sender {
  readonly #options: SenderOptions;
  readonly #context: Context;
  readonly #byQueuePair: number[];
  readonly #slices: number[] = [];
  readonly #seconds: Set<number>[];
  readonly #latencies: number[] = [];
  readonly #probes: number[] = [];
  readonly #errors: string[] = [];
  readonly #windows: number[] = [];
  readonly #roundTrips: number[] = [];
  #began = 0;

  constructor(options: SenderOptions, context: Context) {
    this.#options = options;
    this.#context = context;
    this.#byQueuePair = Array.from({ length: options.qps }, () => 0);
    this.#seconds = this.#byQueuePair.map(() => new Set());
  }

  async run(remote: string): Promise<StreamResult> {
    const { qps, depth, seconds, probes, gate, payloadBytes } = this.#options;
    const target = { address: remote, port: PORT };
    const privateData = Buffer.alloc(8);
    privateData.writeUInt32BE(qps);
    privateData.writeUInt32BE(payloadBytes, 4);
    const make = (requests: number): Promise<RdmaConnection> =>
      connect(target, {
        context: this.#context,
        privateData,
        payloadBytes,
        qp: { cap: capOf(requests, qps) },
        initiatorDepth: 16,
        cqe: 2 * requests,
      });
    const connections: RdmaConnection[] = [];
    for (let index = 0; index < qps; index++) connections.push(await make(depth));
    const probe = probes ? await make(1) : undefined;
    if (gate !== undefined) {
      writeFileSync(`${gate}.ready`, '');
      while (!existsSync(gate)) await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const before = this.#context.counters();
    this.#began = performance.now();
    const watching = setInterval(() => this.#watch(connections[0]!), SLICE_MILLIS);
    const streams = connections.map((connection, index) => this.#stream(connection, index));
    await Promise.all(probe ? [...streams, this.#probe(probe)] : streams);
    clearInterval(watching);
    const after = this.#context.counters();
    const complete = Array.from({ length: Math.floor(seconds) }, (_, second) => second);
    const bits = (bytes: number, time: number): number => (bytes * 8) / 1e6 / time;
    return {
      mbps: bits(
        this.#byQueuePair.reduce((sum, bytes) => sum + bytes, 0),
        seconds,
      ),
      byQueuePair: this.#byQueuePair.map((bytes) => bits(bytes, seconds)),
      slices: Array.from(this.#slices, (bytes) => bits(bytes ?? 0, SLICE_MILLIS / 1000)),
      windows: this.#windows,
      roundTrips: this.#roundTrips,
      starved: this.#seconds.filter((own) => !complete.every((second) => own.has(second))).length,
      packets: Number(after.sentPkts - before.sentPkts),
      retransmitted: Number(after.retransmittedPkts - before.retransmittedPkts),
      notified: Number(after.cnpsReceived - before.cnpsReceived),
      probes: this.#probes.sort((a, b) => a - b),
      latencies: this.#latencies.sort((a, b) => a - b),
      errors: this.#errors,
    };
  }

  #watch({ qp }: RdmaConnection): void {
    const { windowPackets = 0, roundTripMicros = 0 } = qp.pathState() ?? {};
    this.#windows.push(windowPackets);
    this.#roundTrips.push(roundTripMicros / 1000);
  }

  get #millis(): number {
    return performance.now() - this.#began;
  }

  get #isOver(): boolean {
    return this.#millis >= this.#options.seconds * 1000;
  }

  async #stream(connection: RdmaConnection, index: number): Promise<void> {
    const { size, depth, verb } = this.#options;
    const memory = this.#context.alloc(size);
    const mr = connection.pd.regMr(memory, ALL_ACCESS);
    const request = {
      opcode: verb === 'read' ? WrOpcode.RDMA_READ : WrOpcode.RDMA_WRITE,
      sgList: [{ addr: mr.addr, length: size, lkey: mr.lkey }],
      rdma: targetOf(connection),
      sendFlags: SendFlag.SIGNALED,
    };
    const posted: number[] = [];
    const post = (): void => {
      posted.push(this.#millis);
      connection.qp.postSend(request);
    };
    while (posted.length < depth) post();
    while (!this.#isOver) {
      const completions = await connection.sendCq.wait(64);
      const millis = this.#millis;
      const failed = completions.find(({ status }) => status !== WcStatus.SUCCESS);
      if (failed || completions.length === 0) {
        const status = failed
          ? `${WcStatusName[failed.status]} (${explainWcStatus(failed.status, failed.vendorErr)})`
          : 'the device is gone';
        this.#errors.push(`queue pair ${index}: ${status} after ${millis.toFixed(0)} ms`);
        return;
      }
      if (this.#isOver) return;
      for (let count = completions.length; count > 0; count--) {
        this.#complete(index, size, posted.shift()!, millis);
        post();
      }
    }
  }

  #complete(index: number, bytes: number, posted: number, millis: number): void {
    this.#byQueuePair[index]! += bytes;
    const slice = Math.floor(millis / SLICE_MILLIS);
    this.#slices[slice] = (this.#slices[slice] ?? 0) + bytes;
    this.#seconds[index]!.add(Math.floor(millis / 1000));
    this.#latencies.push(millis - posted);
  }

  async #probe(connection: RdmaConnection): Promise<void> {
    const mr = connection.pd.regMr(this.#context.alloc(64), ALL_ACCESS);
    const request = {
      opcode: WrOpcode.RDMA_READ,
      sgList: [{ addr: mr.addr, length: 64, lkey: mr.lkey }],
      rdma: targetOf(connection),
      sendFlags: SendFlag.SIGNALED,
    };
    while (!this.#isOver) {
      const began = performance.now();
      connection.qp.postSend(request);
      const [completion] = await connection.sendCq.wait(1);
      if (completion?.status !== WcStatus.SUCCESS) {
        this.#errors.push(`probe: ${WcStatusName[completion?.status ?? -1]}`);
        return;
      }
      this.#probes.push(performance.now() - began);
      await new Promise((resolve) => setTimeout(resolve, PROBE_MILLIS));
    }
  }
}

function targetOf({ param }: RdmaConnection): Target {
  const data = Buffer.from(param.privateData ?? []);
  return { remoteAddr: data.readBigUInt64BE(), rkey: data.readUInt32BE(8) };
}

async function send(local: string, remote: string, given: StreamOptions): Promise<void> {
  const defaults = {
    qps: 1,
    size: 65536,
    depth: 128,
    verb: 'write',
    probes: false,
    payloadBytes: 0,
  } as const;
  const context = await open(local, given.congestionControl);
  const sender = new Sender({ congestionControl: 'auto', ...defaults, ...given }, context);
  const line = `${JSON.stringify(await sender.run(remote))}\n`;
  // A reader that is slow has not taken all of a long line yet.
  process.stdout.write(line, () => process.exit(0));
}

if (import.meta.url === pathToFileURL(process.argv[1]!).href) {
  const [role, ...words] = process.argv.slice(2);
  if (role === 'serve') await serve(words[0]!);
  else await send(words[0]!, words[1]!, JSON.parse(words[2]!) as StreamOptions);
}
