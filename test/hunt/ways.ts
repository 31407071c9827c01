/**
 * The ways to grant peers access to memory and to revoke it, each as an owner of a hunt uses it:
 * after `close` no engine accesses the memory by that key any more.
 */
import {
  AccessFlag,
  MwType,
  QpState,
  ReregMrFlag,
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
  incRkey,
  type CompletionQueue,
  type Context,
  type ProtectionDomain,
  type QueuePair,
  type SendWorkRequest,
} from '../../host/index.js';
import { ALL_ACCESS } from '../support/pair.js';
import { join } from './target.js';
import type { Pair } from './mail.js';

/** An engine of a stopped process stayed in its call: access is not revoked. */
export class Expired extends Error {}

/** Memory that peers can write at this time. */
export interface Opened {
  readonly key: number;
  readonly address: bigint;
  /** Returns when access is revoked. Throws Expired. */
  close(): Promise<void>;
  /** After the verification: releases the objects of the round. */
  tidy(): void;
}

export interface Tools {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  readonly pair: Pair;
  /** Executes a local work request, and waits for its completion. */
  execute(request: SendWorkRequest): void;
  readonly qp: QueuePair;
  readonly cq: CompletionQueue;
  /** Receives SEND_WITH_INV; undefined while no sender is connected. */
  readonly receiver: Receiver;
  /** Unused memory, the target of a re-registration. */
  readonly spare: Uint8Array;
}

const ACCESS = ALL_ACCESS | AccessFlag.MW_BIND;

function settle(cq: CompletionQueue, millis = 30_000): void {
  const end = performance.now() + millis;
  for (;;) {
    const [wc] = cq.poll(1);
    if (wc) {
      if (wc.status === WcStatus.SUCCESS) return;
      if (wc.status === WcStatus.RESP_TIMEOUT_ERR) throw new Expired();
      throw new Error(`a work request completes with ${WcStatusName[wc.status]}`);
    }
    if (performance.now() > end) throw new Error(`no completion in ${millis} ms`);
  }
}

/** A queue pair of the owner without a peer, for local work requests. */
export function makeExecutor(
  context: Context,
  pd: ProtectionDomain,
): { readonly qp: QueuePair; readonly cq: CompletionQueue } {
  const cq = context.createCq(64);
  const cap = { maxSendWr: 16, maxRecvWr: 4 };
  return { cq, qp: pd.createQp({ sendCq: cq, recvCq: cq, cap }) };
}

export function execute(qp: QueuePair, cq: CompletionQueue, request: SendWorkRequest): void {
  // The queue pair is connected to itself: it never sends a packet.
  if (qp.state !== QpState.RTS) join(qp, { address: '127.0.0.1', port: 9 }, qp.qpNum);
  qp.postSend({ ...request, sendFlags: SendFlag.SIGNALED });
  settle(cq);
}

/** The owner's end of a sender of SEND_WITH_INV. */
export class Receiver {
  readonly #pair: Pair;
  readonly #qp: QueuePair;
  readonly #cq: CompletionQueue;
  #life = 0;

  constructor(context: Context, pd: ProtectionDomain, pair: Pair) {
    const { qp, cq } = makeExecutor(context, pd);
    this.#pair = pair;
    this.#qp = qp;
    this.#cq = cq;
  }

  /** Connects to the sender of the live target. False: no target is alive. */
  ready(): boolean {
    const { qpn, port, life } = this.#pair.sender;
    if (life === 0) return false;
    if (life !== this.#life) {
      join(this.#qp, { address: '127.0.0.1', port }, qpn);
      this.#cq.poll(64);
      this.#life = life;
      this.#pair.asked = 0;
      this.#pair.join(this.#qp.qpNum, life);
    }
    return this.#qp.state === QpState.RTS;
  }

  /** Requests a SEND_WITH_INV of the key. False: none arrived in time; the key may be valid. */
  invalidate(key: number, memory: { readonly addr: bigint; readonly lkey: number }): boolean {
    this.#qp.postRecv({ wrId: 1, sgList: [{ addr: memory.addr, length: 64, lkey: memory.lkey }] });
    this.#pair.asked = key;
    const end = performance.now() + 1500;
    while (performance.now() < end) {
      const [wc] = this.#cq.poll(1);
      if (!wc) continue;
      if (wc.status === WcStatus.SUCCESS && wc.invalidatedRkey === key) return true;
      if (wc.status === WcStatus.RESP_TIMEOUT_ERR) throw new Expired();
      break;
    }
    this.#pair.asked = 0;
    if (this.#qp.state !== QpState.RESET) this.#qp.modify({ qpState: QpState.RESET });
    this.#cq.poll(64);
    return false;
  }
}

type Way = (tools: Tools, buffer: Uint8Array) => Opened | undefined;

const nothing = (): void => {};

export const WAYS: Readonly<Record<string, Way>> = {
  'LOCAL_INV of a region': ({ pd, execute: run }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS, { invalidatable: true });
    return {
      key: mr.rkey,
      address: mr.addr,
      close: async () => run({ opcode: WrOpcode.LOCAL_INV, invalidateRkey: mr.rkey }),
      tidy: () => mr.dereg(),
    };
  },
  'LOCAL_INV of a REG_MR': ({ context, execute: run }, buffer) => {
    const mr = context.allocMr(buffer.length);
    const key = incRkey(mr.rkey);
    run({ opcode: WrOpcode.REG_MR, regMr: { mr, key, buffer, access: ALL_ACCESS } });
    return {
      key,
      address: BigInt(buffer.byteOffset),
      close: async () => run({ opcode: WrOpcode.LOCAL_INV, invalidateRkey: key }),
      tidy: () => mr.dereg(),
    };
  },
  SEND_WITH_INV: ({ pd, receiver, spare }, buffer) => {
    if (!receiver.ready()) return undefined;
    const inbox = pd.regMr(spare, ALL_ACCESS);
    const mr = pd.regMr(buffer, ACCESS, { invalidatable: true });
    return {
      key: mr.rkey,
      address: mr.addr,
      close: async () => {
        // A target that dies meanwhile sends nothing: then the owner invalidates the key.
        if (!receiver.invalidate(mr.rkey, inbox)) mr.dereg();
      },
      tidy: () => {
        mr[Symbol.dispose]();
        inbox.dereg();
      },
    };
  },
  dereg: ({ pd }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    return { key: mr.rkey, address: mr.addr, close: async () => mr.dereg(), tidy: nothing };
  },
  'rereg to other memory': ({ pd, spare }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    return {
      key: mr.rkey,
      address: mr.addr,
      close: async () => {
        const { CHANGE_TRANSLATION } = ReregMrFlag;
        mr.rereg(CHANGE_TRANSLATION, undefined, spare, undefined, { iova: mr.addr });
      },
      tidy: () => mr.dereg(),
    };
  },
  'unbind of a type 1 window': ({ pd, qp, cq }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    const mw = pd.allocMw(MwType.TYPE_1);
    const bind = (length: number): void => {
      const mwAccessFlags = AccessFlag.REMOTE_WRITE;
      const bindInfo = { mr, addr: mr.addr, length, mwAccessFlags };
      qp.bindMw(mw, { wrId: 1, sendFlags: SendFlag.SIGNALED, bindInfo });
      settle(cq);
    };
    bind(buffer.length);
    return {
      key: mw.rkey,
      address: mr.addr,
      close: async () => bind(0),
      tidy: () => {
        mw.dealloc();
        mr.dereg();
      },
    };
  },
  'dealloc of a type 1 window': ({ pd, qp, cq }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    const mw = pd.allocMw(MwType.TYPE_1);
    const bindInfo = {
      mr,
      addr: mr.addr,
      length: buffer.length,
      mwAccessFlags: AccessFlag.REMOTE_WRITE,
    };
    qp.bindMw(mw, { wrId: 1, sendFlags: SendFlag.SIGNALED, bindInfo });
    settle(cq);
    return {
      key: mw.rkey,
      address: mr.addr,
      close: async () => mw.dealloc(),
      tidy: () => mr.dereg(),
    };
  },
  'setLayoutSg over a layout': ({ pd, spare }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    const other = pd.regMr(spare, ACCESS);
    const layout = pd.regMr(null, 0, ALL_ACCESS | AccessFlag.ZERO_BASED);
    const half = buffer.length / 2;
    layout.setLayoutSg(0, [
      { addr: mr.addr, length: half, lkey: mr.lkey },
      { addr: mr.addr + BigInt(half), length: half, lkey: mr.lkey },
    ]);
    return {
      key: layout.rkey,
      address: 0n,
      close: async () =>
        layout.setLayoutSg(0, [{ addr: other.addr, length: half, lkey: other.lkey }]),
      tidy: () => {
        layout.dereg();
        mr.dereg();
        other.dereg();
      },
    };
  },
  'LOCAL_INV of a layout': ({ pd, execute: run }, buffer) => {
    const mr = pd.regMr(buffer, ACCESS);
    const layout = pd.regMr(null, 0, ALL_ACCESS | AccessFlag.ZERO_BASED);
    layout.setLayoutSg(0, [{ addr: mr.addr, length: buffer.length, lkey: mr.lkey }]);
    return {
      key: layout.rkey,
      address: 0n,
      close: async () => run({ opcode: WrOpcode.LOCAL_INV, invalidateRkey: layout.rkey }),
      tidy: () => {
        layout.dereg();
        mr.dereg();
      },
    };
  },
};
