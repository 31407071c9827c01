/** Attributes of a device's one port (`ibv_query_port`), and data ordering of its operations. */
import { checkBits, mustBe, shown } from '../../errors/check-whole.js';
import { Mtu, WrOpcodeName } from '#build/abi.js';
import { RefusalError } from '../../errors/errors.js';
import { QueryQpDataInOrderFlag } from '../constants.js';
import type { ContextInternals } from '../internals.js';
import { MAX_MESSAGE_BYTES } from '../limits.js';

/** `ibv_port_attr`, the fields that apply to this device. */
export interface PortAttributes {
  readonly state: 'ACTIVE' | 'DOWN';
  /** An Mtu. */
  readonly maxMtu: number;
  /** The largest Mtu whose packets the link carries. */
  readonly activeMtu: Mtu;
  readonly gidTblLen: number;
  readonly pkeyTblLen: number;
  readonly maxMsgSz: number;
  /** The link's name. */
  readonly linkLayer: string;
}

export const PORTS = 1;
export const PKEYS = 1;
export function queryPort(context: ContextInternals, portNum: number): PortAttributes {
  checkPort('queryPort', portNum);
  const { info, closed } = context.device;
  let activeMtu: number = Mtu.MTU_256;
  while (activeMtu < Mtu.MTU_4096 && (128 << (activeMtu + 1)) + 64 <= info.packetSizeMax) {
    activeMtu++;
  }
  return {
    state: closed || context.failure ? 'DOWN' : 'ACTIVE',
    maxMtu: Mtu.MTU_4096,
    activeMtu,
    gidTblLen: 1,
    pkeyTblLen: PKEYS,
    maxMsgSz: MAX_MESSAGE_BYTES,
    linkLayer: info.name,
  };
}

/**
 * The known order in which the bytes of a message arrive: none. Packets take effect in order, but
 * another thread may see the bytes of a packet in any order.
 */
export function queryDataInOrder(op: number, flags: number): number {
  if (WrOpcodeName[op] === undefined) throw mustBe('op', 'a WrOpcode', op);
  checkBits('flags', flags, 'QueryQpDataInOrderFlag', QueryQpDataInOrderFlag.RETURN_CAPS);
  return 0;
}

export function checkPort(verb: string, portNum: number): void {
  if (portNum === PORTS) return;
  throw new RefusalError('EINVAL', `${verb}: portNum must be ${PORTS}, got ${shown(portNum)}`);
}
