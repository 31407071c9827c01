/** The channel from one context of a device to another (assembly/memory/local-channel.ts). */
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  LOCAL_MESSAGE_SIZE,
  LOCAL_VALUE_SIZE,
  LocalMessageLayout,
} from '#build/abi.js';
import type { ArenaMemory } from '../../host/engine/arena.js';
import { structAt, type Struct } from '../../host/engine/struct.js';

const BITS_BYTES = 64;
const HEADER_BYTES = 128;

export class LocalChannel {
  readonly #memory: ArenaMemory['memory'];
  readonly #at: number;
  readonly entries: number;
  readonly #announce: () => void;

  /** `target`, `source`: slots of contexts. */
  constructor({ memory, address }: ArenaMemory, target: number, source: number) {
    const arena = structAt(memory, ArenaLayout, address);
    const { localChannels, localMessagesMax, contextsMax, contextSlots } = arena;
    const stride = HEADER_BYTES + localMessagesMax * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    this.#memory = memory;
    this.entries = localMessagesMax;
    const inbox = localChannels + target * (BITS_BYTES + contextsMax * stride);
    this.#at = inbox + BITS_BYTES + source * stride;
    const slot = structAt(memory, ContextSlotLayout, contextSlots + target * CONTEXT_SLOT_SIZE);
    this.#announce = () => {
      memory.words[(inbox >> 2) + (source >> 5)]! |= 1 << (source & 31);
      slot.announced++;
    };
  }

  /** Notifies the target that the source has posted or answered something. */
  announce(): void {
    this.#announce();
  }

  /** The message at an index that counts up. */
  message(index: number): Struct<typeof LocalMessageLayout> {
    const place = index % this.entries;
    const at = this.#at + HEADER_BYTES + place * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    return structAt(this.#memory, LocalMessageLayout, at);
  }

  get head(): number {
    return this.#memory.words[this.#at >> 2]!;
  }

  set head(value: number) {
    this.#memory.words[this.#at >> 2] = value;
  }

  get tail(): number {
    return this.#memory.words[(this.#at + 64) >> 2]!;
  }

  set tail(value: number) {
    this.#memory.words[(this.#at + 64) >> 2] = value;
  }
}
