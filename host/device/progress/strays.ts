/**
 * Packets that another process received for us (host/bridge/turns.c): it makes turns of the engine
 * on our socket, and what may be for another process of the device, or for the connection manager,
 * it leaves here. Both are here with the turn only.
 * ```
 *  0       64                    64 + STRAY_BYTES
 *  | count | source, port, length, packet | ...
 * ```
 */
import type { ControlBlock } from '../../engine/control-block.js';
import type { EngineMemory } from '../../engine/memory.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import type { LinkReceiver } from '../../link/link.js';

/** The numbers are written into build/bridge/abi.h. */
export const STRAY_ENTRIES = 16;
export const STRAY_BYTES = 4352;
export const STRAYS_HEADER_BYTES = 64;
/** Offsets in an entry. */
export const STRAY_PORT = 16;
export const STRAY_LENGTH = 20;
export const STRAY_PACKET = 64;
export const STRAYS_BYTES = STRAYS_HEADER_BYTES + STRAY_ENTRIES * STRAY_BYTES;

/** Hands what was left to the receiver of a link. Returns how many packets. */
export function collectStrays(
  { bytes, words }: EngineMemory,
  control: ControlBlock,
  receiver: LinkReceiver,
): number {
  const { strays } = control;
  if (strays === 0) return 0;
  const count = Math.min(words[strays >>> 2]!, STRAY_ENTRIES);
  words[strays >>> 2] = 0;
  for (let index = 0; index < count; index++) {
    const at = strays + STRAYS_HEADER_BYTES + index * STRAY_BYTES;
    const port = words[(at + STRAY_PORT) >>> 2]! & 0xffff;
    const length = Math.min(words[(at + STRAY_LENGTH) >>> 2]!, STRAY_BYTES - STRAY_PACKET);
    const source = new Endpoint(new Gid(bytes.slice(at, at + 16)), port);
    if (length > 0) receiver.segments!(at + STRAY_PACKET, length, 0, source);
  }
  if (count > 0) receiver.flush();
  return count;
}
