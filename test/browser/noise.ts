/** Messages of a peer that keeps no rules. */
import { Kind } from '../../host/link/channel/channel-frame.js';

/** A message of anything: noise in our framing, lengths that lie, packets that look like RoCE. */
export function noiseMessage(random: () => number): Uint8Array {
  const length = random() % 8 === 0 ? random() % 20_000 : random() % 1200;
  const bytes = Uint8Array.from({ length }, () => random());
  if (random() % 4 === 0 || length < 16) return bytes;
  bytes[0] = random() % 5 === 0 ? Kind.ACKNOWLEDGE : Kind.PACKETS;
  if (random() % 2 === 0) {
    // A packet as long as what is left: it comes as far as the engine's border.
    new DataView(bytes.buffer).setUint16(6, length - 8, true);
    // An opcode that exists, the default P_Key, a queue pair of those that are there.
    bytes[8] = random() % 0x18;
    bytes[9] = 0x40;
    bytes.set([0xff, 0xff, 0, 0, random() & 1, random()], 10);
  }
  return bytes;
}
