/** Records into a peer's persistent memory, so that it has a whole one whenever its power goes. */
import { PlacementType, SendFlag, WrOpcode } from '../verbs/enums.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import { at, check, type End } from './private-data.js';
import { RECORD_BYTES, placeOf, recordAt, writeWord } from './memory-layout.js';

/** A record, and its number behind it. */
export const PEN_BYTES = RECORD_BYTES + 8;

/**
 * WRITEs record after record until the connection ends: beside the record before, FLUSHED, and then
 * counted by an ATOMIC WRITE of its number, FLUSHED as well. Then a message reports the number.
 */
export async function writeRecords(end: End, pen: MemoryRegion): Promise<void> {
  const { qp, sendCq } = end.connection;
  const { addr, lkey, buffer } = pen;
  const flush = (offset: number, length: number) => {
    const flushed = { ...at(end, offset), length, type: PlacementType.PERSISTENT };
    return { opcode: WrOpcode.FLUSH, flush: flushed };
  };
  for (let record = 1; ; record++) {
    recordAt(buffer, 0).fill(record);
    writeWord(buffer, RECORD_BYTES, record);
    const place = placeOf(record);
    qp.postSend([
      {
        opcode: WrOpcode.RDMA_WRITE,
        sgList: [{ addr, length: RECORD_BYTES, lkey }],
        rdma: at(end, place),
      },
      flush(place, RECORD_BYTES),
      {
        opcode: WrOpcode.ATOMIC_WRITE,
        sgList: [{ addr: addr + BigInt(RECORD_BYTES), length: 8, lkey }],
        rdma: at(end, 0),
      },
      flush(0, 8),
      {
        opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
        immData: record,
        rdma: at(end, 0),
        sendFlags: SendFlag.SIGNALED,
      },
    ]);
    check(await sendCq.wait());
  }
}
