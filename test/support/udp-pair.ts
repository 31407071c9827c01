/**
 * Two devices over links of the caller's choice in one process, connected as peers of our own kind:
 * for what a system does to packets.
 */
import {
  Mtu,
  QpState,
  SendFlag,
  WrOpcode,
  openDevice,
  type Link,
  type OpenOptions,
} from '../../host/index.js';
import { ALL_ACCESS, type Side } from './pair.js';

const BYTES = 2 ** 20;
const LIMIT_MILLIS = 20_000;
const PSN = 7;

export interface UdpPairOptions {
  /** How each device is opened: `{ link }`, or by address. */
  readonly open: () => OpenOptions;
  /** An Mtu. Default 4096 bytes. */
  readonly mtu?: number;
  /** As in `modify`: 4.096 us * 2^timeout until something is sent again. Default 10: 4 ms. */
  readonly timeout?: number;
}

export class UdpPair {
  readonly a: Side;
  readonly b: Side;

  private constructor(a: Side, b: Side) {
    this.a = a;
    this.b = b;
  }

  static async open({ open, mtu = Mtu.MTU_4096, timeout = 10 }: UdpPairOptions): Promise<UdpPair> {
    const [a, b] = [await openSide(open()), await openSide(open())];
    connect(a, b, mtu, timeout);
    connect(b, a, mtu, timeout);
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

async function openSide(options: OpenOptions): Promise<Side> {
  const context = await openDevice(options);
  const pd = context.allocPd();
  const cq = context.createCq(64);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap: { reorderPackets: 64 } });
  const buffer = context.alloc(BYTES);
  const mr = pd.regMr(buffer, ALL_ACCESS);
  return { context, pd, cq, qp, buffer, mr };
}

function connect(
  { qp }: Side,
  { context, qp: peer }: Side,
  pathMtu: number,
  timeout: number,
): void {
  const { gid, port } = context.local;
  const { receiveBufferBytes } = context.device.info;
  qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: ALL_ACCESS });
  qp.modify({
    qpState: QpState.RTR,
    ahAttr: { dgid: gid, port, receiveBufferBytes, reorderPackets: 64, ownKind: true },
    pathMtu,
    destQpNum: peer.qpNum,
    rqPsn: PSN,
    maxDestRdAtomic: 1,
    minRnrTimer: 1,
  });
  qp.modify({
    qpState: QpState.RTS,
    sqPsn: PSN,
    timeout,
    retryCnt: 7,
    rnrRetry: 7,
    maxRdAtomic: 1,
  });
}

/** A device over one link that the test keeps. */
export function over<L extends Link>(make: () => L, made: L[]): () => OpenOptions {
  return () => {
    const link = make();
    made.push(link);
    return { link, memoryBytes: 32 * 2 ** 20 };
  };
}
