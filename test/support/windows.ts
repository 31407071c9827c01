/** Windows and fast registration on a wire: what tests of both need. */
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  MwType,
  QpState,
  SendFlag,
  WcStatusName,
  WrOpcode,
  incRkey,
  type FastMemoryRegion,
  type MemoryRegion,
  type MemoryWindow,
  type MwBindInfo,
} from '../../host/index.js';
import { FULL_ACCESS, pattern, type Wire } from './wire.js';

const { MW_BIND, REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC } = AccessFlag;
export const REMOTE = REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;
/** Syndrome of an acknowledgement. */
export const ACK = 0x1f;

/** `length` bytes of the wire's buffer from `offset` on, as a region that carries windows. */
export function regionOf(wire: Wire, offset = 0, length = 4096, more = 0): MemoryRegion {
  return wire.pd.regMr(wire.buffer.subarray(offset, offset + length), FULL_ACCESS | MW_BIND | more);
}

/** Completion of the request posted last, which sends nothing; undefined: it did not complete. */
export function lastStatus(wire: Wire): string | undefined {
  const wc = wire.cq.poll(100).at(-1);
  return wc && WcStatusName[wc.status];
}

export interface BindOptions {
  readonly rkey?: number;
  readonly addr?: bigint;
  readonly length?: number;
  readonly access?: number;
}

/** A window's `bindInfo` over all of the region, or what `options` say. */
export function infoOf(mr: MwBindInfo['mr'], options: BindOptions = {}): MwBindInfo {
  const { addr = mr instanceof Object && 'addr' in mr ? mr.addr : 0n } = options;
  const length = options.length ?? ('length' in mr ? mr.length : 0);
  return { mr, addr, length, mwAccessFlags: options.access ?? REMOTE };
}

/** Posts BIND_MW of a window of type 2 and returns its status. */
export function bind(
  wire: Wire,
  mw: MemoryWindow,
  mr: MwBindInfo['mr'],
  options: BindOptions = {},
): string | undefined {
  const { rkey = incRkey(mw.rkey) } = options;
  const bindMw = { mw, rkey, bindInfo: infoOf(mr, options) };
  wire.qp.postSend({ opcode: WrOpcode.BIND_MW, sendFlags: SendFlag.SIGNALED, bindMw });
  return lastStatus(wire);
}

/** The same of a window of type 1. */
export function bindType1(
  wire: Wire,
  mw: MemoryWindow,
  mr: MwBindInfo['mr'],
  options: BindOptions = {},
): string | undefined {
  wire.qp.bindMw(mw, { sendFlags: SendFlag.SIGNALED, bindInfo: infoOf(mr, options) });
  return lastStatus(wire);
}

/** A region and a window of `type` that is bound to it. */
export function bound(wire: Wire, type: number, options: BindOptions = {}) {
  const [mr, mw] = [regionOf(wire), wire.pd.allocMw(type)];
  const status = (type === MwType.TYPE_1 ? bindType1 : bind)(wire, mw, mr, options);
  assert.is(status, 'SUCCESS');
  return { mr, mw };
}

/** Posts LOCAL_INV and returns its status. */
export function invalidate(wire: Wire, invalidateRkey: number): string | undefined {
  const sendFlags = SendFlag.SIGNALED;
  wire.qp.postSend({ opcode: WrOpcode.LOCAL_INV, sendFlags, invalidateRkey });
  return lastStatus(wire);
}

export interface RegOptions {
  readonly key?: number;
  readonly buffer?: Uint8Array;
  readonly iova?: bigint;
  readonly access?: number;
}

/** Posts REG_MR, of the first 4096 bytes unless told otherwise, and returns its status. */
export function register(
  wire: Wire,
  mr: FastMemoryRegion,
  options: RegOptions = {},
): string | undefined {
  const { key = incRkey(mr.rkey), buffer = wire.buffer.subarray(0, 4096) } = options;
  const { iova = 0x10000n, access = FULL_ACCESS } = options;
  const regMr = { mr, key, buffer, iova, access };
  wire.qp.postSend({ opcode: WrOpcode.REG_MR, sendFlags: SendFlag.SIGNALED, regMr });
  return lastStatus(wire);
}

/** The test's requests, one after another, as the peer of a queue pair that was just connected. */
export class Requests {
  readonly #wire: Wire;
  #psn = 0x200;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** The syndrome of the answer to one WRITE, READ or atomic; -1: no answer. */
  ask(opcode: number, key: number, virtualAddress: bigint, length = 8): number {
    const fields = { opcode, psn: this.#psn++, ackRequest: 1, key, virtualAddress };
    const payload = opcode === Opcode.RC_RDMA_WRITE_ONLY ? pattern(length) : 0;
    this.#wire.sendPacket({ ...fields, dmaLength: length }, payload);
    return this.#wire.takePackets()[0]?.syndrome ?? -1;
  }

  write(key: number, virtualAddress: bigint, length = 8): number {
    return this.ask(Opcode.RC_RDMA_WRITE_ONLY, key, virtualAddress, length);
  }

  /** A SEND that kills a key. */
  invalidate(key: number): number {
    this.#wire.receive(1, 8192);
    const opcode = Opcode.RC_SEND_ONLY_WITH_INVALIDATE;
    this.#wire.sendPacket({ opcode, psn: this.#psn++, ackRequest: 1, key }, 8);
    return this.#wire.takePackets()[0]?.syndrome ?? -1;
  }
}

/** Connects the queue pair again: a new life, and the test's requests begin anew. */
export function reconnect(wire: Wire): Requests {
  wire.qp.modify({ qpState: QpState.RESET });
  wire.connect();
  wire.takePackets();
  wire.cq.poll(1000);
  return new Requests(wire);
}
