/**
 * Verbs over a link, as the benches of channels use them: the same code in Node and, fetched as it
 * is built, in a browser's Worker. It imports nothing: its caller passes the library.
 */
import type * as Browser from '../../host/browser/index.js';

/** Common exports of Node's index and the browser's. */
export type Library = Pick<
  typeof Browser,
  'AccessFlag' | 'SendFlag' | 'WcStatus' | 'WrOpcode' | 'connect' | 'listen'
>;

export interface FloodResult {
  readonly messages: number;
  readonly seconds: number;
}

const PORT = 7471;
const MEMORY_BYTES = 65536;
const DEPTH = 512;
/** One completion for this many requests. */
const SIGNALLED = 32;
const CAP = { maxSendWr: DEPTH, maxRecvWr: 16, reorderPackets: 128 };

/** One side: memory that the other may write and read, and a connection to it. */
export class VerbsSide {
  readonly library: Library;
  readonly connection: Browser.RdmaConnection;
  readonly memory: Uint8Array;
  readonly #mr: Browser.MemoryRegion;
  readonly #rdma: { remoteAddr: bigint; rkey: number };

  private constructor(
    library: Library,
    connection: Browser.RdmaConnection,
    memory: Uint8Array,
    mr: Browser.MemoryRegion,
    told: Uint8Array,
  ) {
    const view = new DataView(told.buffer, told.byteOffset);
    this.library = library;
    this.connection = connection;
    this.memory = memory;
    this.#mr = mr;
    this.#rdma = { remoteAddr: view.getBigUint64(0), rkey: view.getUint32(8) };
  }

  /** Waits for the other side. */
  static async accept(library: Library, context: Browser.Context): Promise<VerbsSide> {
    const listener = await library.listen(
      { address: `${context.local.gid}`, port: PORT },
      { context },
    );
    const request = (await listener.getRequest())!;
    const { pd, memory, mr, told } = prepare(library, context);
    const connection = await request.accept({ pd, qp: { cap: CAP }, privateData: told });
    await listener.close();
    return new VerbsSide(library, connection, memory, mr, request.privateData);
  }

  static async connect(
    library: Library,
    context: Browser.Context,
    address: string,
  ): Promise<VerbsSide> {
    const { pd, memory, mr, told } = prepare(library, context);
    const connection = await library.connect(
      { address, port: PORT },
      { context, pd, qp: { cap: CAP }, privateData: told },
    );
    return new VerbsSide(library, connection, memory, mr, connection.privateData);
  }

  /** WRITEs for so long, as many under way as the window and the queue let. */
  async flood(bytes: number, millis: number): Promise<FloodResult> {
    const { qp, sendCq } = this.connection;
    const { SendFlag, WrOpcode } = this.library;
    const sgList = [{ addr: this.#mr.addr, length: bytes, lkey: this.#mr.lkey }];
    const quiet = { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: this.#rdma };
    const last = { ...quiet, sendFlags: SendFlag.SIGNALED };
    const list = Array.from({ length: SIGNALLED }, (_, i) => (i === SIGNALLED - 1 ? last : quiet));
    const start = performance.now();
    let under = 0;
    let done = 0;
    for (;;) {
      const isOver = performance.now() - start >= millis;
      while (!isOver && under + SIGNALLED <= DEPTH) {
        qp.postSend(list);
        under += SIGNALLED;
      }
      if (under === 0) break;
      for (const { status } of await sendCq.wait(DEPTH)) {
        this.#check(status);
        under -= SIGNALLED;
        done += SIGNALLED;
      }
    }
    return { messages: done, seconds: (performance.now() - start) / 1000 };
  }

  /** READs one after the other, in milliseconds, unsorted. */
  async reads(bytes: number, count: number): Promise<number[]> {
    const { qp, sendCq } = this.connection;
    const request = {
      opcode: this.library.WrOpcode.RDMA_READ,
      sgList: [{ addr: this.#mr.addr, length: bytes, lkey: this.#mr.lkey }],
      rdma: this.#rdma,
      sendFlags: this.library.SendFlag.SIGNALED,
    };
    const trips: number[] = [];
    for (let index = 0; index < count; index++) {
      const start = performance.now();
      qp.postSend(request);
      for (const { status } of await sendCq.wait()) this.#check(status);
      trips.push(performance.now() - start);
    }
    return trips;
  }

  #check(status: number): void {
    if (status !== this.library.WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
  }
}

function prepare(library: Library, context: Browser.Context) {
  const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = library.AccessFlag;
  const pd = context.allocPd();
  const memory = context.alloc(MEMORY_BYTES);
  const mr = pd.regMr(memory, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC);
  const told = new Uint8Array(12);
  const view = new DataView(told.buffer);
  view.setBigUint64(0, BigInt(mr.addr));
  view.setUint32(8, mr.rkey);
  return { pd, memory, mr, told };
}
