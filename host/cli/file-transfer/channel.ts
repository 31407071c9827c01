/**
 * One reliable queue pair with what a transfer needs around it: a protection domain of its own (a
 * peer's keys open nothing but its own region), receives for small messages, and one loop that
 * reads completions. Client and server use the same class.
 */
import { randomInt } from 'node:crypto';
import {
  AccessFlag,
  Mtu,
  QpState,
  SendFlag,
  VerbenaError,
  WcOpcode,
  WcStatus,
  WcStatusName,
  WrOpcode,
  explainWcStatus,
  type CompletionQueue,
  type Context,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type SendWorkRequest,
} from '../../index.js';
import type { ExchangeSession } from './exchange-key.js';
import { MESSAGE_BYTES_MAX, decodeMessage, encodeMessage, type Message } from './messages.js';

/** The connection is gone; a new one may go on where it stopped. */
export class ConnectionLost extends VerbenaError {
  override readonly name = 'ConnectionLost';
}

/** What one side must know of the other to connect. */
export interface ChannelPeer {
  /** IPv4 or IPv6 address. */
  readonly address: string;
  /** UDP port. */
  readonly port: number;
  readonly qpn: number;
  /** PSN of the first packet that it will send. */
  readonly psn: number;
  /** Bytes of payload in a packet: 256, 512, 1024, 2048 or 4096. */
  readonly mtuBytes: number;
  readonly receiveBufferBytes: number;
  /** Packets that it keeps when they come ahead of a lost one. */
  readonly reorderPackets: number;
  /** With a key: packets carry tags. */
  readonly session: ExchangeSession | undefined;
}

export interface ChannelOptions {
  /** Messages that may be under way to us. */
  readonly receives: number;
  /** Messages that may be under way to the peer. */
  readonly sends: number;
}

/** As many packets as may be under way (the device's default window): then none is sent twice. */
export const REORDER_PACKETS = 64;

const MTUS: Readonly<Record<number, number>> = {
  256: Mtu.MTU_256,
  512: Mtu.MTU_512,
  1024: Mtu.MTU_1024,
  2048: Mtu.MTU_2048,
  4096: Mtu.MTU_4096,
};
/** BTH, RETH, immediate data, ICRC: what stands around the payload at most. */
const HEADER_BYTES = 64;

/** 4.096 us * 2^12: 16.8 ms. */
const TIMEOUT = 12;
const RETRY_COUNT = 7;
/** 7: as often as it takes. */
const RNR_RETRY = 7;
/** 0.64 ms. */
const MIN_RNR_TIMER = 12;
const COMPLETIONS_AT_ONCE = 64;

/** The largest path MTU in bytes whose packets fit; `packetSizeMax` counts BTH to ICRC. */
export function mtuFor(packetSizeMax: number): number {
  const fitting = Object.keys(MTUS).map(Number);
  return Math.max(256, ...fitting.filter((bytes) => bytes + HEADER_BYTES <= packetSizeMax));
}

export function isMtu(bytes: number): boolean {
  return bytes in MTUS;
}

export class Channel {
  readonly context: Context;
  readonly pd: ProtectionDomain;
  /** PSN of the first packet that we send. */
  readonly psn = randomInt(2 ** 24);
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #inbox: Uint8Array;
  readonly #inboxRegion: MemoryRegion;
  /** What goes with it, to be undone in reverse order. */
  readonly #undo: (() => void)[] = [];
  #broken = false;

  /** Throws RefusalError ENOMEM; nothing is held then. */
  constructor(context: Context, { receives, sends }: ChannelOptions) {
    this.context = context;
    try {
      const pd = context.allocPd();
      this.pd = pd;
      this.#undo.push(() => pd.dealloc());
      // A WRITE goes with each message of the client.
      const cq = context.createCq(receives + 2 * sends + 8);
      this.#cq = cq;
      this.#undo.push(() => cq.destroy());
      const [inbox, region] = this.allocate(receives * MESSAGE_BYTES_MAX, AccessFlag.LOCAL_WRITE);
      this.#inbox = inbox;
      this.#inboxRegion = region;
      const qp = this.pd.createQp({
        sendCq: cq,
        recvCq: cq,
        cap: {
          maxSendWr: 2 * sends + 2,
          maxRecvWr: receives,
          maxSendSge: 1,
          maxRecvSge: 1,
          maxInlineData: MESSAGE_BYTES_MAX,
          reorderPackets: REORDER_PACKETS,
        },
      });
      this.#qp = qp;
      this.#undo.push(() => qp.destroy());
      qp.modify({
        qpState: QpState.INIT,
        pkeyIndex: 0,
        portNum: 1,
        qpAccessFlags: AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE,
      });
      for (let slot = 0; slot < receives; slot++) this.#postReceive(slot);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get qpn(): number {
    return this.#qp.qpNum;
  }

  /** Memory of the device, registered in our domain; `close` gives it back. */
  allocate(length: number, access: number): [bytes: Uint8Array, region: MemoryRegion] {
    const bytes = this.context.alloc(length);
    this.#undo.push(() => this.context.free(bytes));
    const region = this.pd.regMr(bytes, access);
    this.#undo.push(() => region.dereg());
    return [bytes, region];
  }

  connect(peer: ChannelPeer): void {
    const keys = peer.session?.packetKeys(this.qpn, peer.qpn);
    if (keys) this.#qp.setPacketKeys(keys);
    this.#qp.modify({
      qpState: QpState.RTR,
      ahAttr: {
        dgid: peer.address,
        port: peer.port,
        receiveBufferBytes: peer.receiveBufferBytes,
        ownKind: true,
        reorderPackets: peer.reorderPackets,
      },
      pathMtu: MTUS[peer.mtuBytes] ?? Mtu.MTU_256,
      destQpNum: peer.qpn,
      rqPsn: peer.psn,
      maxDestRdAtomic: 1,
      minRnrTimer: MIN_RNR_TIMER,
    });
    this.#qp.modify({
      qpState: QpState.RTS,
      sqPsn: this.psn,
      timeout: TIMEOUT,
      retryCnt: RETRY_COUNT,
      rnrRetry: RNR_RETRY,
      maxRdAtomic: 1,
    });
  }

  /** Sends a message. Does nothing once the channel is broken. */
  send(message: Message): void {
    if (!this.#broken) this.#qp.postSend(sendRequest(message));
  }

  /** Writes registered bytes into the peer's memory, then sends a message about them. */
  writeAndSend(
    from: { readonly addr: bigint; readonly length: number; readonly lkey: number },
    to: { readonly remoteAddr: bigint; readonly rkey: number },
    message: Message,
  ): void {
    if (this.#broken) return;
    const write: SendWorkRequest = { opcode: WrOpcode.RDMA_WRITE, sgList: [from], rdma: to };
    this.#qp.postSend([write, sendRequest(message)]);
  }

  /**
   * Hands every message to `receive`, until `break` is called. Rejects with ConnectionLost when the
   * queue pair or the device fails, or the peer says what is no message; and with what `receive`
   * throws.
   */
  async run(receive: (message: Message) => void): Promise<void> {
    while (!this.#broken) {
      const completions = await this.#cq.wait(COMPLETIONS_AT_ONCE);
      if (completions.length === 0) {
        if (this.#broken) return;
        throw new ConnectionLost(this.context.failure?.message ?? 'the device was closed');
      }
      for (const { status, opcode, wrId, byteLen } of completions) {
        if (this.#broken) return;
        if (status !== WcStatus.SUCCESS) throw new ConnectionLost(sentenceOf(status));
        if (opcode !== WcOpcode.RECV) continue;
        const slot = Number(wrId);
        const start = slot * MESSAGE_BYTES_MAX;
        const message = decodeMessage(this.#inbox.subarray(start, start + byteLen));
        this.#postReceive(slot);
        if (!message) throw new ConnectionLost(`invalid message of ${byteLen} bytes from the peer`);
        receive(message);
      }
    }
  }

  /** Nothing travels any more; `run` ends. */
  break(): void {
    if (this.#broken) return;
    this.#broken = true;
    // Flushes the receives, and their completions wake `run`.
    if (!this.context.device.closed) this.#qp.modify({ qpState: QpState.ERR });
  }

  /** Gives everything back. Only after `run` has ended. */
  close(): void {
    this.#broken = true;
    // With the device its memory went, too.
    if (this.context.device.closed) return;
    for (let undo = this.#undo.pop(); undo; undo = this.#undo.pop()) undo();
  }

  #postReceive(slot: number): void {
    const addr = this.#inboxRegion.addr + BigInt(slot * MESSAGE_BYTES_MAX);
    const { lkey } = this.#inboxRegion;
    this.#qp.postRecv({ wrId: slot, sgList: [{ addr, length: MESSAGE_BYTES_MAX, lkey }] });
  }
}

/** The cause; without the remedies for programs that connect queue pairs themselves. */
function sentenceOf(status: number): string {
  const [sentence = ''] = explainWcStatus(status).split(/\.\s/, 1);
  return `${WcStatusName[status] ?? status}: ${sentence}`;
}

function sendRequest(message: Message): SendWorkRequest {
  return {
    opcode: WrOpcode.SEND,
    sendFlags: SendFlag.SIGNALED,
    inline: encodeMessage(message),
  };
}
