/**
 * Keys of an area that its owner's work requests open and close, in the order of a send queue:
 * windows of type 2 (BIND_MW), and regions that REG_MR registers; LOCAL_INV ends both.
 */
import type { AnyRequest } from '../support/any-request.js';
import {
  AccessFlag,
  MwType,
  WrOpcode,
  incRkey,
  type FastMemoryRegion,
  type MemoryRegion,
  type MemoryWindow,
  type ProtectionDomain,
} from '../../host/index.js';
import type { Area, Region } from './area.js';
import { LOCAL_KINDS, type OperationKind } from './operations.js';
import type { Random } from './random.js';

const { REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, LOCAL_WRITE, MW_BIND, ZERO_BASED } = AccessFlag;
const REMOTE = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

/** A planned request, and what to do when it has succeeded. */
export interface BindingPlan {
  readonly kind: OperationKind;
  readonly request: Omit<AnyRequest, 'wrId' | 'sendFlags'>;
  executed(): void;
}

/** Something that is opened and closed by turns. */
interface Slot {
  readonly key: MemoryWindow | FastMemoryRegion;
  state: 'closed' | 'under way' | 'open';
  region: Region | undefined;
}

export class Bindings {
  readonly #area: Area;
  readonly #random: Random;
  readonly #slots: readonly Slot[];
  /** Region to which the windows are bound. */
  readonly #target: MemoryRegion;

  constructor(pd: ProtectionDomain, area: Area, random: Random) {
    this.#area = area;
    this.#random = random;
    this.#target = pd.regMr(area.actual, LOCAL_WRITE | MW_BIND);
    const { length } = area;
    const keys = [
      pd.allocMw(MwType.TYPE_2),
      pd.allocMw(MwType.TYPE_2),
      pd.allocMr(length),
      pd.context.allocMr(length),
    ];
    this.#slots = keys.map((key) => ({ key, state: 'closed', region: undefined }));
  }

  /** Operation that is possible now; undefined: none. */
  next(): BindingPlan | undefined {
    const slot = this.#random.pick(this.#slots);
    if (slot.state === 'closed') return this.#open(slot);
    // Requests that name it must be complete, and the area must keep one key.
    const idle = slot.state === 'open' && slot.region?.uses === 0;
    return idle && this.#area.regions.length > 1 ? this.#close(slot, slot.region!) : undefined;
  }

  close(): void {
    for (const { key } of this.#slots) {
      if ('dealloc' in key) key.dealloc();
      else key.dereg();
    }
    this.#target.dereg();
  }

  #open(slot: Slot): BindingPlan {
    const { key } = slot;
    const isWindow = 'dealloc' in key;
    const rkey = incRkey(key.rkey);
    const zeroBased = this.#random.chance(0.3);
    const { byteOffset, length } = this.#area.actual;
    const base = zeroBased ? 0 : isWindow ? Number(this.#target.addr) : byteOffset;
    slot.state = 'under way';
    const access = REMOTE | (zeroBased ? ZERO_BASED : 0);
    const bindInfo = { mr: this.#target, addr: this.#target.addr, length };
    const buffer = this.#area.actual;
    return {
      kind: isWindow ? LOCAL_KINDS.bind : LOCAL_KINDS.register,
      request: isWindow
        ? {
            opcode: WrOpcode.BIND_MW,
            bindMw: { mw: key, rkey, bindInfo: { ...bindInfo, mwAccessFlags: access } },
          }
        : {
            opcode: WrOpcode.REG_MR,
            regMr: { mr: key, key: rkey, buffer, access: access | LOCAL_WRITE },
          },
      executed: () => {
        slot.state = 'open';
        slot.region = { mr: { rkey, lkey: rkey }, base, uses: 0 };
        this.#area.regions.push(slot.region);
      },
    };
  }

  #close(slot: Slot, region: Region): BindingPlan {
    slot.state = 'under way';
    const { regions } = this.#area;
    regions.splice(regions.indexOf(region), 1);
    return {
      kind: LOCAL_KINDS.invalidate,
      request: { opcode: WrOpcode.LOCAL_INV, invalidateRkey: region.mr.rkey },
      executed: () => {
        slot.state = 'closed';
        slot.region = undefined;
        this.#area.bury(region);
      },
    };
  }
}
