/** One member as others see it: memory that they write and read, ledgers, answers to messages. */
import {
  AccessFlag,
  SendFlag,
  WcStatus,
  WrOpcode,
  type Context,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type PersistentMemory,
  type ProtectionDomain,
  type RdmaConnection,
  type RdmaListener,
  type RdmaRequest,
} from '../../host/index.js';
import { RECORD_RING_BYTES, fillPattern } from './record-ring.js';

export const SCRATCH_BYTES = 8192;
/** A message: kind, number, and for POOL where an answer is to be written. */
export const MESSAGE_BYTES = 24;
export const Kind = { ECHO: 1, POOL: 2 } as const;
export const POOL_BYTES = 256;
/** A matrix of 32 rows; a peer reads a column by one request. */
export const SIDE = 32;
export const COLUMN = 7;
const RECEIVES = 8;

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC } = AccessFlag;
const { FLUSH_GLOBAL, FLUSH_PERSISTENT, ZERO_BASED } = AccessFlag;

export class Service {
  readonly #listener: RdmaListener;
  readonly #context: Context;
  readonly #pd: ProtectionDomain;
  readonly #ledgers: MemoryRegion;
  readonly #column: LayoutMemoryRegion;
  readonly #complain: (sentence: string) => void;
  readonly #serving = new Set<Promise<void>>();
  /** By writer. A killed writer sends no DREQ: its connection ends when its successor connects. */
  readonly #connections = new Map<number, RdmaConnection>();
  #isClosed = false;

  constructor(
    listener: RdmaListener,
    pmem: PersistentMemory,
    complain: (sentence: string) => void,
  ) {
    const { context } = listener;
    this.#listener = listener;
    this.#context = context;
    this.#complain = complain;
    this.#pd = context.allocPd();
    const access = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | FLUSH_GLOBAL | FLUSH_PERSISTENT;
    this.#ledgers = this.#pd.regMr(pmem.buffer, access);
    const matrix = this.#pd.regMr(context.alloc(SIDE * SIDE * 8), LOCAL_WRITE | REMOTE_READ);
    fillPattern(matrix.buffer, SIDE);
    this.#column = this.#pd.regMr(null, 0, LOCAL_WRITE | REMOTE_READ | ZERO_BASED);
    const addr = matrix.addr + BigInt(COLUMN * 8);
    const firstDatum = { addr, length: 8, lkey: matrix.lkey };
    const dims = [{ offsetStride: SIDE * 8, datumCount: SIDE }];
    this.#column.setLayoutInterleaved(0, [{ firstDatum, dims }]);
    void this.#accept();
  }

  /** Until every connection has ended. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#listener.close();
    for (const connection of this.#connections.values()) await connection.close();
    await Promise.all(this.#serving);
  }

  async #accept(): Promise<void> {
    for await (const request of this.#listener) {
      const serving = this.#serve(request).catch((error: unknown) => {
        this.#complain(`serving failed: ${(error as Error).stack}`);
      });
      this.#serving.add(serving);
      void serving.then(() => this.#serving.delete(serving));
    }
  }

  async #serve(request: RdmaRequest): Promise<void> {
    const writer = request.privateData[0]!;
    const all = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    const scratch = this.#pd.regMr(this.#context.alloc(SCRATCH_BYTES), all);
    const counter = this.#pd.regMr(this.#context.alloc(8), all);
    const inbox = this.#pd.regMr(this.#context.alloc(RECEIVES * MESSAGE_BYTES), LOCAL_WRITE);
    const answer = this.#pd.regMr(this.#context.alloc(POOL_BYTES), LOCAL_WRITE);
    const regions = [scratch, counter, inbox, answer];
    let connection: RdmaConnection | undefined;
    try {
      const ring = this.#ledgers.addr + BigInt(writer * RECORD_RING_BYTES);
      const told = [scratch, counter, this.#column, { addr: ring, rkey: this.#ledgers.rkey }];
      const privateData = Buffer.alloc(told.length * 12);
      told.forEach(({ addr, rkey }, index) => {
        privateData.writeBigUInt64BE(BigInt(addr), index * 12);
        privateData.writeUInt32BE(rkey, index * 12 + 8);
      });
      const post = (index: number, qp = connection!.qp): void => {
        const addr = inbox.addr + BigInt(index * MESSAGE_BYTES);
        qp.postRecv({ wrId: index, sgList: [{ addr, length: MESSAGE_BYTES, lkey: inbox.lkey }] });
      };
      connection = await request.accept({ pd: this.#pd, privateData }, (qp) => {
        for (let index = 0; index < RECEIVES; index++) post(index, qp);
      });
      // A writer that connects during the close gets no service.
      if (this.#isClosed) return;
      const before = this.#connections.get(writer);
      this.#connections.set(writer, connection);
      void before?.close();
      await this.#answer(connection, inbox, answer, post);
      await connection.disconnected;
    } catch (error) {
      // The writer has gone in the meantime: it was killed, or stopped for too long. Or its
      // successor has connected, and closed this connection in the middle of an answer.
      const isClosed = connection && this.#connections.get(writer) !== connection;
      const { code } = error as { code?: string };
      if (code === undefined && !isClosed && !this.#isClosed) throw error;
    } finally {
      await connection?.close();
      if (this.#connections.get(writer) === connection) this.#connections.delete(writer);
      for (const region of regions) {
        const { buffer } = region;
        region.dereg();
        this.#context.free(buffer);
      }
    }
  }

  /** Messages in order, each once, until the connection ends. */
  async #answer(
    { qp, recvCq, sendCq }: RdmaConnection,
    inbox: MemoryRegion,
    answer: MemoryRegion,
    post: (index: number) => void,
  ): Promise<void> {
    for (let expected = 1; ; expected++) {
      const [received] = await recvCq.wait(1);
      if (received?.status !== WcStatus.SUCCESS) return;
      const index = Number(received.wrId);
      const { buffer } = inbox;
      const message = new DataView(
        buffer.slice(index * MESSAGE_BYTES, (index + 1) * MESSAGE_BYTES).buffer,
      );
      const number = message.getUint32(4);
      if (number !== expected) this.#complain(`message ${number} came in place of ${expected}`);
      post(index);
      if (message.getUint32(0) === Kind.ECHO) {
        qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED });
      } else {
        const rkey = message.getUint32(16);
        fillPattern(answer.buffer, number);
        const sgList = [{ addr: answer.addr, length: POOL_BYTES, lkey: answer.lkey }];
        const rdma = { remoteAddr: message.getBigUint64(8), rkey };
        qp.postSend([
          { opcode: WrOpcode.RDMA_WRITE, sgList, rdma },
          {
            opcode: WrOpcode.SEND_WITH_INV,
            invalidateRkey: rkey,
            sendFlags: SendFlag.SIGNALED,
          },
        ]);
      }
      const [sent] = await sendCq.wait(1);
      if (sent?.status !== WcStatus.SUCCESS) return;
    }
  }
}
