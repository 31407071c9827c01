/**
 * Maps connection-manager messages to the process that owns them, when several processes answer at
 * one address. Service ids are in a table of the arena; communication ids carry the slot of their
 * creator in the upper byte, which peers do not interpret.
 */
import { ServiceLayout } from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';

/** From the beginning of a UD SEND ONLY packet: BTH, DETH, MAD header, then the CM's message. */
const OPCODE_UD_SEND_ONLY = 0x64;
const MAD = 12 + 8;
const MESSAGE = MAD + 24;
const CM_CLASS = 7;
/** As far as anything is read: a REQ's or SIDR_REQ's service id. */
const LENGTH_MIN = MESSAGE + 16;
/** Attributes of the communication management class (IBA 12.6). */
const REQ = 0x10;
const SIDR_REQ = 0x17;
const SIDR_REP = 0x18;
/** Verbena's own message, with the service id at the same offset as a REQ (host/cm/mad.ts). */
const AUTH_REQ = 0xff10;

export class ServiceTable {
  readonly #memory: EngineMemory;
  readonly #address: number;
  readonly #count: number;

  constructor(memory: EngineMemory, address: number, count: number) {
    this.#memory = memory;
    this.#address = address;
    this.#count = count;
  }

  /**
   * Under the arena's lock. 'taken': another slot has the id; 'full'; 'ours': this slot has it now.
   */
  take(id: bigint, slot: number): 'ours' | 'taken' | 'full' {
    let free = -1;
    for (let index = 0; index < this.#count; index++) {
      const service = this.#at(index);
      if (service.owner === 0) {
        if (free < 0) free = index;
      } else if (service.id === id) return service.owner === slot + 1 ? 'ours' : 'taken';
    }
    if (free < 0) return 'full';
    const service = this.#at(free);
    service.id = id;
    service.owner = slot + 1;
    return 'ours';
  }

  /** Under the arena's lock. */
  giveBack(id: bigint, slot: number): void {
    for (let index = 0; index < this.#count; index++) {
      const service = this.#at(index);
      if (service.owner === slot + 1 && service.id === id) service.owner = 0;
    }
  }

  /** Under the arena's lock: the slot is dead. */
  giveBackAll(slot: number): void {
    for (let index = 0; index < this.#count; index++) {
      const service = this.#at(index);
      if (service.owner === slot + 1) service.owner = 0;
    }
  }

  /** The slot that registered this id, or undefined. */
  ownerOf(id: bigint): number | undefined {
    for (let index = 0; index < this.#count; index++) {
      const service = this.#at(index);
      if (service.owner !== 0 && service.id === id) return service.owner - 1;
    }
    return undefined;
  }

  /** Under the arena's lock: ids that agree with `prefix` in their upper 24 bits, by slot. */
  ids(prefix: bigint): Map<number, bigint> {
    const found = new Map<number, bigint>();
    for (let index = 0; index < this.#count; index++) {
      const { id, owner } = this.#at(index);
      if (owner !== 0 && id >> 40n === prefix >> 40n) found.set(owner - 1, id);
    }
    return found;
  }

  /** The slot of a packet to queue pair 1; undefined: the process that received it. */
  slotOfMad(view: DataView, packet: number, length: number): number | undefined {
    const isCm =
      length >= LENGTH_MIN &&
      view.getUint8(packet) === OPCODE_UD_SEND_ONLY &&
      view.getUint8(packet + MAD + 1) === CM_CLASS;
    if (!isCm) return undefined;
    const message = packet + MESSAGE;
    switch (view.getUint16(packet + MAD + 16)) {
      case REQ:
      case AUTH_REQ:
      case SIDR_REQ:
        return this.ownerOf(view.getBigUint64(message + 8));
      case SIDR_REP:
        return view.getUint8(message);
      default:
        return view.getUint8(message + 4);
    }
  }

  #at(index: number) {
    return structAt(this.#memory, ServiceLayout, this.#address + index * ServiceLayout.size);
  }
}
