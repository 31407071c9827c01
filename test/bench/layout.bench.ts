/**
 * Memory layouts: a column of a matrix from process to process, against lists of entries and
 * against packing; the walk inside WebAssembly against loops written by hand; goodput of pieces.
 */
import { WrOpcode } from '../../host/index.js';
import { bareGather, sendColumns, type Way } from './column.js';
import {
  atLeast,
  atMost,
  interleave,
  medianOf,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
} from './harness.js';
import { selftestBench } from './selftest.js';
import { stream } from './stream.js';

const SECONDS = 0.7;
const WAYS: readonly Way[] = ['layout', 'gathered', 'lists', 'packed', 'contiguous'];
const SHAPES = ['8_of_64', '4_of_12', '512_of_3072'];
const PIECES = { datum: 512, stride: 3072 };

const columnBy = (way: Way) => async (): Promise<Figures> => {
  const { micros } = await sendColumns(way, SECONDS);
  return { [`column_${way}_us`]: micros };
};

function pieces(datum: number | undefined) {
  return async (): Promise<Figures> => {
    const result = await stream({
      opcode: WrOpcode.RDMA_WRITE,
      size: 65536,
      bytes: 6 * 2 ** 20,
      seconds: SECONDS,
      progress: 'poll',
      ...(datum === undefined ? {} : { pieces: PIECES }),
    });
    const name = datum === undefined ? 'contiguous' : `pieces_of_${datum}`;
    return { [`write_65536_${name}_gbps`]: result.bytes / result.seconds / 1e9 };
  };
}

async function run(): Promise<BenchResult> {
  const rounds = await interleave('layout', [
    ...WAYS.map(columnBy),
    () => ({ bare_gather_us: bareGather(SECONDS / 4) }),
    () => selftestBench('layout'),
    pieces(undefined),
    pieces(PIECES.datum),
  ]);
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const column = (way: Way): string => `column_${way}_us`;
  const allowed = medianOf(
    rounds,
    (f) => f[column('gathered')]! / (f[column('contiguous')]! + 1.2 * f['bare_gather_us']!),
  );
  return {
    figures: medians(rounds),
    bars: [
      atLeast('a column by one layout against lists', ratio(column('lists'), column('layout')), 3),
      atLeast('a column by layout against packing', ratio(column('packed'), column('layout')), 1.1),
      atMost('a gathered column against a row and 1.2 bare gathers', allowed, 1),
      ...['gather', 'scatter'].flatMap((way) =>
        SHAPES.map((shape) =>
          atLeast(
            `${way} ${shape} against a loop by hand`,
            ratio(`${way}_${shape}_by_hand_ns`, `${way}_${shape}_ns`),
            0.8,
          ),
        ),
      ),
      atLeast(
        'WRITEs of 64 KiB in pieces of 512 against contiguous ones',
        ratio('write_65536_pieces_of_512_gbps', 'write_65536_contiguous_gbps'),
        0.85,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'layout',
  description: 'memory layouts: columns between two processes, loops by hand, goodput of pieces',
  run,
};
