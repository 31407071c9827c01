/** A second engine beside the one under attack: it can be in the middle of a call. */
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextLayout, ContextSlotLayout } from '#build/abi.js';
import type { Device } from '../../host/device/device.js';
import { structAt, type Struct } from '../../host/engine/struct.js';

/**
 * Another engine of the domain, as this one sees it: a slot of the arena with a word that shows
 * whether the engine is in a call.
 */
export class OtherEngine {
  readonly #arena: Struct<typeof ArenaLayout>;
  readonly #slot: Struct<typeof ContextSlotLayout>;

  constructor({ arena: { memory, heap, address, exports }, engine }: Device, pd: number) {
    this.#arena = structAt(memory, ArenaLayout, address);
    // Replaces the table of one slot by one of two; the first slot is unchanged.
    const slots = heap.alloc(2 * CONTEXT_SLOT_SIZE);
    memory.bytes.copyWithin(
      slots,
      this.#arena.contextSlots,
      this.#arena.contextSlots + CONTEXT_SLOT_SIZE,
    );
    memory.bytes.fill(0, slots + CONTEXT_SLOT_SIZE, slots + 2 * CONTEXT_SLOT_SIZE);
    this.#arena.contextSlots = slots;
    this.#arena.contextsMax = 2;
    this.#slot = structAt(memory, ContextSlotLayout, slots + CONTEXT_SLOT_SIZE);
    const context = structAt(memory, ContextLayout, engine.context);
    context.slotIndex = 1;
    exports.attachPd(engine.context, pd);
    context.slotIndex = 0;
  }

  /** Enters a call that begins now, or leaves it. */
  enter(isIn: boolean): void {
    this.#slot.activity = isIn ? this.#arena.epoch * 2 + 1 : 0;
  }
}
