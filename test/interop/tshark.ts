/** Packets as Wireshark's dissector sees them, and the comparison with our own parser. */
import { Header, PacketStatus, PacketStatusName } from '#build/abi.js';
import type { CapturedPacket } from '../../host/link/capture/pcap.js';
import { wireIcrc, type Codec, type FieldName, type Fields } from '../support/codec.js';
import { run } from './tools.js';

/**
 * Wireshark's names of our fields, by the header that has them. Where it shows no field although
 * the header is there, its version does not know the opcode.
 */
const FIELDS: readonly (readonly [Header, FieldName, string])[] = [
  [Header.BTH, 'opcode', 'infiniband.bth.opcode'],
  [Header.BTH, 'solicited', 'infiniband.bth.se'],
  [Header.BTH, 'migration', 'infiniband.bth.m'],
  [Header.BTH, 'padCount', 'infiniband.bth.padcnt'],
  [Header.BTH, 'pkey', 'infiniband.bth.p_key'],
  [Header.BTH, 'targetQp', 'infiniband.bth.destqp'],
  [Header.BTH, 'ackRequest', 'infiniband.bth.a'],
  [Header.BTH, 'psn', 'infiniband.bth.psn'],
  [Header.DETH, 'qkey', 'infiniband.deth.q_key'],
  [Header.DETH, 'sourceQp', 'infiniband.deth.srcqp'],
  [Header.RETH, 'virtualAddress', 'infiniband.reth.va'],
  [Header.RETH, 'key', 'infiniband.reth.r_key'],
  [Header.RETH, 'dmaLength', 'infiniband.reth.dmalen'],
  // Wireshark has one field for the addresses and keys of RETH and AtomicETH.
  [Header.ATOMIC_ETH, 'virtualAddress', 'infiniband.reth.va'],
  [Header.ATOMIC_ETH, 'key', 'infiniband.reth.r_key'],
  [Header.ATOMIC_ETH, 'swapAdd', 'infiniband.atomiceth.swapdt'],
  [Header.ATOMIC_ETH, 'compare', 'infiniband.atomiceth.cmpdt'],
  [Header.AETH, 'syndrome', 'infiniband.aeth.syndrome'],
  [Header.AETH, 'msn', 'infiniband.aeth.msn'],
  [Header.ATOMIC_ACK_ETH, 'original', 'infiniband.atomicacketh.origremdt'],
  [Header.IMM_DT, 'immediate', 'infiniband.immdt'],
  [Header.IETH, 'key', 'infiniband.ieth'],
];

const OTHERS = ['frame.number', 'frame.protocols', '_ws.malformed', 'infiniband.invariant.crc'];
const COLUMNS = [...new Set([...OTHERS, ...FIELDS.map(([, , name]) => name)])];
/** Decoded as numbers in hexadecimal without 0x. */
const BYTES = new Set(['infiniband.immdt', 'infiniband.ieth']);

/** FLUSH and ATOMIC WRITE are younger than Wireshark 4.0, CNP is payload to it, 0xe0 is ours. */
const UNKNOWN_TO_TSHARK: ReadonlySet<number> = new Set([0x1c, 0x1d, 0x81, 0xe0]);

export type Dissected = ReadonlyMap<string, string>;

/** One map for each frame of the file: column to text, absent columns left out. */
export async function dissect(file: string): Promise<Dissected[]> {
  const { stdout } = await run('tshark', [
    ...['-n', '-r', file, '-T', 'fields', '-E', 'occurrence=f'],
    // Its heuristics take any short SEND for RPC over RDMA.
    ...['--disable-protocol', 'rpcordma'],
    ...COLUMNS.flatMap((name) => ['-e', name]),
  ]);
  const lines = stdout.split('\n').filter((line) => line !== '');
  return lines.map((line) => {
    const values = line.split('\t');
    return new Map(COLUMNS.map((name, index) => [name, values[index] ?? '']));
  });
}

/** The comment of each packet of a pcapng file; empty: none. */
export async function packetComments(file: string): Promise<string[]> {
  const { stdout } = await run('tshark', [
    ...['-n', '-r', file, '-T', 'fields', '-E', 'occurrence=f', '-e', 'frame.number'],
    ...['-e', 'frame.comment'],
  ]);
  const lines = stdout.split('\n').filter((line) => line !== '');
  return lines.map((line) => line.split('\t')[1] ?? '');
}

function numberOf(column: string, text: string): bigint {
  if (text === 'True' || text === 'False') return text === 'True' ? 1n : 0n;
  return BigInt(BYTES.has(column) ? `0x${text.replaceAll(':', '')}` : text);
}

/** Packets of `dissected` that Wireshark does not take for whole InfiniBand packets. */
export function complaints(dissected: readonly Dissected[]): string[] {
  return dissected
    .filter((packet) => {
      const protocols = packet.get('frame.protocols')!.split(':');
      return packet.get('_ws.malformed') !== '' || !protocols.includes('infiniband');
    })
    .map((packet) => {
      const malformed = packet.get('_ws.malformed');
      const what = malformed ? `malformed (${malformed})` : 'no InfiniBand';
      return `packet ${packet.get('frame.number')} is ${what}: ${packet.get('frame.protocols')}`;
    });
}

/** Differences between Verbena's parser and Wireshark; every field that both know is compared. */
export function disagreements(
  codec: Codec,
  packets: readonly CapturedPacket[],
  dissected: readonly Dissected[],
): string[] {
  if (packets.length !== dissected.length) {
    return [`we see ${packets.length} packets, tshark ${dissected.length}`];
  }
  return packets.flatMap(({ payload, frameNumber }, index) => {
    const { status, fields } = codec.parse(payload);
    if (status !== PacketStatus.OK) return [`packet ${frameNumber}: ${PacketStatusName[status]}`];
    return compare(fields, wireIcrc(payload), dissected[index]!).map(
      (difference) => `packet ${frameNumber}: ${difference}`,
    );
  });
}

function compare(fields: Fields, icrc: number, dissected: Dissected): string[] {
  const isUnknown = UNKNOWN_TO_TSHARK.has(fields.opcode);
  const differences: string[] = [];
  const differs = (name: string, ours: string, theirs: string): void => {
    differences.push(`${name} is ${ours} for us, ${theirs || 'absent'} for tshark`);
  };
  for (const [header, field, column] of FIELDS) {
    const text = dissected.get(column)!;
    if (!(fields.headers & header) || (isUnknown && header !== Header.BTH)) continue;
    const ours = BigInt(fields[field]);
    if (text === '' || numberOf(column, text) !== ours)
      differs(field, `0x${ours.toString(16)}`, text);
  }
  const theirs = dissected.get('infiniband.invariant.crc')!;
  // Wireshark shows the four bytes in the order in which they stand.
  const ours = Buffer.alloc(4);
  ours.writeUInt32LE(icrc);
  if (!isUnknown && Number(theirs) !== ours.readUInt32BE())
    differs('ICRC', ours.toString('hex'), theirs);
  return differences;
}
