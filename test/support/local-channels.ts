/** The channel from one context of a device to another (assembly/memory/local-channel.ts). */
import {
  ArenaLayout,
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

  /** `target`, `source`: slots of contexts. */
  constructor({ memory, address }: ArenaMemory, target: number, source: number) {
    const { localChannels, localMessagesMax, contextsMax } = structAt(memory, ArenaLayout, address);
    const stride = HEADER_BYTES + localMessagesMax * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    this.#memory = memory;
    this.entries = localMessagesMax;
    this.#at = localChannels + target * (BITS_BYTES + contextsMax * stride) + BITS_BYTES;
    this.#at += source * stride;
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
