/**
 * `ibv_*_str`: enum members in words. What a status means, and what to do about it, says
 * engine/explain.ts.
 */
import { AsyncEventName, WcStatusName, WrOpcodeName } from '#build/abi.js';
import { NodeType, PortState } from '../constants.js';

/** English words for the parts of C names. */
const WORDS: { readonly [part: string]: string } = {
  ABORT: 'aborted',
  CA: 'channel adapter',
  CLIENT: 'client',
  CMP: 'compare',
  COMM: 'communication',
  CQ: 'completion queue',
  EEC: 'end-to-end context',
  EECN: 'end-to-end context number',
  ERR: 'error',
  EST: 'established',
  EXC: 'exceeded',
  GID: 'GID',
  IMM: 'immediate',
  INV: 'invalid',
  LEN: 'length',
  LID: 'LID',
  LOC: 'local',
  MIG: 'migrated',
  MW: 'memory window',
  OP: 'operation',
  PKEY: 'P_Key',
  PROT: 'protection',
  QP: 'queue pair',
  RD: 'RD',
  RDD: 'RDD',
  RDMA: 'RDMA',
  REM: 'remote',
  REQ: 'request',
  RESP: 'response',
  RNIC: 'RDMA NIC',
  RNR: 'receiver not ready',
  SM: 'subnet manager',
  SQ: 'send queue',
  SRQ: 'shared receive queue',
  SWP: 'swap',
  TSO: 'TCP segmentation',
  UDP: 'UDP',
  USNIC: 'usNIC',
  VIOL: 'violation',
  WQ: 'work queue',
  WQE: 'work request',
  WR: 'work request',
};

function inWords(name: string | undefined, words = WORDS): string {
  if (name === undefined) return 'unknown';
  return name
    .split('_')
    .map((part) => words[part] ?? part.toLowerCase())
    .join(' ');
}

function nameOf(table: { readonly [name: string]: number }, value: number): string | undefined {
  return Object.keys(table).find((name) => table[name] === value);
}

/** `ibv_wc_status_str`, of a WcStatus. */
export function wcStatusStr(status: number): string {
  return inWords(WcStatusName[status]);
}

/** `ibv_wr_opcode_str`, of a WrOpcode. */
export function wrOpcodeStr(opcode: number): string {
  return inWords(WrOpcodeName[opcode], { ...WORDS, INV: 'invalidate' });
}

/** `ibv_event_type_str`, of an AsyncEvent. */
export function eventTypeStr(event: number): string {
  return inWords(AsyncEventName[event]);
}

/** `ibv_node_type_str`, of a NodeType. */
export function nodeTypeStr(nodeType: number): string {
  return inWords(nameOf(NodeType, nodeType));
}

/** `ibv_port_state_str`, of a PortState. */
export function portStateStr(portState: number): string {
  return inWords(nameOf(PortState, portState));
}
