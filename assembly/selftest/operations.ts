/** Checks of the table of operations against the opcode table: what other code relies on. */
import { WORD } from '../region/access';
import { executeAtomic } from '../transport/shared/atomics';
import { NO_OPERATION, Operation, operationOf } from '../transport/shared/operation';
import { Header, PacketFlag, RESPONDED, Service, flagsOf, headersOf } from '../wire/opcode';
import { BUFFER, OPCODE_TABLE } from './memory';
import { begin, end, same } from './tap';

const SERVICES: u32 = Operation.RC | Operation.UC | Operation.UD;
const ANSWERS: u32 = Operation.DATA | Operation.ATOMIC | Operation.EMPTY;
const PLACES: u32 = PacketFlag.START | PacketFlag.END | PacketFlag.MIDDLE;
const ONLY: u32 = PacketFlag.START | PacketFlag.END;
/** Offsets in a family: FIRST, MIDDLE, LAST, LAST_WITH_IMM, ONLY, ONLY_WITH_IMM. */
const FAMILY: StaticArray<u32> = [
  PacketFlag.START,
  PacketFlag.MIDDLE,
  PacketFlag.END,
  PacketFlag.END,
  ONLY,
  ONLY,
];

function hasPackets(row: u32): bool {
  return (row & SERVICES) != 0 && !(row & Operation.LOCAL);
}

function wireOf(row: u32): u32 {
  return (row >>> 16) & 0x1f;
}

export function checkOperations(): void {
  begin('an opcode of a work request has a row with services and a completion, or neither');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const row = operationOf(opcode);
    const exists = (row & SERVICES) != 0;
    same(u64(row >>> 24 != NO_OPERATION), u64(exists), 'completion', opcode);
    if (!exists) same(row & 0xffffff, 0, 'row', opcode);
  }
  end();

  begin('an operation with a response of its own is one request packet');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const row = operationOf(opcode);
    if (!hasPackets(row) || !(row & ANSWERS)) continue;
    same(popcnt<u32>(row & ANSWERS), 1, 'answers', opcode);
    same(row & SERVICES, Operation.RC, 'services', opcode);
    const flags = flagsOf(OPCODE_TABLE, wireOf(row));
    same(flags & (PLACES | PacketFlag.RESPONSE), ONLY, 'flags', opcode);
    const kind = flags & RESPONDED;
    same(popcnt<u32>(kind), 1, 'kinds', opcode);
    const isAtomic = (row & Operation.ATOMIC) != 0;
    same(u64(kind == <u32>PacketFlag.ATOMIC), u64(isAtomic), 'kind', opcode);
    if (!isAtomic) same(requestsOf(kind), 1, 'requests of its kind', opcode);
  }
  end();

  begin('an operation that an acknowledgement answers has a family of packets');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const row = operationOf(opcode);
    if (!hasPackets(row) || row & ANSWERS) continue;
    checkFamily(opcode, Service.RC + wireOf(row));
    if (row & Operation.UC) checkFamily(opcode, Service.UC + wireOf(row));
  }
  end();

  begin('an atomic has an effect, and answers with the word before it');
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const row = operationOf(opcode);
    if (!(row & Operation.ATOMIC)) continue;
    const wire = wireOf(row);
    same(headersOf(OPCODE_TABLE, wire) & Header.ATOMIC_ETH, Header.ATOMIC_ETH, 'header', opcode);
    store<u64>(BUFFER, 7);
    store<u64>(BUFFER + WORD, 9);
    same(executeAtomic(wire, BUFFER, 5, 7), 7, 'value', opcode);
    same(u64(load<u64>(BUFFER) != 7), 1, 'changes', opcode);
    same(load<u64>(BUFFER + WORD), 9, 'behind it', opcode);
  }
  end();
}

/** How many request opcodes have this PacketFlag. */
function requestsOf(kind: u32): u32 {
  let count: u32 = 0;
  for (let opcode: u32 = 0; opcode < 256; opcode++) {
    const flags = flagsOf(OPCODE_TABLE, opcode);
    if (flags & kind && !(flags & PacketFlag.RESPONSE)) count++;
  }
  return count;
}

function checkFamily(opcode: u32, first: u32): void {
  for (let place: u32 = 0; place < <u32>FAMILY.length; place++) {
    const flags = flagsOf(OPCODE_TABLE, first + place);
    same(flags & PLACES, FAMILY[place], 'place', (opcode << 8) | place);
  }
}
