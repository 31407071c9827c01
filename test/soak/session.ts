/** A connection to another member, and all that is done over it until one of both has gone. */
import {
  AccessFlag,
  PlacementType,
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  type Context,
  type FmrPool,
  type MemoryRegion,
  type RdmaConnection,
  type SendWorkRequest,
} from '../../host/index.js';
import { invalidateAll } from '../../host/nvme/reclaim.js';
import { Random } from '../simulation/random.js';
import {
  RECORD_BYTES,
  fillPattern,
  fillRecord,
  hasPattern,
  putWord,
  readWord,
} from './record-ring.js';
import { recordAt } from './record-ring.js';
import type { PeerPlace } from './messages.js';
import { COLUMN, Kind, MESSAGE_BYTES, POOL_BYTES, SCRATCH_BYTES, SIDE } from './service.js';

/** Of our own memory: words, records, blocks, and a message. */
const LOCAL_BYTES = 2 * SCRATCH_BYTES + 256;
/** Of silence, before we look whether the peer is there. */
const ALIVE_MILLIS = 500;
const [READ_AT, WRITE_AT, SMALL_AT] = [0, SCRATCH_BYTES, 2 * SCRATCH_BYTES];
const { LOCAL_WRITE, REMOTE_WRITE } = AccessFlag;

/** The peer has gone, or the wire was too bad for too long. */
export class Ended extends Error {}

export interface SessionEvents {
  done(what: string): void;
  acknowledged(owner: number, count: number): void;
  found(owner: number, count: number): void;
  violation(sentence: string): void;
}

interface Remote {
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

export class Session {
  readonly #connection: RdmaConnection;
  readonly #peer: PeerPlace;
  readonly #self: number;
  readonly #pool: FmrPool;
  readonly #random: Random;
  readonly #events: SessionEvents;
  readonly #local: MemoryRegion;
  readonly #told: readonly Remote[];
  /** Records in our ring there. */
  #count = 0;
  #counter = 0n;
  #messages = 0;

  private constructor(
    connection: RdmaConnection,
    peer: PeerPlace,
    self: number,
    pool: FmrPool,
    random: Random,
    events: SessionEvents,
  ) {
    this.#connection = connection;
    this.#peer = peer;
    this.#self = self;
    this.#pool = pool;
    this.#random = random;
    this.#events = events;
    const { pd, context, privateData } = connection;
    this.#local = pd.regMr(context.alloc(LOCAL_BYTES), LOCAL_WRITE);
    const told = new DataView(privateData.buffer, privateData.byteOffset);
    this.#told = [0, 1, 2, 3].map((index) => ({
      remoteAddr: told.getBigUint64(index * 12),
      rkey: told.getUint32(index * 12 + 8),
    }));
  }

  /** Connects, works until `isOver`, and gives everything back. Rejects only with what is wrong. */
  static async run(
    context: Context,
    pool: FmrPool,
    peer: PeerPlace,
    self: number,
    random: Random,
    events: SessionEvents,
    isOver: () => boolean,
  ): Promise<void> {
    const { port, udpPort } = peer;
    const options = { context, udpPort, maxCmRetries: 4, ackTimeout: 14 };
    const privateData = Uint8Array.of(self);
    const connection = await connect(`127.0.0.1:${port}`, { ...options, privateData });
    events.done('connect');
    const session = new Session(connection, peer, self, pool, random, events);
    try {
      await session.#work(isOver);
    } catch (error) {
      if (!(error instanceof Ended)) throw error;
    } finally {
      await connection.close();
      const { buffer } = session.#local;
      session.#local.dereg();
      context.free(buffer);
    }
  }

  async #work(isOver: () => boolean): Promise<void> {
    const works = [
      () => this.#append(),
      () => this.#writeAndRead(),
      () => this.#add(),
      () => this.#readColumn(),
      () => this.#echo(),
      () => this.#borrow(),
    ];
    await this.#findLedger();
    while (!isOver()) await works[this.#random.below(works.length)]!();
  }

  #sge(offset: number, length: number) {
    const { addr, lkey } = this.#local;
    return [{ addr: addr + BigInt(offset), length, lkey }];
  }

  #bytes(offset: number, length: number): Uint8Array {
    return this.#local.buffer.subarray(offset, offset + length);
  }

  /** Requests of which the last one completes. */
  async #do(...requests: SendWorkRequest[]): Promise<void> {
    const last = requests.length - 1;
    requests[last] = { ...requests[last]!, sendFlags: SendFlag.SIGNALED };
    this.#connection.qp.postSend(requests);
    const [completion] = await this.#connection.sendCq.wait(1);
    if (completion?.status !== WcStatus.SUCCESS) throw new Ended(`${completion?.status}`);
  }

  #ring(offset: number): Remote {
    const { remoteAddr, rkey } = this.#told[3]!;
    return { remoteAddr: remoteAddr + BigInt(offset), rkey };
  }

  async #findLedger(): Promise<void> {
    await this.#do({
      opcode: WrOpcode.RDMA_READ,
      sgList: this.#sge(SMALL_AT, 8),
      rdma: this.#ring(0),
    });
    const count = readWord(this.#bytes(SMALL_AT, 8));
    if (count === undefined) this.#events.violation('a word was read torn');
    this.#count = count ?? 0;
    this.#events.found(this.#peer.member, this.#count);
  }

  /** A record, and when it is durable the word that counts it; durable, too, when it resolves. */
  async #append(): Promise<void> {
    const number = this.#count + 1;
    fillRecord(this.#bytes(SMALL_AT, RECORD_BYTES), this.#self, number);
    putWord(this.#bytes(SMALL_AT + RECORD_BYTES, 8), number);
    const [record, word] = [this.#ring(recordAt(number)), this.#ring(0)];
    const type = PlacementType.PERSISTENT;
    const flush = (where: Remote, length: number): SendWorkRequest => {
      return { opcode: WrOpcode.FLUSH, flush: { ...where, length, type } };
    };
    const [recordSge, wordSge] = [
      this.#sge(SMALL_AT, RECORD_BYTES),
      this.#sge(SMALL_AT + RECORD_BYTES, 8),
    ];
    await this.#do(
      { opcode: WrOpcode.RDMA_WRITE, sgList: recordSge, rdma: record },
      flush(record, RECORD_BYTES),
      { opcode: WrOpcode.ATOMIC_WRITE, sgList: wordSge, rdma: word },
      flush(word, 8),
    );
    this.#count = number;
    this.#events.acknowledged(this.#peer.member, number);
    this.#events.done('flush');
  }

  async #writeAndRead(): Promise<void> {
    const length = 1 + this.#random.below(SCRATCH_BYTES);
    const seed = this.#random.below(2 ** 31);
    fillPattern(this.#bytes(WRITE_AT, length), seed);
    const rdma = this.#told[0]!;
    await this.#do(
      { opcode: WrOpcode.RDMA_WRITE, sgList: this.#sge(WRITE_AT, length), rdma },
      { opcode: WrOpcode.RDMA_READ, sgList: this.#sge(READ_AT, length), rdma },
    );
    if (!hasPattern(this.#bytes(READ_AT, length), seed)) {
      this.#events.violation(`${length} bytes were read that are not those that were written`);
    }
    this.#events.done('write and read');
  }

  /** No other session adds there: the old value is known. */
  async #add(): Promise<void> {
    const amount = BigInt(1 + this.#random.below(1000));
    await this.#do({
      opcode: WrOpcode.ATOMIC_FETCH_AND_ADD,
      sgList: this.#sge(SMALL_AT, 8),
      atomic: { ...this.#told[1]!, compareAdd: amount },
    });
    const before = new DataView(this.#bytes(SMALL_AT, 8).slice().buffer).getBigUint64(0, true);
    if (before !== this.#counter) {
      this.#events.violation(`a counter was ${before}, after additions of ${this.#counter}`);
    }
    this.#counter = before + amount;
    this.#events.done('atomic');
  }

  async #readColumn(): Promise<void> {
    const sgList = this.#sge(READ_AT, SIDE * 8);
    await this.#do({ opcode: WrOpcode.RDMA_READ, sgList, rdma: this.#told[2]! });
    const matrix = new Uint8Array(SIDE * SIDE * 8);
    fillPattern(matrix, SIDE);
    for (let row = 0; row < SIDE; row++) {
      const cell = this.#bytes(READ_AT + row * 8, 8);
      const at = (row * SIDE + COLUMN) * 8;
      if (cell.every((byte, index) => byte === matrix[at + index])) continue;
      this.#events.violation(`row ${row} of a column is wrong`);
      break;
    }
    this.#events.done('layout');
  }

  async #say(kind: number, addr: bigint, rkey: number, first?: SendWorkRequest): Promise<void> {
    const bytes = this.#bytes(SMALL_AT, MESSAGE_BYTES);
    const message = new DataView(bytes.buffer, bytes.byteOffset);
    message.setUint32(0, kind);
    message.setUint32(4, ++this.#messages);
    message.setBigUint64(8, addr);
    message.setUint32(16, rkey);
    this.#connection.qp.postRecv({});
    const send = { opcode: WrOpcode.SEND, sgList: this.#sge(SMALL_AT, MESSAGE_BYTES) };
    await (first ? this.#do(first, send) : this.#do(send));
    await this.#hear();
  }

  /**
   * The answer to a message. A peer that was killed after its acknowledgement never answers, and a
   * waiting session does not notice: it posts a WRITE of no bytes now and then, which fails.
   */
  async #hear(): Promise<void> {
    const { qp, recvCq } = this.#connection;
    const nothing: SendWorkRequest = { opcode: WrOpcode.RDMA_WRITE, rdma: this.#told[0]! };
    const timer = setInterval(() => qp.postSend(nothing), ALIVE_MILLIS);
    try {
      const [answer] = await recvCq.wait(1);
      if (answer?.status !== WcStatus.SUCCESS) throw new Ended(`${answer?.status}`);
    } finally {
      clearInterval(timer);
    }
  }

  async #echo(): Promise<void> {
    await this.#say(Kind.ECHO, 0n, 0);
    this.#events.done('send');
  }

  /** A region of the pool for what the peer writes, by a key that works once. */
  async #borrow(): Promise<void> {
    const { context, pd } = this.#connection;
    const user = this.#pool.createUser(1);
    const desc = user.getMr();
    const buffer = context.alloc(POOL_BYTES);
    try {
      if (!desc) return;
      const regMr = desc.regMr(buffer, LOCAL_WRITE | REMOTE_WRITE);
      const first = { opcode: WrOpcode.REG_MR, regMr };
      await this.#say(Kind.POOL, BigInt(buffer.byteOffset), regMr.key, first);
      if (!hasPattern(buffer, this.#messages)) this.#events.violation('a borrowed region is wrong');
      this.#events.done('pool');
    } finally {
      if (desc) {
        await invalidateAll(pd, [desc.mr]);
        user.putMr(desc);
      }
      user.destroy();
      context.free(buffer);
    }
  }
}
