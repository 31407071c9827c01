/** The codec of the engine over one packet at a time, with a table of this module's own. */
import { initOpcodeTable } from '../wire/opcode';
import { PacketFields, parsePacket } from '../wire/packet';

/** OPCODE_TABLE_SIZE bytes, zero (no KNOWN flag anywhere) until first use. */
const TABLE: usize = memory.data(4096, 8);
const FIELDS: usize = memory.data(offsetof<PacketFields>(), 8);
let tableReady = false;

/** Address of the opcode table, made at first use. */
export function opcodeTable(): usize {
  if (!tableReady) {
    initOpcodeTable(TABLE);
    tableReady = true;
  }
  return TABLE;
}

/** The fields of the packet that `decode` took last. */
export function decoded(): PacketFields {
  return changetype<PacketFields>(FIELDS);
}

/** Reads a packet, BTH to ICRC, into `decoded()`; returns a PacketStatus. */
export function decode(packet: usize, length: u32): u32 {
  return parsePacket(opcodeTable(), packet, length, decoded());
}
