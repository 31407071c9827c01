/** Programs of classic BPF (linux/filter.h): the kernel runs one for each datagram of a socket. */

/** Load a byte, a big-endian word or half of one, of the datagram: UDP header first. */
export const LOAD_BYTE = 0x30;
export const LOAD_WORD = 0x20;
export const LOAD_HALF = 0x28;
export const AND = 0x54;
export const JUMP_IF_EQUAL = 0x15;
export const RETURN = 0x06;
/** Base of offsets that count from the IP header on (SKF_NET_OFF). */
export const IP_HEADER = -0x100000;
const INSTRUCTION_BYTES = 8;

/** `isTrue`, `isFalse`: how many instructions a jump leaves out. */
export type Instruction = readonly [code: number, value: number, isTrue?: number, isFalse?: number];

/** sock_filter, 8 bytes an instruction. */
export function bpfProgram(instructions: readonly Instruction[]): Uint8Array {
  const program = Buffer.alloc(instructions.length * INSTRUCTION_BYTES);
  instructions.forEach(([code, value, isTrue = 0, isFalse = 0], index) => {
    const at = index * INSTRUCTION_BYTES;
    program.writeUInt16LE(code, at);
    program.writeUInt8(isTrue, at + 2);
    program.writeUInt8(isFalse, at + 3);
    program.writeUInt32LE(value >>> 0, at + 4);
  });
  return program;
}
