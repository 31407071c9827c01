/**
 * Two devices over links of the caller's choice in one process, connected as peers of our own kind:
 * for what a system does to packets.
 */
import { Mtu, SendFlag, WrOpcode, type Link, type OpenOptions } from '../../host/index.js';
import { connect, openSide, type Side } from './pair.js';

const SIDE = { bytes: 2 ** 20, cqe: 64, reorderPackets: 64 };
const LIMIT_MILLIS = 20_000;
const PSN = 7;

export interface UdpPairOptions {
  /** How each device is opened: `{ link }`, or by address. */
  readonly open: () => OpenOptions;
  /** An Mtu. Default 4096 bytes. */
  readonly mtu?: number;
  /** As in `modify`: 4.096 us * 2^timeout until something is sent again. Default 14: 67 ms. */
  readonly timeout?: number;
}

export class UdpPair {
  readonly a: Side;
  readonly b: Side;

  private constructor(a: Side, b: Side) {
    this.a = a;
    this.b = b;
  }

  static async open({ open, mtu = Mtu.MTU_4096, timeout = 14 }: UdpPairOptions): Promise<UdpPair> {
    const [a, b] = [await openSide(open(), SIDE), await openSide(open(), SIDE)];
    const attributes = { maxDestRdAtomic: 1, minRnrTimer: 1, timeout, maxRdAtomic: 1 };
    const options = { mtu, attributes, acquainted: true, reorderPackets: SIDE.reorderPackets };
    connect(a.qp, b, PSN, PSN, options);
    connect(b.qp, a, PSN, PSN, options);
    return new UdpPair(a, b);
  }

  /** Puts `length` bytes from a into b. Returns the completion's status. */
  async write(length: number): Promise<number> {
    const { a, b } = this;
    a.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: a.mr.addr, length, lkey: a.mr.lkey }],
      rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
    });
    const end = performance.now() + LIMIT_MILLIS;
    while (performance.now() < end) {
      const [completion] = a.cq.poll(1);
      if (completion) return completion.status;
      // A side that is not polled makes no progress.
      b.cq.poll(1);
      await new Promise((resolve) => setImmediate(resolve));
    }
    throw new Error(`no completion within ${LIMIT_MILLIS} ms`);
  }

  async close(): Promise<void> {
    await this.a.context.close();
    await this.b.context.close();
  }
}

/** A device over one link that the test keeps. */
export function over<L extends Link>(make: () => L, made: L[]): () => OpenOptions {
  return () => {
    const link = make();
    made.push(link);
    return { link, memoryBytes: 32 * 2 ** 20 };
  };
}
