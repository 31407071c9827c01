/** Names of opcodes: the enum's member names, and titles for humans that are made from them. */
import { Opcode, Service } from '../wire/opcode';

/** Name of an operation, as it follows the service in the names of opcodes; '' for none. */
function operationName(operation: u32): string {
  switch (operation) {
    case Opcode.RC_SEND_FIRST:
      return 'SEND_FIRST';
    case Opcode.RC_SEND_MIDDLE:
      return 'SEND_MIDDLE';
    case Opcode.RC_SEND_LAST:
      return 'SEND_LAST';
    case Opcode.RC_SEND_LAST_WITH_IMM:
      return 'SEND_LAST_WITH_IMM';
    case Opcode.RC_SEND_ONLY:
      return 'SEND_ONLY';
    case Opcode.RC_SEND_ONLY_WITH_IMM:
      return 'SEND_ONLY_WITH_IMM';
    case Opcode.RC_RDMA_WRITE_FIRST:
      return 'RDMA_WRITE_FIRST';
    case Opcode.RC_RDMA_WRITE_MIDDLE:
      return 'RDMA_WRITE_MIDDLE';
    case Opcode.RC_RDMA_WRITE_LAST:
      return 'RDMA_WRITE_LAST';
    case Opcode.RC_RDMA_WRITE_LAST_WITH_IMM:
      return 'RDMA_WRITE_LAST_WITH_IMM';
    case Opcode.RC_RDMA_WRITE_ONLY:
      return 'RDMA_WRITE_ONLY';
    case Opcode.RC_RDMA_WRITE_ONLY_WITH_IMM:
      return 'RDMA_WRITE_ONLY_WITH_IMM';
    default:
      return reliableName(operation);
  }
}

/** Operations that only RC has. */
function reliableName(operation: u32): string {
  switch (operation) {
    case Opcode.RC_RDMA_READ_REQUEST:
      return 'RDMA_READ_REQUEST';
    case Opcode.RC_RDMA_READ_RESPONSE_FIRST:
      return 'RDMA_READ_RESPONSE_FIRST';
    case Opcode.RC_RDMA_READ_RESPONSE_MIDDLE:
      return 'RDMA_READ_RESPONSE_MIDDLE';
    case Opcode.RC_RDMA_READ_RESPONSE_LAST:
      return 'RDMA_READ_RESPONSE_LAST';
    case Opcode.RC_RDMA_READ_RESPONSE_ONLY:
      return 'RDMA_READ_RESPONSE_ONLY';
    case Opcode.RC_ACKNOWLEDGE:
      return 'ACKNOWLEDGE';
    case Opcode.RC_ATOMIC_ACKNOWLEDGE:
      return 'ATOMIC_ACKNOWLEDGE';
    case Opcode.RC_COMPARE_SWAP:
      return 'COMPARE_SWAP';
    case Opcode.RC_FETCH_ADD:
      return 'FETCH_ADD';
    case Opcode.RC_SEND_LAST_WITH_INVALIDATE:
      return 'SEND_LAST_WITH_INVALIDATE';
    case Opcode.RC_SEND_ONLY_WITH_INVALIDATE:
      return 'SEND_ONLY_WITH_INVALIDATE';
    case Opcode.RC_FLUSH:
      return 'FLUSH';
    case Opcode.RC_ATOMIC_WRITE:
      return 'ATOMIC_WRITE';
    default:
      return '';
  }
}

/** Name of the service in the top three bits of an opcode, as the specification has them. */
export function serviceName(opcode: u32): string {
  switch (opcode & 0xe0) {
    case Service.RC:
      return 'RC';
    case Service.UC:
      return 'UC';
    case 0x40:
      return 'RD';
    case Service.UD:
      return 'UD';
    case Service.CNP:
      return 'CNP';
    case 0xa0:
      return 'XRC';
    case Service.MSP:
      return 'MSP';
    default:
      return '';
  }
}

/** The member name of an opcode that the table has. */
export function opcodeName(opcode: u32): string {
  if (opcode == Opcode.CNP) return 'CNP';
  if (opcode == Opcode.MSP_SELECTIVE_ACKNOWLEDGE) return 'MSP_SELECTIVE_ACKNOWLEDGE';
  return serviceName(opcode) + '_' + operationName(opcode & 0x1f);
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
