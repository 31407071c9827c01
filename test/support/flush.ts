/** FLUSH by hand: a region that a store keeps, and packets that ask for it. */
import { Opcode, SelectivityLevel } from '#build/abi.js';
import type { MemoryRegion } from '../../host/index.js';
import { FLUSH_ACCESS, HandStore } from './durable.js';
import { onWire, type Wire } from './wire.js';

export const FLUSHING = { attributes: { qpAccessFlags: FLUSH_ACCESS } };
/** The answer to a FLUSH. */
export const DONE = {
  opcode: Opcode.RC_RDMA_READ_RESPONSE_ONLY,
  syndrome: 0x1f,
  payloadLength: 0,
};

export interface Kept {
  readonly wire: Wire;
  readonly store: HandStore;
  readonly mr: MemoryRegion;
}

export function kept(
  body: (world: Kept) => void | Promise<void>,
  options: Parameters<typeof onWire>[0] = FLUSHING,
): Promise<void> {
  return onWire(options, async (wire) => {
    const store = await HandStore.keep(wire.context, 4096);
    const mr = wire.pd.regMr(store.buffer, FLUSH_ACCESS);
    await body({ wire, store, mr });
  });
}

export function at(mr: MemoryRegion, offset: number, dmaLength: number) {
  return { virtualAddress: mr.addr + BigInt(offset), key: mr.rkey, dmaLength };
}

export function flush(
  wire: Wire,
  psn: number,
  type: number,
  where: object,
  level: number = SelectivityLevel.RANGE,
): void {
  const flush = type | (level << 4);
  wire.sendPacket({ opcode: Opcode.RC_FLUSH, psn, ackRequest: 1, flush, ...where });
}
