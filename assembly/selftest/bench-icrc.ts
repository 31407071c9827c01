/** `bench icrc`: the ICRC of a packet as transmit.ts and receive.ts ask for it, start included. */
import { initCrcScratch } from '../wire/crc32';
import { icrcFlow4, icrcOf, icrcStart, initIcrcTables } from '../wire/icrc';
import { ROUNDS, Samples, WARM_UP, consume, figure, printFigures } from './bench';
import { BUFFER, CRC_SCRATCH, ICRC_TABLES, fillPattern } from './memory';

/** Packets lie back to back in a send buffer of this size. */
const BUFFER_SIZE: u32 = 65536;
/** Bytes per measurement. */
const BYTES: u32 = 32 << 20;

function measure(length: u32, samples: Samples, round: i32, flow: u32): void {
  const perBuffer = BUFFER_SIZE / length;
  const passes = BYTES / BUFFER_SIZE;
  let sum: u32 = 0;
  const start = process.hrtime();
  for (let pass: u32 = 0; pass < passes; pass++) {
    let packet = BUFFER;
    for (let index: u32 = 0; index < perBuffer; index++) {
      const begin = icrcStart(ICRC_TABLES, flow, true, length);
      sum += icrcOf(ICRC_TABLES, CRC_SCRATCH, begin, packet, length);
      packet += length;
    }
  }
  samples.add(round, start, passes * perBuffer);
  consume(sum);
}

export function benchIcrc(): void {
  const lengths: StaticArray<u32> = [64, 256, 1088, 4160];
  const samples: Samples[] = [new Samples(), new Samples(), new Samples(), new Samples()];
  initIcrcTables(ICRC_TABLES);
  initCrcScratch(CRC_SCRATCH);
  fillPattern(BUFFER, BUFFER_SIZE, 7);
  const flow = icrcFlow4(ICRC_TABLES, BUFFER, BUFFER + 4, 4791, 4791);
  measure(lengths[0], samples[0], 0, flow);
  for (let round = 0; round < ROUNDS + WARM_UP; round++) {
    for (let i = 0; i < lengths.length; i++) measure(lengths[i], samples[i], round, flow);
  }
  for (let i = 0; i < lengths.length; i++) figure(`icrc_${lengths[i]}_ns`, samples[i].median());
  printFigures();
}
