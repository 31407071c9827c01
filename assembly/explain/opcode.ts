/** Names of opcodes: the enum's member names, and titles for humans that are made from them. */
import { Opcode } from '../wire/opcode';

/** Operations by the lower five bits of an opcode, as they follow the service in its name. */
const OPERATIONS: StaticArray<string> = [
  'SEND_FIRST',
  'SEND_MIDDLE',
  'SEND_LAST',
  'SEND_LAST_WITH_IMM',
  'SEND_ONLY',
  'SEND_ONLY_WITH_IMM',
  'RDMA_WRITE_FIRST',
  'RDMA_WRITE_MIDDLE',
  'RDMA_WRITE_LAST',
  'RDMA_WRITE_LAST_WITH_IMM',
  'RDMA_WRITE_ONLY',
  'RDMA_WRITE_ONLY_WITH_IMM',
  'RDMA_READ_REQUEST',
  'RDMA_READ_RESPONSE_FIRST',
  'RDMA_READ_RESPONSE_MIDDLE',
  'RDMA_READ_RESPONSE_LAST',
  'RDMA_READ_RESPONSE_ONLY',
  'ACKNOWLEDGE',
  'ATOMIC_ACKNOWLEDGE',
  'COMPARE_SWAP',
  'FETCH_ADD',
  '',
  'SEND_LAST_WITH_INVALIDATE',
  'SEND_ONLY_WITH_INVALIDATE',
  '',
  '',
  '',
  '',
  'FLUSH',
  'ATOMIC_WRITE',
];
/** Services by the upper three bits of an opcode, as the specification has them. */
const SERVICES: StaticArray<string> = ['RC', 'UC', 'RD', 'UD', 'CNP', 'XRC', '', 'MSP'];

/** Name of the service of an opcode; '' for none. */
export function serviceName(opcode: u32): string {
  return SERVICES[(opcode >>> 5) & 7];
}

/** The member name of an opcode that the table has. */
export function opcodeName(opcode: u32): string {
  if (opcode == Opcode.CNP) return 'CNP';
  if (opcode == Opcode.MSP_SELECTIVE_ACKNOWLEDGE) return 'MSP_SELECTIVE_ACKNOWLEDGE';
  return serviceName(opcode) + '_' + OPERATIONS[opcode & 0x1f];
}

/** How a word of a member name looks in a title. By hand: toLowerCase brings Unicode's tables. */
function titleWord(word: string): string {
  if (word == 'FIRST') return 'First';
  if (word == 'MIDDLE') return 'Middle';
  if (word == 'LAST') return 'Last';
  if (word == 'ONLY') return 'Only';
  if (word == 'REQUEST') return 'Request';
  if (word == 'RESPONSE') return 'Response';
  if (word == 'ACKNOWLEDGE') return 'Acknowledge';
  if (word == 'SELECTIVE') return 'Selective';
  if (word == 'COMPARE') return 'Compare';
  if (word == 'SWAP') return 'Swap';
  if (word == 'FETCH') return 'Fetch';
  if (word == 'ADD') return 'Add';
  if (word == 'WITH') return 'with';
  if (word == 'IMM') return 'immediate';
  if (word == 'INVALIDATE') return 'invalidate';
  return word;
}

/** `RC RDMA WRITE Only with immediate`, from RC_RDMA_WRITE_ONLY_WITH_IMM. */
export function opcodeTitle(opcode: u32): string {
  const words = opcodeName(opcode).split('_');
  for (let i = 0; i < words.length; i++) words[i] = titleWord(words[i]);
  return words.join(' ');
}
