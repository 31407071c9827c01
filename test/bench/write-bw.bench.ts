/** WRITEs between two processes, against bare sockets, UCX and libfabric in the same rounds. */
import { loadavg } from 'node:os';
import { WrOpcode } from '../../host/index.js';
import { barePump, BUFFERS, pumpFigures } from './bare.js';
import { atLeast, interleave, medianOf, medians, missing } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Variant } from './harness.js';
import { isInstalled, PROGRAMS } from './programs.js';
import { stream, streamFigures } from './stack.js';

const SECONDS = 1;
const SHAPES = [
  { name: 'write_1048576', size: 2 ** 20, bytes: 32 * 2 ** 20 },
  { name: 'write_65536_hot', size: 65536, bytes: 131072 },
  { name: 'write_65536_cold', size: 65536, bytes: 16 * 2 ** 20 },
];
const [LARGE] = BUFFERS;

function ours(): Variant[] {
  return SHAPES.map(({ name, size, bytes }) => async () => {
    const opcode = WrOpcode.RDMA_WRITE;
    const result = await stream({ opcode, size, bytes, seconds: SECONDS, progress: 'poll' });
    return streamFigures(name, result);
  });
}

async function run(): Promise<BenchResult> {
  const programs = PROGRAMS.filter(({ figures }) => figures.some((name) => name.includes('65536')));
  const there = programs.filter(isInstalled);
  const pump = { packetBytes: 4160, segments: 15, seconds: SECONDS };
  const { bytes: receiveBufferBytes, window } = LARGE!;
  const rounds = await interleave('write-bw', [
    async () => pumpFigures('bare_pump', await barePump({ ...pump, receiveBufferBytes, window })),
    ...ours(),
    ...there.map((program) => () => program.measure()),
    () => ({ load_average_1_minute: loadavg()[0]! }),
  ]);
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures: Figures) => figures[one]! / figures[other]!);
  const against = (one: string, other: string, least: number): Bar => {
    const what = `${one} against ${other}`;
    const program = programs.find(({ figures }) => figures.includes(other));
    if (program && !there.includes(program)) return missing(what, program.aptPackage);
    return atLeast(what, ratio(one, other), least);
  };
  return {
    figures: medians(rounds),
    bars: [
      against('write_1048576_gbps', 'ucx_put_bw_65536_gbps', 3),
      against('write_65536_hot_gbps', 'ucx_put_bw_65536_gbps', 2.5),
      against('write_65536_hot_gbps', 'fi_pingpong_udp_ofi_rxd_65536_gbps', 20),
      against('write_1048576_gbps', 'bare_pump_gbps', 0.38),
      against('write_65536_hot_gbps', 'bare_pump_gbps', 0.35),
      against('write_65536_cold_gbps', 'bare_pump_gbps', 0.28),
    ],
  };
}

export const bench: Bench = {
  name: 'write-bw',
  description: 'RC WRITEs between two processes, the initiator polling, UDP loopback, ICRC on',
  run,
};
