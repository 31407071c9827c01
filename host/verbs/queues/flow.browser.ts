/** Stands in for flow.ts in a page, where no link has several source ports. */
import { shown } from '../../errors/check-whole.js';
import { MisuseError } from '../../errors/errors.js';

export function flowLabelToUdpSport(flowLabel: number): number {
  return ((flowLabel ^ ((flowLabel & 0xfc000) >>> 14)) & 0x3fff) | 0xc000;
}

export function flowLabelOf(): number {
  return 0;
}

export function flowPort(_flowPorts: unknown, flowLabel: number): number {
  if (Number.isInteger(flowLabel) && flowLabel >= 0 && flowLabel < 2 ** 20) return 0;
  throw new MisuseError('ahAttr.flowLabel', `must have 20 bits, got ${shown(flowLabel)}`);
}
