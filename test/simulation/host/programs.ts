/**
 * Programs of the simulated processes, on real host code: an echo service, clients that connect and
 * check the echoes, and a pool of regions with connections that die. The programs are correct:
 * every error that they get must be documented.
 */
import { AccessFlag, SendFlag, WcStatus, WrOpcode } from '#build/abi.js';
import {
  connect,
  listen,
  type RdmaConnection,
  type RdmaListener,
} from '../../../host/cm/connect.js';
import { createEventChannel } from '../../../host/cm/event-channel.js';
import type { Clock } from '../../../host/device/clock.js';
import { LinkError, MisuseError, RefusalError } from '../../../host/errors/errors.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import type { Link } from '../../../host/link/link.js';
import { createFmrPool } from '../../../host/pool/create-fmr-pool.js';
import type { Context } from '../../../host/verbs/context.js';
import { openDevice } from '../../../host/verbs/open-device.js';
import type { MemoryRegion } from '../../../host/verbs/regions/memory-region.js';
import type { QueuePair } from '../../../host/verbs/queues/queue-pair.js';

export { Endpoint, MisuseError };

const MESSAGE_BYTES = 32;
const RECEIVES = 4;
const PORT = 7000;
const CAP = { maxSendWr: 16, maxRecvWr: 16, maxInlineData: MESSAGE_BYTES };
/** Documented errors of `connect` and `accept`. */
const SAID = new Set(['ECONNREFUSED', 'ETIMEDOUT', 'ECONNRESET', 'EINVAL', 'EIO']);
/** A response timeout of a second, so that a dead peer is detected soon. */
const WAITS = { cmResponseTimeout: 16, maxCmRetries: 3 };

/** Longer than TIMEWAIT. */
const LINGER_MILLIS = 20_000;

/** One process with its device. */
export class HostProcess {
  readonly context: Context;
  /** True: the application has closed its context. */
  isClosing = false;
  listener: RdmaListener | undefined;
  readonly connections = new Set<RdmaConnection>();
  /** Echoed messages, and attempts to connect that failed with a documented error. */
  echoes = 0;
  refusals = 0;
  readonly #bytesFree: number;
  /** Number of pools so far: each has a name of its own. */
  #pools = 0;

  private constructor(context: Context) {
    this.context = context;
    // The connection manager allocates memory once.
    const channel = createEventChannel(context);
    void channel.createId().pd;
    channel.destroy();
    this.#bytesFree = context.device.arena.heap.bytesFree;
  }

  static async open(link: Link, clock: Clock): Promise<HostProcess> {
    const limits = { queuePairsMax: 64, completionQueuesMax: 128, regionsMax: 128 };
    return new HostProcess(await openDevice({ link, clock, memoryBytes: 8 * 2 ** 20, ...limits }));
  }

  /** Serves until the listener is closed. */
  async serve(address: string): Promise<void> {
    await this.#correctly('serve', async () => {
      const { context } = this;
      this.listener = await listen({ address, port: PORT }, { context });
      const sessions: Promise<void>[] = [];
      for await (const request of this.listener) {
        sessions.push(
          this.#correctly('accept', async () => {
            await this.#withMemory(async (memory) => {
              const prepare = (qp: QueuePair): void => memory.prepare(qp);
              const connection = await request.accept({ qp: { cap: CAP }, ...WAITS }, prepare);
              await this.#echo(connection, memory);
            });
          }),
        );
      }
      // Every later call sees the closed listener.
      if (await this.listener.getRequest()) throw new Error('a closed listener has a request');
      await Promise.all(sessions);
    });
  }

  /**
   * Connects, sends `count` messages, checks the echoes, and closes. `lingers`: closes long after
   * the connection has ended.
   */
  async call(address: string, udpPort: number, count: number, lingers: boolean): Promise<void> {
    await this.#withConnection('call', async (memory) => {
      const connection = await this.#connect(address, udpPort, memory);
      this.connections.add(connection);
      try {
        for (let message = 0; message < count; message++) {
          post(connection.qp, message);
          if (!(await this.#expect(connection, memory, message))) break;
        }
      } finally {
        this.connections.delete(connection);
        await this.#close(connection, lingers);
      }
    });
  }

  /** Registers a pool's regions over a connection that may die; all of them return to the pool. */
  async lend(address: string, udpPort: number, rounds: number): Promise<void> {
    await this.#withConnection('lend', async (memory) => {
      const { context } = this;
      const connection = await this.#connect(address, udpPort, memory);
      this.connections.add(connection);
      const ulp = `pool ${++this.#pools}`;
      const pool = createFmrPool(context, undefined, {
        ulp,
        maxLength: 4096,
        mrsMax: 8,
        mrsMin: 4,
      });
      const user = pool.createUser(1);
      const buffer = context.alloc(4096);
      const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
      const { SIGNALED: sendFlags } = SendFlag;
      const { qp, sendCq } = connection;
      try {
        for (let round = 0; round < rounds; round++) {
          const desc = user.getMr();
          if (!desc) throw new Error('a pool of 8 regions has none');
          // The user's own region may still be registered: its LOCAL_INV is in flight.
          const regMr = desc.regMr(buffer, access);
          qp.postSend({ opcode: WrOpcode.REG_MR, sendFlags, regMr });
          const [made] = await sendCq.wait(1);
          if (made?.status !== WcStatus.SUCCESS) break;
          // The connection may die while the region is registered.
          post(qp, round);
          if (!(await this.#expect(connection, memory, round))) break;
          const invalidateRkey = desc.mr.rkey;
          qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey });
          const [gone] = await sendCq.wait(1);
          if (gone?.status !== WcStatus.SUCCESS) break;
          user.putMr(desc);
        }
      } finally {
        this.connections.delete(connection);
        if (!this.isClosing) {
          user.abandon();
          const { total, free, inBuckets } = pool.stats;
          if (free + inBuckets !== total)
            throw new Error(`${free} + ${inBuckets} of ${total} left`);
          pool.destroy();
          context.free(buffer);
        }
        await connection.close();
      }
    });
  }

  /** The application ends: closes all its objects. */
  async close(): Promise<void> {
    this.isClosing = true;
    await this.context.close();
  }

  /** A leak after all programs have ended; undefined: no leak. */
  leaks(): string | undefined {
    const { heap } = this.context.device.arena;
    const missing = this.#bytesFree - heap.bytesFree;
    return missing === 0 ? undefined : `${missing} bytes were not freed`;
  }

  /** Both calls succeed, however long ago the connection has ended. */
  async #close(connection: RdmaConnection, lingers: boolean): Promise<void> {
    if (lingers) await new Promise((resolve) => setTimeout(resolve, LINGER_MILLIS));
    try {
      await connection.close();
    } catch (error) {
      if (this.isClosing) throw error;
      throw new Error('close of a connection was refused', { cause: error });
    }
  }

  async #withConnection(what: string, program: (memory: Memory) => Promise<void>): Promise<void> {
    await this.#correctly(what, () => this.#withMemory(program));
  }

  async #withMemory(program: (memory: Memory) => Promise<void>): Promise<void> {
    const memory = new Memory(this.context);
    try {
      await program(memory);
    } finally {
      if (!this.isClosing) memory.release();
    }
  }

  #connect(address: string, udpPort: number, memory: Memory): Promise<RdmaConnection> {
    const options = { context: this.context, udpPort, qp: { cap: CAP }, ...WAITS };
    return connect({ address, port: PORT }, options, (qp) => memory.prepare(qp));
  }

  /** Runs a program, and checks its end. */
  async #correctly(what: string, program: () => Promise<void>): Promise<void> {
    try {
      await program();
    } catch (error) {
      const isRefusal = error instanceof RefusalError && (this.isClosing || SAID.has(error.code));
      const isSaid = isRefusal || error instanceof LinkError;
      if (this.isClosing && (isSaid || error instanceof MisuseError)) return;
      if (!isSaid) throw new Error(`${what}: ${(error as Error).stack ?? String(error)}`);
      this.refusals++;
    }
  }

  async #echo(connection: RdmaConnection, memory: Memory): Promise<void> {
    this.connections.add(connection);
    try {
      for (;;) {
        const completions = await connection.recvCq.wait();
        if (completions.length === 0) return;
        for (const wc of completions) {
          if (wc.status !== WcStatus.SUCCESS) return;
          const bytes = memory.take(Number(wc.wrId), connection.qp);
          connection.qp.postSend({
            opcode: WrOpcode.SEND,
            sendFlags: SendFlag.INLINE,
            inline: bytes,
          });
        }
        connection.sendCq.poll(16);
      }
    } finally {
      this.connections.delete(connection);
      await connection.close();
    }
  }

  async #expect(connection: RdmaConnection, memory: Memory, message: number): Promise<boolean> {
    const [wc] = await connection.recvCq.wait(1);
    if (!wc || wc.status !== WcStatus.SUCCESS) return false;
    const bytes = memory.take(Number(wc.wrId), connection.qp);
    if (!bytes.every((byte) => byte === (message & 0xff))) {
      throw new Error(`message ${message} came back as ${bytes[0]}`);
    }
    this.echoes++;
    connection.sendCq.poll(16);
    return true;
  }
}

/** Receives of one connection: memory of its own, posted before the peer can send. */
class Memory {
  readonly #context: Context;
  readonly #buffer: Uint8Array;
  #mr: MemoryRegion | undefined;

  constructor(context: Context) {
    this.#context = context;
    this.#buffer = context.alloc(RECEIVES * MESSAGE_BYTES);
  }

  prepare(qp: QueuePair): void {
    this.#mr = qp.pd.regMr(this.#buffer, AccessFlag.LOCAL_WRITE);
    for (let index = 0; index < RECEIVES; index++) this.#post(qp, index);
  }

  /** Returns the received bytes, and posts the receive again. */
  take(index: number, qp: QueuePair): Uint8Array {
    const bytes = this.#piece(index).slice();
    this.#post(qp, index);
    return bytes;
  }

  release(): void {
    this.#mr?.dereg();
    this.#context.free(this.#buffer);
  }

  #piece(index: number): Uint8Array {
    return this.#buffer.subarray(index * MESSAGE_BYTES, (index + 1) * MESSAGE_BYTES);
  }

  #post(qp: QueuePair, index: number): void {
    const { byteOffset: addr, length } = this.#piece(index);
    qp.postRecv({ wrId: index, sgList: [{ addr, length, lkey: this.#mr!.lkey }] });
  }
}

function post(qp: QueuePair, message: number): void {
  const inline = new Uint8Array(MESSAGE_BYTES).fill(message);
  qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.INLINE, inline });
}
