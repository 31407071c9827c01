/**
 * One side of a connection that moves bytes and reports what arrived: the same code in Node and,
 * fetched as it is built, in a browser's Worker. It imports nothing: its caller passes the library.
 */
import type * as Browser from '../../host/browser/index.js';

/** Common exports of Node's index and the browser's. */
export type Library = Pick<
  typeof Browser,
  'AccessFlag' | 'SendFlag' | 'WcStatus' | 'WrOpcode' | 'connect' | 'listen'
>;

const PORT = 7471;
const DEPTH = 256;
const RECEIVES = 256;
const MESSAGE_BYTES = 64;
/** Messages that lie in our memory until they are acknowledged. */
const PLACES = 128;
const SIGNALLED = 16;
const CAP = { maxSendWr: DEPTH, maxRecvWr: RECEIVES, reorderPackets: 64 };

/** A byte of the test's pattern. */
function patternByte(index: number, salt: number): number {
  return (Math.imul(index + 1, 0x9e3779b1) >>> (8 + (salt & 7))) & 255;
}

export class TransferSide {
  readonly library: Library;
  readonly connection: Browser.RdmaConnection;
  /** Half for what we send, half for what the peer does to us. */
  readonly memory: Uint8Array;
  readonly #mr: Browser.MemoryRegion;
  readonly #inbox: Inbox;
  readonly #rdma: { remoteAddr: bigint; rkey: number };
  /** Requests under way. */
  #posted = 0;

  private constructor(
    library: Library,
    connection: Browser.RdmaConnection,
    { memory, mr, inbox }: Prepared,
    told: Uint8Array,
  ) {
    const view = new DataView(told.buffer, told.byteOffset);
    this.library = library;
    this.connection = connection;
    this.memory = memory;
    this.#mr = mr;
    this.#inbox = inbox;
    this.#rdma = { remoteAddr: view.getBigUint64(0), rkey: view.getUint32(8) };
  }

  /** Waits for the other side. `bytes`: of memory, the same on both sides. */
  static async accept(
    library: Library,
    context: Browser.Context,
    bytes: number,
  ): Promise<TransferSide> {
    const address = `${context.local.gid}`;
    const listener = await library.listen({ address, port: PORT }, { context });
    const request = (await listener.getRequest())!;
    const prepared = prepare(library, context, bytes);
    const { pd, told } = prepared;
    const connection = await request.accept({ pd, qp: { cap: CAP }, privateData: told }, (qp) =>
      prepared.post(qp),
    );
    await listener.close();
    return new TransferSide(library, connection, prepared, request.privateData);
  }

  static async connect(
    library: Library,
    context: Browser.Context,
    address: string,
    bytes: number,
    options: { readonly ackTimeout?: number } = {},
  ): Promise<TransferSide> {
    const prepared = prepare(library, context, bytes);
    const { pd, told } = prepared;
    const connection = await library.connect(
      { address, port: PORT },
      { context, pd, qp: { cap: CAP }, privateData: told, ...options },
      (qp) => prepared.post(qp),
    );
    return new TransferSide(library, connection, prepared, connection.privateData);
  }

  get half(): number {
    return this.memory.length / 2;
  }

  /** Writes our half, full of a pattern, into the peer's other half, in pieces. */
  async write(salt: number, pieceBytes: number): Promise<void> {
    for (let i = 0; i < this.half; i++) this.memory[i] = patternByte(i, salt);
    const { RDMA_WRITE } = this.library.WrOpcode;
    for (let at = 0; at < this.half; at += pieceBytes) {
      const length = Math.min(pieceBytes, this.half - at);
      await this.#post(RDMA_WRITE, at, this.half + at, length, at + length === this.half);
    }
    await this.#drain();
  }

  /** Reads what the peer has in its first half into our second one. */
  async read(pieceBytes: number): Promise<void> {
    const { RDMA_READ } = this.library.WrOpcode;
    for (let at = 0; at < this.half; at += pieceBytes) {
      const length = Math.min(pieceBytes, this.half - at);
      await this.#post(RDMA_READ, this.half + at, at, length, at + length === this.half);
    }
    await this.#drain();
  }

  /** How many bytes of our second half are not the pattern. */
  differences(salt: number): number {
    let count = 0;
    for (let i = 0; i < this.half; i++) {
      if (this.memory[this.half + i] !== patternByte(i, salt)) count++;
    }
    return count;
  }

  /** Adds 1 to the peer's first 8 bytes, so often. The last value that was found there. */
  async count(times: number): Promise<bigint> {
    const { qp, sendCq } = this.connection;
    const { rkey, remoteAddr } = this.#rdma;
    for (let i = 0; i < times; i++) {
      qp.postSend({
        opcode: this.library.WrOpcode.ATOMIC_FETCH_AND_ADD,
        sgList: [{ addr: this.#mr.addr + BigInt(this.half), length: 8, lkey: this.#mr.lkey }],
        atomic: { remoteAddr, rkey, compareAdd: 1n },
        sendFlags: this.library.SendFlag.SIGNALED,
      });
      this.#check(await sendCq.wait());
    }
    return new DataView(this.memory.buffer, this.memory.byteOffset).getBigUint64(this.half, true);
  }

  /** SENDs `count` messages with their numbers from 0 on. */
  async sendNumbers(count: number): Promise<void> {
    const { qp, sendCq } = this.connection;
    const { SendFlag, WcStatus, WrOpcode } = this.library;
    const view = new DataView(this.memory.buffer, this.memory.byteOffset);
    let done = 0;
    const drain = async (): Promise<void> => {
      for (const { status, wrId } of await sendCq.wait(DEPTH)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`a SEND ended with ${status}`);
        done = Number(wrId);
      }
    };
    for (let number = 0; number < count; number++) {
      // A place is used again when its message is acknowledged.
      while (number - done >= PLACES) await drain();
      const at = (number % PLACES) * MESSAGE_BYTES;
      view.setUint32(at, number);
      const isSignalled = number % SIGNALLED === 0 || number + 1 === count;
      qp.postSend({
        wrId: number + 1,
        opcode: WrOpcode.SEND,
        sgList: [{ addr: this.#mr.addr + BigInt(at), length: MESSAGE_BYTES, lkey: this.#mr.lkey }],
        sendFlags: isSignalled ? SendFlag.SIGNALED : 0,
      });
    }
    while (done < count) await drain();
  }

  /** Receives `count` messages. Returns how many had an unexpected number. */
  async receiveNumbers(count: number): Promise<number> {
    const { qp, recvCq } = this.connection;
    const { inbox, lkey, addr } = this.#inbox;
    const view = new DataView(inbox.buffer, inbox.byteOffset);
    let wrong = 0;
    for (let due = 0; due < count;) {
      const completions = await recvCq.wait(RECEIVES);
      this.#check(completions);
      for (const { wrId } of completions) {
        const at = Number(wrId);
        if (view.getUint32(at) !== due++) wrong++;
        qp.postRecv({
          wrId: at,
          sgList: [{ addr: addr + BigInt(at), length: MESSAGE_BYTES, lkey }],
        });
      }
    }
    return wrong;
  }

  async #post(
    opcode: number,
    local: number,
    remote: number,
    length: number,
    isLast: boolean,
  ): Promise<void> {
    const { rkey, remoteAddr } = this.#rdma;
    this.connection.qp.postSend({
      opcode,
      sgList: [{ addr: this.#mr.addr + BigInt(local), length, lkey: this.#mr.lkey }],
      rdma: { remoteAddr: remoteAddr + BigInt(remote), rkey },
      sendFlags: this.library.SendFlag.SIGNALED,
    });
    this.#posted++;
    if (this.#posted >= DEPTH || isLast) await this.#drain();
  }

  async #drain(): Promise<void> {
    while (this.#posted > 0) {
      this.#posted -= this.#check(await this.connection.sendCq.wait(DEPTH));
    }
  }

  #check(completions: readonly Browser.WorkCompletion[]): number {
    if (completions.length === 0) throw new Error('the device is closed');
    for (const { status } of completions) {
      if (status !== this.library.WcStatus.SUCCESS)
        throw new Error(`a request ended with ${status}`);
    }
    return completions.length;
  }
}

/** Where messages arrive. */
interface Inbox {
  readonly inbox: Uint8Array;
  readonly addr: bigint;
  readonly lkey: number;
}

interface Prepared {
  readonly pd: Browser.ProtectionDomain;
  readonly memory: Uint8Array;
  readonly mr: Browser.MemoryRegion;
  readonly inbox: Inbox;
  /** The private data for the other side. */
  readonly told: Uint8Array;
  post(qp: Browser.QueuePair): void;
}

function prepare(library: Library, context: Browser.Context, bytes: number): Prepared {
  const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = library.AccessFlag;
  const pd = context.allocPd();
  const memory = context.alloc(bytes);
  const mr = pd.regMr(memory, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC);
  const buffer = context.alloc(RECEIVES * MESSAGE_BYTES);
  const { addr, lkey } = pd.regMr(buffer, LOCAL_WRITE);
  const told = new Uint8Array(12);
  const view = new DataView(told.buffer);
  view.setBigUint64(0, BigInt(mr.addr));
  view.setUint32(8, mr.rkey);
  const inbox = { inbox: buffer, addr: BigInt(addr), lkey };
  const post = (qp: Browser.QueuePair): void => {
    for (let at = 0; at < buffer.length; at += MESSAGE_BYTES) {
      const sgList = [{ addr: inbox.addr + BigInt(at), length: MESSAGE_BYTES, lkey }];
      qp.postRecv({ wrId: at, sgList });
    }
  };
  return { pd, memory, mr, inbox, told, post };
}
