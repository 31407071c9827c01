/** A kernel filter of a packet socket: frames that may be UDP datagrams to some ports. */
import {
  AND,
  IP_HEADER,
  JUMP_IF_EQUAL,
  LOAD_BYTE,
  LOAD_HALF,
  RETURN,
  bpfProgram,
  type Instruction,
} from '../udp/bpf.js';

const PROTOCOL_UDP = 17;
/** First byte of an IPv4 header without options; version 6 in the upper half of a byte. */
const PLAIN_IPV4 = 0x45;
const VERSION_6 = 0x60;
const WHOLE = 0xffffffff;
const DROP = 0;

/**
 * Passes UDP datagrams to one of `ports`, and all packets with IPv4 options or IPv6 extension headers:
 * the program has no loops to find their UDP header.
 */
export function portFilter(ports: readonly number[]): Uint8Array {
  const ipv4 = datagramTest(9, 22, ports);
  const ipv6: Instruction[] = [
    [LOAD_BYTE, IP_HEADER],
    [AND, 0xf0],
    [JUMP_IF_EQUAL, VERSION_6, 1, 0],
    // IPv4 with options, or no IP: the reader of the frame decides.
    [RETURN, WHOLE],
    ...extensionTest(),
    ...datagramTest(6, 42, ports),
  ];
  return bpfProgram([
    [LOAD_BYTE, IP_HEADER],
    [JUMP_IF_EQUAL, PLAIN_IPV4, 0, ipv4.length],
    ...ipv4,
    ...ipv6,
  ]);
}

/** Passes packets whose first header is hop-by-hop, routing or destination options. */
function extensionTest(): Instruction[] {
  const headers = [0, 43, 60];
  const tests = headers.flatMap((header): Instruction[] => [
    [JUMP_IF_EQUAL, header, 0, 1],
    [RETURN, WHOLE],
  ]);
  return [[LOAD_BYTE, IP_HEADER + 6], ...tests];
}

/** Ends the program: passes UDP to one of the ports, drops anything else. */
function datagramTest(
  protocolOffset: number,
  portOffset: number,
  ports: readonly number[],
): Instruction[] {
  const tests = ports.flatMap((port): Instruction[] => [
    [JUMP_IF_EQUAL, port, 0, 1],
    [RETURN, WHOLE],
  ]);
  return [
    [LOAD_BYTE, IP_HEADER + protocolOffset],
    [JUMP_IF_EQUAL, PROTOCOL_UDP, 1, 0],
    [RETURN, DROP],
    [LOAD_HALF, IP_HEADER + portOffset],
    ...tests,
    [RETURN, DROP],
  ];
}
