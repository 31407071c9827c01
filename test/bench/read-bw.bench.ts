/** READs against WRITEs of the same sizes, by turns, between two processes. */
import { WrOpcode } from '../../host/index.js';
import { BUFFERS } from './bare.js';
import { flowFigures } from './flow.js';
import { atLeast, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace, Variant } from './harness.js';
import { stream } from './stream.js';

const SECONDS = 1;
const SHAPES = [
  { shape: '1048576', size: 2 ** 20, bytes: 32 * 2 ** 20 },
  { shape: '65536_hot', size: 65536, bytes: 131072 },
  { shape: '65536_cold', size: 65536, bytes: 16 * 2 ** 20 },
];
const OPERATIONS = [
  { operation: 'write', opcode: WrOpcode.RDMA_WRITE },
  { operation: 'read', opcode: WrOpcode.RDMA_READ },
];
const [LARGE, STOCK] = BUFFERS as [(typeof BUFFERS)[0], (typeof BUFFERS)[0]];

async function run(pace: Pace): Promise<BenchResult> {
  const seconds = SECONDS * pace.share;
  const variants = [LARGE, STOCK].flatMap(({ name: buffer, bytes: socketBufferBytes }) =>
    SHAPES.flatMap(({ shape, size, bytes }) =>
      OPERATIONS.map(({ operation, opcode }): Variant => async () => {
        const buffers = { socketBufferBytes };
        const flow = await stream({ opcode, size, bytes, seconds, progress: 'poll', ...buffers });
        return flowFigures(`${operation}_${shape}_${buffer}`, flow);
      }),
    ),
  );
  const rounds = await interleave('read-bw', variants, pace);
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[`${one}_gbps`]! / figures[`${other}_gbps`]!);
  return {
    rounds,
    figures: medians(rounds),
    bars: [LARGE, STOCK]
      .flatMap(({ name: buffer }) =>
        SHAPES.map(({ shape }) => {
          const [read, write] = [`read_${shape}_${buffer}`, `write_${shape}_${buffer}`];
          return atLeast(`${read} against ${write}`, ratio(read, write), 0.8);
        }),
      )
      .concat(
        SHAPES.map(({ shape }) => {
          const [large, stock] = [`read_${shape}_${LARGE.name}`, `read_${shape}_${STOCK.name}`];
          return atLeast(`${stock} against ${large}`, ratio(stock, large), 0.5);
        }),
      ),
  };
}

export const bench: Bench = {
  name: 'read-bw',
  description: 'RC READs against WRITEs between two processes, the initiator polling',
  run,
};
