/**
 * A column of a matrix of doubles goes from one process to another over UDP loopback, and lies in a
 * column there. The other process is this module once more (partner.ts).
 *
 * Columns go in batches; a batch ends with the receiver's answer, when all its bytes are in place.
 * Both ends poll: packing and unpacking cost the time of the end that does it.
 */
import {
  AccessFlag,
  Endpoint,
  Mtu,
  QpState,
  SendFlag,
  WcStatus,
  WrOpcode,
  matrixColumn,
  openDevice,
  type CompletionQueue,
  type Context,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type QueuePair,
  type Sge,
} from '../../host/index.js';
import { Partner, endOrphan, partnerTask, tell } from './partner.js';

/** Rows and columns of the matrix. */
export const SIDE = 1024;
const CELL = 8;
const ROW = SIDE * CELL;
const COLUMN = SIDE * CELL;
/** Columns of a batch. */
const BATCH = 16;
/** Entries of a list: what queue pairs take at most. */
const LIST = 32;
const PSN = 1000;
const DEPTH = 2048;
const REMOTE = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;

/** How a column travels. */
export type Way =
  /** One work request on each side, whose layout is a stencil. */
  | 'layout'
  /** SEND through the layout, into memory in a row. */
  | 'gathered'
  /** As many work requests as lists of 32 entries need, on each side. */
  | 'lists'
  /** A loop packs, another one unpacks. */
  | 'packed'
  /** Memory in a row on both sides: no column at all. */
  | 'contiguous';

interface Address {
  readonly port: number;
  readonly qpn: number;
  readonly receiveBufferBytes: number;
}

interface Task extends Address {
  readonly way: Way;
}

class End {
  readonly context: Context;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly matrix: Float64Array;
  /** A place for each column of a batch, in a row. */
  readonly rows: Float64Array;
  readonly mr: MemoryRegion;
  readonly rowsMr: MemoryRegion;
  readonly stencil: LayoutMemoryRegion;
  readonly #note: Sge;
  /** Completions of receives; those of sends say nothing here. */
  #received = 0;

  private constructor(context: Context) {
    this.context = context;
    const pd = context.allocPd();
    this.cq = context.createCq(4 * DEPTH);
    const cap = { maxSendWr: DEPTH, maxRecvWr: DEPTH, maxSendSge: LIST, maxRecvSge: LIST };
    this.qp = pd.createQp({ sendCq: this.cq, recvCq: this.cq, cap });
    const buffer = context.alloc(SIDE * ROW);
    const rows = context.alloc(BATCH * COLUMN);
    const note = context.alloc(64);
    this.matrix = new Float64Array(buffer.buffer, buffer.byteOffset, SIDE * SIDE);
    this.rows = new Float64Array(rows.buffer, rows.byteOffset, BATCH * SIDE);
    this.mr = pd.regMr(buffer, REMOTE);
    this.rowsMr = pd.regMr(rows, REMOTE);
    const noteMr = pd.regMr(note, REMOTE);
    this.#note = { addr: Number(noteMr.addr), length: 8, lkey: noteMr.lkey };
    this.stencil = pd.regMr(null, 0, AccessFlag.LOCAL_WRITE);
    const shape = { rows: SIDE, columns: SIDE, elementBytes: CELL };
    this.stencil.setLayoutInterleaved(0, matrixColumn({ addr: 0, lkey: this.mr.lkey }, shape, 0));
  }

  static async open(): Promise<End> {
    const memoryBytes = 64 * 2 ** 20;
    return new End(
      await openDevice({ address: '127.0.0.1', port: 0, progress: 'poll', memoryBytes }),
    );
  }

  get address(): Address {
    const { receiveBufferBytes } = this.context.device.info;
    return { port: this.context.local.port, qpn: this.qp.qpNum, receiveBufferBytes };
  }

  connect({ port, qpn, receiveBufferBytes }: Address): void {
    const { gid } = Endpoint.parse('127.0.0.1', port);
    this.qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    this.qp.modify({
      qpState: QpState.RTR,
      ahAttr: { dgid: gid, port, receiveBufferBytes, ownKind: true },
      pathMtu: Mtu.MTU_4096,
      destQpNum: qpn,
      rqPsn: PSN,
      maxDestRdAtomic: 1,
      minRnrTimer: 1,
    });
    const patience = { timeout: 14, retryCnt: 7, rnrRetry: 7 };
    this.qp.modify({ qpState: QpState.RTS, sqPsn: PSN, ...patience, maxRdAtomic: 1 });
  }

  /** The column, as this way names it: one list of entries per message. */
  #lists(way: Way, column: number, place: number, sends: boolean): Sge[][] {
    const first = Number(this.mr.addr) + column * CELL;
    const { lkey } = this.mr;
    const stencil = way === 'layout' || (way === 'gathered' && sends);
    if (stencil) return [[{ addr: first, length: COLUMN, lkey: this.stencil.lkey }]];
    if (way !== 'lists') {
      const addr = Number(this.rowsMr.addr) + place * COLUMN;
      return [[{ addr, length: COLUMN, lkey: this.rowsMr.lkey }]];
    }
    const lists: Sge[][] = [];
    for (let row = 0; row < SIDE; row += LIST) {
      const list: Sge[] = [];
      for (let index = row; index < row + LIST; index++) {
        list.push({ addr: first + index * ROW, length: CELL, lkey });
      }
      lists.push(list);
    }
    return lists;
  }

  #send(sgList: readonly Sge[], signaled: boolean): void {
    const sendFlags = signaled ? SendFlag.SIGNALED : 0;
    this.qp.postSend({ opcode: WrOpcode.SEND, sendFlags, sgList });
  }

  sendColumn(way: Way, column: number, place: number): void {
    if (way === 'packed') {
      const { matrix, rows } = this;
      const to = place * SIDE;
      for (let row = 0; row < SIDE; row++) rows[to + row] = matrix[row * SIDE + column]!;
    }
    const lists = this.#lists(way, column, place, true);
    // One completion a batch says that all before it are done.
    lists.forEach((list, index) =>
      this.#send(list, index === lists.length - 1 && place === BATCH - 1),
    );
  }

  /** Returns how many messages will come. */
  receiveColumn(way: Way, column: number, place: number): number {
    const lists = this.#lists(way, column, place, false);
    for (const sgList of lists) this.qp.postRecv({ wrId: 1, sgList });
    return lists.length;
  }

  unpack(column: number, place: number): void {
    const { matrix, rows } = this;
    const from = place * SIDE;
    for (let row = 0; row < SIDE; row++) matrix[row * SIDE + column] = rows[from + row]!;
  }

  sendNote(): void {
    this.#send([this.#note], false);
  }

  receiveNote(): void {
    this.qp.postRecv({ wrId: 1, sgList: [this.#note] });
  }

  /** Polls until `messages` messages have come. False: an empty one came, which is the end. */
  await(messages: number): boolean {
    while (this.#received < messages) {
      endOrphan();
      for (const { status, wrId, byteLen } of this.cq.poll(64)) {
        if (status !== WcStatus.SUCCESS) throw new Error(`a request ended with ${status}`);
        if (wrId !== 1n) continue;
        if (byteLen === 0) return false;
        this.#received++;
      }
    }
    this.#received -= messages;
    return true;
  }

  /** Says that no more columns come, and waits until that has arrived. */
  end(): void {
    this.qp.postSend({ wrId: 2, opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED });
    while (!this.cq.poll(64).some(({ wrId }) => wrId === 2n));
  }
}

const columnOf = (batch: number, place: number): number => (batch * BATCH + place * 61) % SIDE;

/** The other process: takes columns in until an empty message comes. */
async function serve(task: Task): Promise<void> {
  const end = await End.open();
  end.connect(task);
  const { way } = task;
  const post = (batch: number): number => {
    let messages = 0;
    for (let place = 0; place < BATCH; place++) {
      messages += end.receiveColumn(way, columnOf(batch, place), place);
    }
    return messages;
  };
  let messages = post(0);
  tell(end.address);
  for (let batch = 0; end.await(messages); batch++) {
    if (way === 'packed') {
      for (let place = 0; place < BATCH; place++) end.unpack(columnOf(batch, place), place);
    }
    messages = post(batch + 1);
    end.sendNote();
  }
  const sample = [0, 1, 511, 1023].map((row) => end.matrix[row * SIDE + columnOf(0, 3)]!);
  tell({ sample });
  // The last acknowledgement leaves before the device goes.
  const leave = performance.now() + 50;
  while (performance.now() < leave) end.cq.poll(1);
  await end.context.close();
}

export interface ColumnResult {
  /** Microseconds a column. */
  readonly micros: number;
}

/** Sends columns for so long. Throws when one did not arrive. */
export async function sendColumns(way: Way, seconds: number): Promise<ColumnResult> {
  const end = await End.open();
  end.matrix.forEach((_, index) => (end.matrix[index] = index));
  const task: Task = { way, ...end.address };
  const partner = await Partner.start<Address>(import.meta.url, task);
  end.connect(partner.ready);
  let batch = 0;
  const play = (until: number): number => {
    const first = batch;
    while (performance.now() < until) {
      end.receiveNote();
      for (let place = 0; place < BATCH; place++) {
        end.sendColumn(way, columnOf(batch, place), place);
      }
      end.await(1);
      batch++;
    }
    return batch - first;
  };
  play(performance.now() + 200);
  const start = performance.now();
  const batches = play(start + seconds * 1000);
  const micros = ((performance.now() - start) * 1000) / (batches * BATCH);
  end.end();
  const { sample } = await partner.next<{ readonly sample: readonly number[] }>();
  await partner.ended();
  const scattered = way === 'layout' || way === 'lists' || way === 'packed';
  const expected = [0, 1, 511, 1023].map((row) => row * SIDE + columnOf(0, 3));
  if (scattered && sample.join() !== expected.join()) throw new Error(`${way}: ${sample.join()}`);
  await end.context.close();
  return { micros };
}

/** Microseconds that group commit a column into a row takes, by a plain loop. */
export function bareGather(seconds: number): number {
  const matrix = new Float64Array(SIDE * SIDE).fill(1);
  const row = new Float64Array(SIDE * BATCH);
  const start = performance.now();
  let count = 0;
  for (let batch = 0; performance.now() - start < seconds * 1000; batch++) {
    for (let place = 0; place < BATCH; place++, count++) {
      const column = columnOf(batch, place);
      const to = place * SIDE;
      for (let index = 0; index < SIDE; index++) row[to + index] = matrix[index * SIDE + column]!;
    }
  }
  return ((performance.now() - start) * 1000) / count;
}

const task = partnerTask<Task>(import.meta.url);
if (task) await serve(task);
