/** Stands in for flow.ts in a page, where no link has several source ports. */
import { checkWhole } from '../../errors/check-whole.js';

export function flowLabelToUdpSport(flowLabel: number): number {
  return ((flowLabel ^ ((flowLabel & 0xfc000) >>> 14)) & 0x3fff) | 0xc000;
}

export function flowLabelOf(): number {
  return 0;
}

export function flowPort(_flowPorts: unknown, flowLabel: number): number {
  checkWhole('ahAttr.flowLabel', flowLabel, 0, 0xfffff);
  return 0;
}
