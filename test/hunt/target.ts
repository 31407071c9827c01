/**
 * The target of a hunt: for each of its pairs a queue pair of the shared domain, and another device
 * that writes through it by the pair's current key, as fast as it can. After a refused WRITE the
 * pair reconnects. A sender of each pair sends SEND_WITH_INV when the owner requests it.
 */
import { setImmediate as turn } from 'node:timers/promises';
import {
  QpState,
  SendFlag,
  WrOpcode,
  openDevice,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
} from '../../host/index.js';
import { ALL_ACCESS, connect, type Side } from '../support/pair.js';
import { Pair } from './mail.js';

/** The target's byte; no owner writes it. */
export const INTRUDER = 0xee;
export const BUFFER_BYTES = 65536;
/** Outstanding WRITEs of a pair. */
const DEPTH = 4;

export interface TargetTask {
  readonly mail: Uint8Array;
  readonly pairs: number;
  /** Ports of the owners' queue pairs for SEND_WITH_INV. */
  readonly ownerAddress: string;
  readonly ownerPorts: readonly number[];
  /** Incarnation of the target; not 0. */
  readonly life: number;
}

class Line {
  readonly #initiator: Side;
  readonly #target: Side;
  readonly #sender: Side;
  readonly #pair: Pair;
  readonly #owner: { readonly address: string; readonly port: number };
  readonly #life: number;
  #refusedTurn = -1;
  #underWay = 0;
  #isJoined = false;
  #isSending = false;

  constructor(
    initiator: Context,
    source: MemoryRegion,
    context: Context,
    pd: ProtectionDomain,
    pair: Pair,
    owner: { readonly address: string; readonly port: number },
    life: number,
  ) {
    const side = (of: Context, domain: ProtectionDomain): Side => {
      const cq = of.createCq(64);
      const cap = { maxSendWr: 16, maxRecvWr: 1 };
      const qp = domain.createQp({ sendCq: cq, recvCq: cq, cap });
      return { context: of, pd: domain, cq, qp, buffer: source.buffer, mr: source };
    };
    this.#initiator = side(initiator, source.pd);
    this.#target = side(context, pd);
    this.#sender = side(initiator, source.pd);
    this.#pair = pair;
    this.#owner = owner;
    this.#life = life;
    this.#connect();
    pair.offer(this.#sender.qp.qpNum, initiator.local.port, life);
  }

  #connect(): void {
    for (const { qp } of [this.#initiator, this.#target]) qp.modify({ qpState: QpState.RESET });
    connect(this.#initiator.qp, this.#target, 1, 1, {});
    connect(this.#target.qp, this.#initiator, 1, 1, {});
  }

  /** Checks the pair once. */
  turn(): void {
    this.#send();
    for (const { status } of this.#initiator.cq.poll(DEPTH)) {
      this.#underWay--;
      if (status !== 0) this.#refusedTurn = this.#pair.opened.turn;
    }
    this.#target.cq.poll(16);
    const { key, turn: opened, address, length } = this.#pair.opened;
    if (this.#initiator.qp.state === QpState.ERR) {
      if (this.#underWay > 0 || opened === this.#refusedTurn) return;
      this.#connect();
    }
    const { mr, qp } = this.#initiator;
    if (key === 0) return;
    for (; this.#underWay < DEPTH; this.#underWay++) {
      qp.postSend({
        opcode: WrOpcode.RDMA_WRITE,
        sendFlags: SendFlag.SIGNALED,
        sgList: [{ addr: mr.addr, length: Math.min(length, BUFFER_BYTES), lkey: mr.lkey }],
        rdma: { remoteAddr: address, rkey: key },
      });
    }
  }

  #send(): void {
    const { qp, cq, mr } = this.#sender;
    const { qpn, life } = this.#pair.joined;
    if (!this.#isJoined) {
      if (life !== this.#life) return;
      this.#isJoined = true;
      join(qp, this.#owner, qpn);
    }
    for (const { status } of cq.poll(4)) {
      if (status === 0) this.#pair.asked = 0;
      this.#isSending = false;
    }
    const { asked } = this.#pair;
    if (asked === 0 || this.#isSending || qp.state !== QpState.RTS) return;
    this.#isSending = true;
    qp.postSend({
      opcode: WrOpcode.SEND_WITH_INV,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: mr.addr, length: 16, lkey: mr.lkey }],
      invalidateRkey: asked,
    });
  }
}

/** Connects a queue pair to a queue pair of another process. */
export function join(
  qp: QueuePair,
  { address, port }: { readonly address: string; readonly port: number },
  qpNum: number,
): void {
  if (qp.state !== QpState.RESET) qp.modify({ qpState: QpState.RESET });
  connect(qp, { context: { local: { gid: address, port } }, qp: { qpNum } } as never, 1, 1, {});
}

/** Writes until `stopped` returns true. */
export async function runTarget(
  context: Context,
  pd: ProtectionDomain,
  task: TargetTask,
  stopped: () => boolean,
): Promise<void> {
  await using initiator = await openDevice({ address: '127.0.0.1', port: 0 });
  const own = initiator.allocPd();
  const buffer = initiator.alloc(BUFFER_BYTES);
  buffer.fill(INTRUDER);
  const source = own.regMr(buffer, ALL_ACCESS);
  const lines = Array.from({ length: task.pairs }, (_, index) => {
    const owner = { address: task.ownerAddress, port: task.ownerPorts[index]! };
    const pair = new Pair(task.mail, index);
    return new Line(initiator, source, context, pd, pair, owner, task.life);
  });
  for (let count = 0; !stopped(); count++) {
    for (const line of lines) line.turn();
    if (count % 64 === 0) await turn();
  }
}
