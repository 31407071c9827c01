/**
 * Keys of a queue pair with authenticated packets, where the engine finds them
 * (assembly/transport/shared/packet-auth.ts).
 */
import { PACKET_AUTH_SIZE, PacketAuthLayout } from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import type { Device } from '../../device/device.js';
import { structAt } from '../../engine/struct.js';
import { mustBe } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';
import { refuse } from '../refuse.js';

/** Bytes of each key (ChaCha20). */
export const PACKET_KEY_BYTES = 32;

/**
 * Of `qp.setPacketKeys`, which copies them. A key must be used for one direction of one connection
 * only.
 */
export interface PacketKeys {
  /** 32 bytes: what this side sends is tagged with it. */
  readonly sendKey: Uint8Array;
  /** 32 bytes: the `sendKey` of the peer. */
  readonly recvKey: Uint8Array;
  /** Encrypts all behind the base transport header as well; both sides alike. Default false. */
  readonly encrypt?: boolean;
}

/** The engine's memory of one queue pair's keys. */
export class PacketKeyMemory {
  readonly #device: Device;
  readonly #address: number;

  private constructor(device: Device, address: number) {
    this.#device = device;
    this.#address = address;
  }

  /** Throws as `qp.setPacketKeys`. */
  static give(device: Device, qp: number, keys: PacketKeys): PacketKeyMemory {
    if (typeof keys !== 'object' || (keys as unknown) === null) {
      throw new MisuseError('keys', `must be { sendKey, recvKey }, got ${typeof keys}`);
    }
    checkKeys('setPacketKeys', keys, 'sendKey recvKey encrypt');
    checkKey('sendKey', keys.sendKey);
    checkKey('recvKey', keys.recvKey);
    // With one key both sides would use the same nonces, and accept their own packets.
    if (keys.sendKey.every((byte, index) => byte === keys.recvKey[index])) {
      throw new MisuseError('recvKey', 'must differ from sendKey: each direction has its own key');
    }
    const { encrypt = false } = keys;
    // Its type alone: it may be a key at a wrong place.
    if (typeof encrypt !== 'boolean') throw mustBe('encrypt', 'true or false', typeof encrypt);
    const { arena, engine } = device;
    const address = arena.heap.alloc(PACKET_AUTH_SIZE);
    const { sendKey, receiveKey } = PacketAuthLayout.fields;
    arena.memory.bytes.set(keys.sendKey, address + sendKey[0]);
    arena.memory.bytes.set(keys.recvKey, address + receiveKey[0]);
    structAt(arena.memory, PacketAuthLayout, address).encrypts = encrypt ? 1 : 0;
    const given = new PacketKeyMemory(device, address);
    try {
      refuse(arena.exports.setQpAuth(engine.context, qp, address), 'setPacketKeys', {
        EINVAL: 'a queue pair of type RC or UC takes keys once, in RESET or INIT; reset it first',
        EOPNOTSUPP: 'no authenticated packets here; use verbena/browser',
      });
    } catch (error) {
      given.release();
      throw error;
    }
    return given;
  }

  /** After the engine has forgotten the keys. */
  release(): void {
    const { heap, memory } = this.#device.arena;
    memory.bytes.fill(0, this.#address, this.#address + PACKET_AUTH_SIZE);
    heap.free(this.#address);
  }
}

function checkKey(name: string, key: Uint8Array): void {
  if (key instanceof Uint8Array && key.length === PACKET_KEY_BYTES) return;
  // The key itself is not shown: errors are logged.
  const got = key instanceof Uint8Array ? `${key.length} bytes` : typeof key;
  throw new MisuseError(name, `must be ${PACKET_KEY_BYTES} bytes (a Uint8Array), got ${got}`);
}
