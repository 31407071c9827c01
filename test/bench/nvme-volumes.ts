/**
 * Volumes of our NVMe initiator, a connection and a queue each, on our target: the load generator
 * of seed 002's comparison. Two devices in one thread over the loopback link, in virtual time; the
 * target takes as long as a medium does.
 */
import {
  Endpoint,
  LoopbackNetwork,
  NvmeRamStore,
  NvmeTarget,
  RefusalError,
  VirtualClock,
  connectNvme,
  createFmrPool,
  nvmeResponseTimes,
  openDevice,
  type ConnectNvmeOptions,
  type Context,
  type FmrPool,
  type FmrPoolParams,
  type NvmeMedium,
  type NvmeVolume,
  type OpenOptions,
} from '../../host/index.js';

/** Longer than what goes in a capsule, so that each request needs a region. */
export const IO_BYTES = 8192;
const NQN = 'nqn.2026-01.dev.verbena:bench';
const TARGET = '127.0.0.1';
const HOST = '127.0.0.2';
const UDP_PORT = 4791;
const BLOCK_BYTES = 512;
/** Each volume has a part of the namespace. */
const PART_BYTES = 128 * IO_BYTES;
const DEPTH = 127;
const BUFFERS = 4096;

/** A volume, and its requests. */
export class LoadedVolume {
  readonly name: string;
  readonly nvme: NvmeVolume;
  readonly index: number;
  asked = 0;
  done = 0;
  readonly latencies: number[] = [];

  constructor(name: string, nvme: NvmeVolume, index: number) {
    this.name = name;
    this.nvme = nvme;
    this.index = index;
  }

  /** Its regions: in hand now; and commands that stood in line for one. */
  get inUse(): number {
    return this.nvme.stats.regions.inUse;
  }

  get regionWaits(): number {
    return this.nvme.stats.regionWaits;
  }
}

export class NvmeVolumes {
  readonly clock: VirtualClock;
  readonly volumes: LoadedVolume[] = [];
  readonly pool: FmrPool;
  failed = 0;
  readonly #network: LoopbackNetwork;
  readonly #host: Context;
  readonly #device: Context;
  readonly #target: NvmeTarget;
  readonly #memory: Uint8Array;
  readonly #free = Array.from({ length: BUFFERS }, (_, index) => index);
  #asked = 0;
  #failure: Error | undefined;

  private constructor(
    clock: VirtualClock,
    network: LoopbackNetwork,
    [host, device]: readonly [Context, Context],
    target: NvmeTarget,
    params: FmrPoolParams,
  ) {
    this.clock = clock;
    this.#network = network;
    this.#host = host;
    this.#device = device;
    this.#target = target;
    this.#memory = host.alloc(BUFFERS * IO_BYTES);
    this.pool = createFmrPool(host, undefined, params);
  }

  static async open(
    medium: NvmeMedium,
    volumesMax: number,
    params: FmrPoolParams,
  ): Promise<NvmeVolumes> {
    const clock = new VirtualClock();
    const network = new LoopbackNetwork({ auto: false });
    const open = (address: string): Promise<Context> => {
      const link = network.link(Endpoint.parse(address, UDP_PORT));
      const sizes = { memoryBytes: 512 * 2 ** 20, regionsMax: 4096 };
      return openDevice({ ...sizes, link, clock } as OpenOptions);
    };
    const device = await open(TARGET);
    const host = await open(HOST);
    const target = await NvmeTarget.open(device, {
      store: new NvmeRamStore(device, volumesMax * PART_BYTES),
      nqn: NQN,
      delayMicros: nvmeResponseTimes(medium, 7),
      // All volumes are of one host, with an admin queue and an I/O queue each.
      queuesMax: 2 * volumesMax,
      queuesPerSource: 2 * volumesMax,
    });
    return new NvmeVolumes(clock, network, [host, device], target, params);
  }

  /** Connects one more; `use` gets it. One that fails is counted. */
  join(
    name: string,
    options: Partial<ConnectNvmeOptions>,
    use: (volume: LoadedVolume) => void,
  ): void {
    const index = this.volumes.length + this.failed;
    const { pool } = this;
    const fixed = { nqn: NQN, context: this.#host, pool, queueDepth: DEPTH, keepAliveMillis: 0 };
    connectNvme(TARGET, { ...fixed, ...options }).then(
      (nvme) => {
        const volume = new LoadedVolume(name, nvme, index);
        this.volumes.push(volume);
        use(volume);
      },
      (error: Error) => {
        this.failed++;
        const isFull = error instanceof RefusalError && error.code === 'ENOMEM';
        if (!isFull) this.#failure ??= error;
      },
    );
  }

  /** A request comes. `then`: it is done. */
  ask(volume: LoadedVolume, isWrite: boolean, then?: () => void): void {
    const slot = this.#free.pop();
    if (slot === undefined) throw new Error('more requests under way than there are buffers');
    volume.asked++;
    const mark = ++this.#asked;
    const buffer = this.#memory.subarray(slot * IO_BYTES, (slot + 1) * IO_BYTES);
    const words = new DataView(buffer.buffer, buffer.byteOffset, IO_BYTES);
    // A written block names its place; a block that was read must name the place it was read from.
    const place = (volume.index * PART_BYTES) / IO_BYTES + (mark % (PART_BYTES / IO_BYTES));
    words.setUint32(IO_BYTES - 8, isWrite ? place : 0xffffffff);
    const born = this.clock.now();
    const lba = (place * IO_BYTES) / BLOCK_BYTES;
    const moved = isWrite ? volume.nvme.write(lba, buffer) : volume.nvme.read(lba, buffer);
    moved.then(
      () => {
        const found = words.getUint32(IO_BYTES - 8);
        if (found !== place && (isWrite || found !== 0)) {
          this.#failure ??= new Error(`${volume.name}: other bytes than its own`);
        }
        this.#free.push(slot);
        volume.done++;
        volume.latencies.push(this.clock.now() - born);
        then?.();
      },
      (error: Error) => (this.#failure ??= error),
    );
  }

  /** Lets time pass until `micros`. */
  async runUntil(micros: number): Promise<void> {
    for (;;) {
      await this.#settle();
      const next = this.clock.nextMicros();
      if (next === undefined || next > micros) break;
      this.clock.step();
    }
    if (this.clock.now() < micros) this.clock.advance(micros - this.clock.now());
  }

  async close(): Promise<void> {
    const closing = Promise.all(this.volumes.map(({ nvme }) => nvme.close()));
    let isClosed = false;
    void closing.then(() => (isClosed = true));
    while (!isClosed) {
      await this.#settle();
      if (!isClosed) this.clock.step();
    }
    this.pool.destroy();
    await this.#target.close();
    await this.#host.close();
    await this.#device.close();
  }

  /** Until nothing moves without time. */
  async #settle(): Promise<void> {
    do await new Promise<void>((done) => setImmediate(done));
    while (this.#network.deliver() > 0);
    if (this.#failure) throw this.#failure;
  }
}
