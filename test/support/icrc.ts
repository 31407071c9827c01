/** RoCEv2's ICRC, apart from the engine's: from the bytes of the IP packet, as in a capture. */
import { crc32 } from 'node:zlib';
import type { CapturedPacket } from '../../host/link/capture/pcap.js';

/** `ipPacket` begins with the IP header and ends with the ICRC's four bytes, which do not count. */
export function icrc(ipPacket: Uint8Array): number {
  const bytes = Uint8Array.from(ipPacket.subarray(0, ipPacket.length - 4));
  const ipv4 = bytes[0]! >> 4 === 4;
  const udp = ipv4 ? 20 : 40;
  const ones = ipv4 ? [1, 8, 10, 11] : [1, 2, 3, 7];
  if (!ipv4) bytes[0]! |= 0x0f;
  for (const at of [...ones, udp + 6, udp + 7, udp + 8 + 4]) bytes[at] = 0xff;
  return crc32(bytes, crc32(new Uint8Array(8).fill(0xff)));
}

/** Does the packet's last word, little-endian, match its ICRC? */
export function icrcMatches(file: Uint8Array, packet: CapturedPacket): boolean {
  const end = packet.payloadOffset + packet.payload.length;
  const word = new DataView(file.buffer, file.byteOffset + end - 4, 4).getUint32(0, true);
  return word === icrc(file.subarray(packet.ipOffset, end));
}
