/**
 * `ibv_qp_ex`: work requests put together field by field, and posted as a batch that goes as a whole
 * or not at all (man ibv_wr_post).
 * ```
 *  qp.wrStart();
 *  qp.wrId = 7; qp.wrFlags = SendFlag.SIGNALED;
 *  qp.wrRdmaWrite(rkey, remoteAddr);
 *  qp.wrSetSge(mr.lkey, mr.addr, 4096);
 *  qp.wrComplete();
 * ```
 */
import { checkArray } from '../../base/options.js';
import { checkBytes } from '../../errors/check-bytes.js';
import { checkBits } from '../../errors/check-whole.js';
import { QpType, SendFlag, WrOpcode, type SelectivityLevel } from '#build/abi.js';
import type { PlacementTypes, SendFlags } from '../enums.js';
import { checkInit } from './queue-pair-attributes.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { AddressHandle } from './address-handle.js';
import { QpExWith } from '../constants.js';
import type { MemoryWindow, MwBindInfo } from '../regions/memory-window.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { QueuePair, type QpInitAttributes } from './queue-pair.js';
import type { AnyWorkRequest } from './work-request.js';
import type { Sge } from './sge.js';

/** `ibv_qp_init_attr_ex`. */
export interface QpInitAttributesEx extends QpInitAttributes {
  readonly pd: ProtectionDomain;
  /** Operations that `wr…` may post: bits of QpExWith. Others are misuse. */
  readonly sendOpsFlags: number;
}

const DATAGRAM = QpExWith.SEND | QpExWith.SEND_WITH_IMM;
const UNRELIABLE =
  DATAGRAM |
  QpExWith.RDMA_WRITE |
  QpExWith.RDMA_WRITE_WITH_IMM |
  QpExWith.LOCAL_INV |
  QpExWith.BIND_MW;
const RELIABLE =
  UNRELIABLE |
  QpExWith.SEND_WITH_INV |
  QpExWith.RDMA_READ |
  QpExWith.ATOMIC_CMP_AND_SWP |
  QpExWith.ATOMIC_FETCH_AND_ADD |
  QpExWith.FLUSH |
  QpExWith.ATOMIC_WRITE;

/** Operations that a queue pair can post, by its type. */
const POSSIBLE: { readonly [type: number]: number } = {
  [QpType.RC]: RELIABLE,
  [QpType.UC]: UNRELIABLE,
  [QpType.UD]: DATAGRAM,
};

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };
type Draft = Mutable<AnyWorkRequest>;

/**
 * `struct ibv_qp_ex`: a queue pair that is posted to call by call, `wrStart` to `wrComplete`
 * (`context.createQpEx`).
 */
export class QueuePairEx extends QueuePair {
  /** Goes into the next `wr…` call's request, and comes back in its completion. */
  wrId: number | bigint = 0;
  /** Made of SendFlag, for the next `wr…` call. Inline data is set, not flagged. */
  wrFlags: SendFlags = 0;
  #sendOpsFlags = 0;
  #batch: Draft[] | undefined;

  /** @internal Use `context.createQpEx()`. */
  static createEx(attributes: QpInitAttributesEx): QueuePairEx {
    checkInit('createQpEx', attributes, 'pd sendOpsFlags');
    const { pd, sendOpsFlags, ...rest } = attributes;
    const type = rest.qpType ?? QpType.RC;
    const possible = POSSIBLE[type] ?? 0;
    checkBits('sendOpsFlags', sendOpsFlags, 'QpExWith');
    if (sendOpsFlags & ~possible) {
      const missing = Object.entries(QpExWith).filter(([, bit]) => sendOpsFlags & ~possible & bit);
      throw new RefusalError(
        'EOPNOTSUPP',
        `createQpEx: the queue pair type does not support ${missing.map(([name]) => name).join(', ')}; leave it out`,
      );
    }
    const qp = this.create(pd, rest) as QueuePairEx;
    qp.#sendOpsFlags = sendOpsFlags;
    return qp;
  }

  /** `ibv_wr_start`: a batch begins. */
  wrStart(): void {
    if (this.#batch)
      throw new MisuseError(
        'wrStart',
        'is not valid during a batch: call wrComplete or wrAbort first',
      );
    this.#batch = [];
  }

  /**
   * `ibv_wr_complete`: posts the batch. Throws what is wrong with it, and nothing is posted then:
   * MisuseError, RefusalError EINVAL (not in a state to send), ENOMEM (the queue has no room for
   * all). The error's `badWr` is the index of the request it is about.
   */
  wrComplete(): void {
    const batch = this.#open('wrComplete');
    this.#batch = undefined;
    batch.forEach((request, index) => this.#checkAddressed(request, index));
    if (batch.length > 0) this.postTogether(batch);
  }

  /** `ibv_wr_abort`: the batch is forgotten. */
  wrAbort(): void {
    this.#open('wrAbort');
    this.#batch = undefined;
  }

  wrSend(): void {
    this.#begin('SEND', { opcode: WrOpcode.SEND });
  }

  /** `immData`: four bytes as a big-endian number. */
  wrSendImm(immData: number): void {
    this.#begin('SEND_WITH_IMM', { opcode: WrOpcode.SEND_WITH_IMM, immData });
  }

  wrSendInv(invalidateRkey: number): void {
    this.#begin('SEND_WITH_INV', { opcode: WrOpcode.SEND_WITH_INV, invalidateRkey });
  }

  wrRdmaWrite(rkey: number, remoteAddr: number | bigint): void {
    this.#begin('RDMA_WRITE', { opcode: WrOpcode.RDMA_WRITE, rdma: { remoteAddr, rkey } });
  }

  wrRdmaWriteImm(rkey: number, remoteAddr: number | bigint, immData: number): void {
    const opcode = WrOpcode.RDMA_WRITE_WITH_IMM;
    this.#begin('RDMA_WRITE_WITH_IMM', { opcode, rdma: { remoteAddr, rkey }, immData });
  }

  wrRdmaRead(rkey: number, remoteAddr: number | bigint): void {
    this.#begin('RDMA_READ', { opcode: WrOpcode.RDMA_READ, rdma: { remoteAddr, rkey } });
  }

  wrAtomicCmpSwp(
    rkey: number,
    remoteAddr: number | bigint,
    compare: number | bigint,
    swap: number | bigint,
  ): void {
    const atomic = { remoteAddr, rkey, compareAdd: compare, swap };
    this.#begin('ATOMIC_CMP_AND_SWP', { opcode: WrOpcode.ATOMIC_CMP_AND_SWP, atomic });
  }

  wrAtomicFetchAdd(rkey: number, remoteAddr: number | bigint, add: number | bigint): void {
    const atomic = { remoteAddr, rkey, compareAdd: add };
    this.#begin('ATOMIC_FETCH_AND_ADD', { opcode: WrOpcode.ATOMIC_FETCH_AND_ADD, atomic });
  }

  /** `type`: made of PlacementType; `level`: a SelectivityLevel; `length`: bytes. */
  wrFlush(
    rkey: number,
    remoteAddr: number | bigint,
    length: number | bigint,
    type: PlacementTypes,
    level: SelectivityLevel,
  ): void {
    const flush = { rkey, remoteAddr, length, type, level };
    this.#begin('FLUSH', { opcode: WrOpcode.FLUSH, flush });
  }

  /** `atomicWr`: 8 bytes, copied now. They go inline: the queue pair needs maxInlineData 8. */
  wrAtomicWrite(rkey: number, remoteAddr: number | bigint, atomicWr: Uint8Array): void {
    if (atomicWr.length !== 8) {
      throw new MisuseError('atomicWr', `must have 8 bytes, got ${atomicWr.length}`);
    }
    const rdma = { remoteAddr, rkey };
    const inline = Uint8Array.from(atomicWr);
    this.#begin('ATOMIC_WRITE', { opcode: WrOpcode.ATOMIC_WRITE, rdma, inline });
  }

  wrLocalInv(invalidateRkey: number): void {
    this.#begin('LOCAL_INV', { opcode: WrOpcode.LOCAL_INV, invalidateRkey });
  }

  /** A window of type 2; `rkey`: its next key (`incRkey`). */
  wrBindMw(mw: MemoryWindow, rkey: number, bindInfo: MwBindInfo): void {
    this.#begin('BIND_MW', { opcode: WrOpcode.BIND_MW, bindMw: { mw, rkey, bindInfo } });
  }

  wrSetSge(lkey: number, addr: number | bigint, length: number | bigint): void {
    this.#last('wrSetSge').sgList = [{ lkey, addr, length }];
  }

  wrSetSgeList(sgList: readonly Sge[]): void {
    checkArray('sgList', sgList, 'SGEs');
    this.#last('wrSetSgeList').sgList = sgList.map((sge) => ({ ...sge }));
  }

  /** The bytes are copied now. */
  wrSetInlineData(data: Uint8Array): void {
    this.#setInline('wrSetInlineData', [data]);
  }

  /** The bytes are copied now, one buffer behind the other. */
  wrSetInlineDataList(bufList: readonly Uint8Array[]): void {
    checkArray('bufList', bufList, 'Uint8Arrays');
    this.#setInline('wrSetInlineDataList', bufList);
  }

  wrSetUdAddr(ah: AddressHandle, remoteQpn: number, remoteQkey: number): void {
    this.#last('wrSetUdAddr').ud = { ah, remoteQpn, remoteQkey };
  }

  #open(verb: string): Draft[] {
    if (!this.#batch)
      throw new MisuseError(verb, 'is only valid during a batch: call wrStart first');
    return this.#batch;
  }

  #begin(name: keyof typeof QpExWith, request: AnyWorkRequest): void {
    const batch = this.#open('wr');
    if (!(this.#sendOpsFlags & QpExWith[name])) {
      throw new MisuseError(
        'sendOpsFlags',
        `must include QpExWith.${name} at creation of the queue pair`,
      );
    }
    if (this.wrFlags & SendFlag.INLINE) {
      throw new MisuseError('wrFlags', 'is not valid with INLINE: call wrSetInlineData');
    }
    batch.push({ ...request, wrId: this.wrId, sendFlags: this.wrFlags });
  }

  #last(verb: string): Draft {
    const last = this.#open(verb).at(-1);
    if (!last) throw new MisuseError(verb, 'requires a request of the batch before it');
    return last;
  }

  #setInline(verb: string, buffers: readonly Uint8Array[]): void {
    const request = this.#last(verb);
    for (const buffer of buffers) checkBytes('data', buffer);
    const data = new Uint8Array(buffers.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const buffer of buffers) {
      data.set(buffer, at);
      at += buffer.length;
    }
    request.inline = data;
  }

  #checkAddressed(request: AnyWorkRequest, index: number): void {
    if (this.qpType !== QpType.UD || request.ud) return;
    const error = new MisuseError('ud', 'is required for a datagram: call wrSetUdAddr');
    throw Object.assign(error, { badWr: index });
  }
}
