/**
 * Exports that ask the codec and the key table as the data path does, for tests, captures and
 * whoever explains packets. They change nothing.
 */
import { translate } from '../region/key-table';
import {
  icrcFlow4,
  icrcFlow6,
  icrcOf,
  icrcOfDoubled,
  icrcSolveIpId,
  icrcStart,
} from '../wire/icrc';
import { PacketFields, buildPacket, parsePacket } from '../wire/packet';
import { Context } from './context';

/** Looks a key up as the data path does: the linear address, or 0. */
export function lookupKey(
  context: usize,
  key: u32,
  pd: u32,
  addressHigh: u32,
  addressLow: u32,
  length: u32,
  access: u32,
): usize {
  const address = ((<u64>addressHigh) << 32) | addressLow;
  return translate(changetype<Context>(context).arena, key, pd, address, length, access);
}

/** The whole codec: packet to PacketFields. A PacketStatus. */
export function parse(context: usize, packet: usize, length: u32, fields: usize): u32 {
  return parsePacket(
    changetype<Context>(context).opcodeTable,
    packet,
    length,
    changetype<PacketFields>(fields),
  );
}

/** PacketFields to headers; returns their bytes, 0: no such opcode. */
export function build(context: usize, packet: usize, fields: usize): u32 {
  return buildPacket(
    changetype<Context>(context).opcodeTable,
    packet,
    changetype<PacketFields>(fields),
  );
}

/** Register after the pseudo header; `family` 4 or 6. */
function startOf(
  tables: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  length: u32,
): u32 {
  const flow =
    family == 4
      ? icrcFlow4(tables, source, target, sourcePort, targetPort)
      : icrcFlow6(tables, source, target, sourcePort, targetPort);
  return icrcStart(tables, flow, family == 4, length);
}

/** ICRC of the packet; `family` 4 or 6; addresses point to 4 or 16 bytes in network order. */
export function icrc(
  context: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const c = changetype<Context>(context);
  const begin = startOf(c.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOf(c.icrcTables, c.crcScratch, begin, packet, length);
}

/** The same, covering the packet twice: how rxe computes the ICRC of a FLUSH request. */
export function icrcDoubled(
  context: usize,
  family: u32,
  source: usize,
  target: usize,
  sourcePort: u32,
  targetPort: u32,
  packet: usize,
  length: u32,
): u32 {
  const c = changetype<Context>(context);
  const begin = startOf(c.icrcTables, family, source, target, sourcePort, targetPort, length);
  return icrcOfDoubled(c.icrcTables, c.crcScratch, begin, packet, length);
}

/** IPv4 identification that explains the difference between two ICRCs, or -1. */
export function ipIdOf(context: usize, difference: u32, length: u32): i32 {
  return icrcSolveIpId(changetype<Context>(context).icrcTables, difference, length);
}
