/** Which UDP source port packets leave from: what networks with several paths spread by. */
import { shown } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';

/** `ibv_flow_label_to_udp_sport`: the UDP source port (0xc000 to 0xffff) of a 20-bit flow label. */
export function flowLabelToUdpSport(flowLabel: number): number {
  const low = flowLabel & 0x3fff;
  const high = (flowLabel & 0xfc000) >>> 14;
  return (low ^ high) | 0xc000;
}

/** The flow label of two queue pairs, as Linux makes it (`rdma_calc_flow_label`). */
export function flowLabelOf(qpNum: number, destQpNum: number): number {
  const label = BigInt(qpNum) * BigInt(destQpNum);
  const folded = label ^ (label >> 20n);
  return Number((folded ^ (folded >> 40n)) & 0xfffffn);
}

/** The source port of a flow: one of a link's `flowPorts`, 0 (the link's own) where it has none. */
export function flowPort(flowPorts: readonly number[] | undefined, flowLabel: number): number {
  if (!Number.isInteger(flowLabel) || flowLabel < 0 || flowLabel >= 2 ** 20) {
    throw new MisuseError('ahAttr.flowLabel', `must have 20 bits, got ${shown(flowLabel)}`);
  }
  if (!flowPorts || flowPorts.length === 0) return 0;
  return flowPorts[flowLabelToUdpSport(flowLabel) % flowPorts.length]!;
}
