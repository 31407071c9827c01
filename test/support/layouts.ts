/** Memory layouts on a wire: what their tests need. */
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  MisuseError,
  RefusalError,
  SendFlag,
  WrOpcode,
  type LayoutMemoryRegion,
  type MemoryRegion,
  type MrLayoutInterleaved,
  type ProtectionDomain,
  type Sge,
} from '../../host/index.js';
import { ACK, lastStatus } from './windows.js';
import { FULL_ACCESS, onWire, type Wire } from './wire.js';

/** Every right, and addresses from 0 on. */
export const EVERY = FULL_ACCESS | AccessFlag.ZERO_BASED;

export interface World {
  readonly wire: Wire;
  readonly pd: ProtectionDomain;
  /** 4096 bytes with every right; `base(n)` is its nth byte. */
  readonly mr: MemoryRegion;
  readonly memory: Uint8Array;
  base(offset?: number, length?: number): Sge;
  layout(access?: number): LayoutMemoryRegion;
}

/** A device with a region of 4096 bytes. */
export function onLayouts(body: (world: World) => void | Promise<void>): Promise<void> {
  return onWire({ bytes: 65536, device: { memoryBytes: 64 * 2 ** 20 } }, async (wire) => {
    const { pd } = wire;
    const memory = wire.context.alloc(4096);
    memory.forEach((_, index) => (memory[index] = index * 7));
    const mr = pd.regMr(memory, FULL_ACCESS);
    await body({
      wire,
      pd,
      mr,
      memory,
      base: (offset = 0, length = 8) => ({
        addr: mr.addr + BigInt(offset),
        length,
        lkey: mr.lkey,
      }),
      layout: (access = EVERY) => pd.regMr(null, 0, access),
    });
  });
}

/** Eight bytes of every 64, `count` times. */
export function column({ base }: World, count = 8, offset = 8): MrLayoutInterleaved[] {
  return [{ firstDatum: base(offset), dims: [{ offsetStride: 64, datumCount: count }] }];
}

export function refusal(code: string, pattern: RegExp): (error: unknown) => boolean {
  return (error) =>
    error instanceof RefusalError && error.code === code && pattern.test(error.message);
}

export const isMisuse = (error: unknown): boolean => error instanceof MisuseError;

/** Status of a SEND of these bytes. */
export function sent(wire: Wire, ...sgList: Sge[]): string | undefined {
  wire.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
  const [packet] = wire.takePackets();
  if (packet) wire.sendPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: packet.psn, syndrome: ACK });
  return lastStatus(wire);
}
