/** Requests of all kinds and lengths between two devices over UDP, recorded to a pcap file. */
import type { AnyRequest } from '../support/any-request.js';
import {
  Mtu,
  SendFlag,
  UdpLink,
  WcStatus,
  WrOpcode,
  pcapFile,
  pcapLink,
  type Link,
} from '../../host/index.js';
import { connect, openSide, type Side } from '../support/pair.js';

const BUFFER_BYTES = 65536;
const LIMIT_MILLIS = 10_000;
/** READs and atomics in flight. */
const MOST = 8;
/** Near the wrap of the 24 bits. */
const PSN = 0xfffffa;

async function openOver(link: Link): Promise<Side> {
  const side = await openSide(
    { link, memoryBytes: 8 * 2 ** 20 },
    { bytes: BUFFER_BYTES, cqe: 256 },
  );
  side.buffer.forEach((_, index) => (side.buffer[index] = index * 7));
  return side;
}

/** All kinds of requests, in all lengths that make a difference. */
function requests(from: Side, to: Side): AnyRequest[] {
  const rdma = { remoteAddr: to.mr.addr, rkey: to.mr.rkey };
  const immData = 0xcafe0001;
  const sendFlags = SendFlag.SIGNALED;
  const sgList = (length: number): AnyRequest['sgList'] => [
    { addr: from.mr.addr, length, lkey: from.mr.lkey },
  ];
  const lengths = [0, 1, 2, 3, 4, 255, 256, 257, 1024, 1500, 4096, 4097, 12288, 40001];
  const all = lengths.flatMap((length): AnyRequest[] => [
    { opcode: WrOpcode.SEND, sgList: sgList(length) },
    { opcode: WrOpcode.SEND_WITH_IMM, sgList: sgList(length), immData },
    { opcode: WrOpcode.RDMA_WRITE, sgList: sgList(length), rdma },
    { opcode: WrOpcode.RDMA_WRITE_WITH_IMM, sgList: sgList(length), rdma, immData },
    { opcode: WrOpcode.RDMA_READ, sgList: sgList(length), rdma },
  ]);
  return all.map((request, wrId) => ({ ...request, wrId, sendFlags }));
}

const TAKES_RECEIVE: ReadonlySet<number> = new Set([
  WrOpcode.SEND,
  WrOpcode.SEND_WITH_IMM,
  WrOpcode.RDMA_WRITE_WITH_IMM,
]);
/** Of receives; no request has it. */
const RECEIVE_ID = 1_000_000;

/** One request after the other; one buffer takes all that is received. */
async function exchange(from: Side, to: Side): Promise<number> {
  const all = requests(from, to);
  const end = performance.now() + LIMIT_MILLIS;
  for (const request of all) {
    if (TAKES_RECEIVE.has(request.opcode)) {
      const sgList = [{ addr: to.mr.addr, length: BUFFER_BYTES, lkey: to.mr.lkey }];
      to.qp.postRecv({ wrId: RECEIVE_ID, sgList });
    }
    from.qp.postSend(request);
    for (let done = false; !done;) {
      await new Promise((resolve) => setImmediate(resolve));
      for (const { wrId, status } of [...from.cq.poll(16), ...to.cq.poll(16)]) {
        if (status !== WcStatus.SUCCESS) throw new Error(`request ${wrId}: status ${status}`);
        done ||= wrId === BigInt(request.wrId ?? 0);
      }
      if (performance.now() > end) throw new Error(`request ${request.wrId} does not complete`);
    }
  }
  return all.length;
}

/** Writes `file` from the first address's point of view. Returns how many requests were made. */
export async function recordVerbs(file: string, pathMtu: number = Mtu.MTU_1024): Promise<number> {
  const link = pcapLink(new UdpLink({ address: '127.0.0.1' }), pcapFile(file));
  const a = await openOver(link);
  try {
    const b = await openOver(new UdpLink({ address: '127.0.0.2' }));
    try {
      const attributes = { maxDestRdAtomic: MOST, maxRdAtomic: MOST, timeout: 14 };
      connect(a.qp, b, PSN, PSN, { mtu: pathMtu, attributes });
      connect(b.qp, a, PSN, PSN, { mtu: pathMtu, attributes });
      return (await exchange(a, b)) + (await exchange(b, a));
    } finally {
      await b.context.close();
    }
  } finally {
    await a.context.close();
  }
}
