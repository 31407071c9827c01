/** Queue pair 1 of a device: management datagrams, in and out, of 256 bytes each (IBA 13.5.1). */
import {
  AccessFlag,
  GENERAL_SERVICES_QPN,
  QpState,
  SendFlag,
  WcOpcode,
  WcStatus,
  WrOpcode,
} from '#build/abi.js';
import { RefusalError } from '../errors/errors.js';
import { Endpoint, Gid } from '../link/endpoint.js';
import { nextTurn } from '../link/next-turn.js';
import type { AddressHandle } from '../verbs/queues/address-handle.js';
import { addressOfSender, GRH_BYTES } from '../verbs/queues/address-attributes.js';
import type { CompletionQueue } from '../verbs/queues/completion-queue.js';
import type { WorkCompletion } from '../verbs/queues/work-completion.js';
import type { Context } from '../verbs/context.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { QueuePair } from '../verbs/queues/queue-pair.js';
import { isToGroup } from './group-datagrams.js';
import { MESSAGE_BYTES_MAX } from './mad.js';

/** The Q_Key of every queue pair 1 (IBA 10.2.5). */
const QKEY = 0x80010000;
/** Datagrams that may come before they are looked at: a receive buffer full of them. */
const RECEIVES = 512;
const SENDS = 128;
/** Aligned for the fields behind the routing header. */
const RECEIVE_BYTES = 400;
const POLL = 64;
/** Datagrams per turn of the event loop: in a flood, other work of the process still runs. */
const TURN_BUDGET = 256;

interface SendSlot {
  readonly index: number;
  handle: AddressHandle | undefined;
}

/**
 * Receiver of datagrams to queue pair 1. `source`: the sender; its `port` is the UDP source port.
 */
export type Receive = (mad: Uint8Array, source: Endpoint) => void;

export class GeneralServices {
  /** Not sent: the link holds all that may be under way. */
  sendsDropped = 0;
  readonly pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #memory: Uint8Array;
  readonly #region: MemoryRegion;
  readonly #free: SendSlot[] = [];
  readonly #slots: SendSlot[] = [];
  readonly #receive: Receive;
  readonly #undo: (() => void)[] = [];
  /** True: the remaining datagrams wait for the next turn of the event loop. */
  #isPaused = false;

  /** Throws RefusalError ENOMEM, and EINVAL if another context has the device's queue pair 1. */
  constructor(context: Context, receive: Receive) {
    this.#receive = receive;
    try {
      this.pd = context.allocPd();
      this.#undo.push(() => this.pd.dealloc());
      this.#cq = context.createCq(RECEIVES + SENDS);
      this.#undo.push(() => this.#cq.destroy());
      this.#memory = context.alloc(RECEIVES * RECEIVE_BYTES + SENDS * MESSAGE_BYTES_MAX);
      this.#undo.push(() => context.free(this.#memory));
      this.#region = this.pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
      this.#undo.push(() => this.#region.dereg());
      this.#qp = QueuePair.createGeneralServices(this.pd, {
        sendCq: this.#cq,
        recvCq: this.#cq,
        sqSigAll: true,
        cap: { maxSendWr: SENDS, maxRecvWr: RECEIVES, maxSendSge: 1, maxRecvSge: 1 },
      });
      this.#undo.push(() => this.#qp.destroy());
    } catch (error) {
      this.close();
      throw error;
    }
    for (let index = 0; index < SENDS; index++) {
      const slot = { index, handle: undefined };
      this.#slots.push(slot);
      this.#free.push(slot);
    }
    this.#qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qkey: QKEY });
    this.#post([...Array(RECEIVES).keys()]);
    this.#qp.modify({ qpState: QpState.RTR });
    this.#qp.modify({ qpState: QpState.RTS, sqPsn: 0 });
    // An event may occur within any verb, even the sending of a message: it is handled after the
    // caller has returned.
    this.#cq.onEvent = () => queueMicrotask(() => this.#drain());
    // Datagrams may have arrived already: the caller must hold this object before they are handled.
    queueMicrotask(() => this.#drain());
  }

  /** The bytes are copied. A datagram that finds no place is lost, as on any network. */
  send(mad: Uint8Array, to: Endpoint): void {
    const slot = this.#free.pop();
    if (!slot) {
      this.sendsDropped++;
      return;
    }
    const ah = this.#handleTo(slot, to);
    if (!ah) {
      this.#free.push(slot);
      this.sendsDropped++;
      return;
    }
    const at = RECEIVES * RECEIVE_BYTES + slot.index * MESSAGE_BYTES_MAX;
    this.#memory.set(mad, at);
    this.#qp.postSend({
      wrId: slot.index,
      opcode: WrOpcode.SEND,
      sendFlags: SendFlag.SIGNALED,
      sgList: [
        { addr: this.#region.addr + BigInt(at), length: mad.length, lkey: this.#region.lkey },
      ],
      ud: { ah, remoteQpn: GENERAL_SERVICES_QPN, remoteQkey: QKEY },
    });
  }

  /** The device has another address: handles made from now on have it. */
  forgetHandles(): void {
    for (const slot of this.#slots) {
      slot.handle?.destroy();
      slot.handle = undefined;
    }
  }

  /** Releases all resources, also after an incomplete construction. */
  close(): void {
    for (const { handle } of this.#slots) handle?.destroy();
    for (const undo of this.#undo.splice(0).reverse()) undo();
  }

  /** The slot's address handle, pointed to `to`; undefined: the application has all there are. */
  #handleTo(slot: SendSlot, to: Endpoint): AddressHandle | undefined {
    if (slot.handle?.destination.equals(to)) return slot.handle;
    slot.handle?.destroy();
    slot.handle = undefined;
    try {
      slot.handle = this.pd.createAh({ dgid: to.gid, port: to.port });
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
    }
    return slot.handle;
  }

  /** Polls until the queue is empty and armed again; each turn handles a bounded number. */
  #drain(): void {
    if (this.#isPaused || this.#cq.destroyed || this.pd.context.device.closed) return;
    let heard = 0;
    for (let isArmed = false; ;) {
      const completions = this.#cq.poll(POLL);
      heard += completions.length;
      if (completions.length > 0) this.#complete(completions);
      if (heard >= TURN_BUDGET) return this.#pause();
      if (completions.length > 0) continue;
      if (isArmed) return;
      this.#cq.reqNotify();
      isArmed = true;
    }
  }

  #pause(): void {
    this.#isPaused = true;
    nextTurn(() => {
      this.#isPaused = false;
      this.#drain();
    });
  }

  #complete(completions: readonly WorkCompletion[]): void {
    const used: number[] = [];
    for (const wc of completions) {
      const slot = Number(wc.wrId);
      if (wc.opcode === WcOpcode.RECV && wc.status === WcStatus.SUCCESS) {
        this.#arrived(wc, slot);
        used.push(slot);
      } else this.#free.push(this.#slots[slot]!);
    }
    if (used.length > 0) this.#post(used);
  }

  #arrived(wc: WorkCompletion, slot: number): void {
    if (wc.srcQp !== GENERAL_SERVICES_QPN) return;
    const at = slot * RECEIVE_BYTES;
    const bytes = this.#memory.subarray(at, at + wc.byteLen);
    // It has reached the connection manager of each member.
    if (isToGroup(bytes)) return;
    const { dgid } = addressOfSender(wc, bytes);
    const gid = dgid instanceof Gid ? dgid : Gid.parse(dgid);
    this.#receive(bytes.subarray(GRH_BYTES), new Endpoint(gid, wc.srcPort));
  }

  #post(slots: readonly number[]): void {
    const { addr, lkey } = this.#region;
    this.#qp.postRecv(
      slots.map((slot) => ({
        wrId: slot,
        sgList: [{ addr: addr + BigInt(slot * RECEIVE_BYTES), length: RECEIVE_BYTES, lkey }],
      })),
    );
  }
}
