/**
 * WRITEs of 64 bytes between two processes, posted in lists of 64: to random places of 10,000
 * regions (40 MiB), and to one region that stays in the cache.
 */
import { WrOpcode } from '../../host/index.js';
import { BUFFERS } from './bare.js';
import { flowFigures } from './flow.js';
import { atLeast, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace, Variant } from './harness.js';
import { Yardsticks } from './programs.js';
import { stream } from './stream.js';

const SECONDS = 1;
const SIZE = 64;
const REGION_BYTES = 4096;
const REGIONS = 10_000;
const LOCAL_BYTES = 65536;
const WINDOW_PACKETS = 1024;
const SHAPES = [
  { name: 'write_64_random_keys', regions: REGIONS },
  { name: 'write_64_one_key', regions: 1 },
];
const [LARGE, STOCK] = BUFFERS as [(typeof BUFFERS)[0], (typeof BUFFERS)[0]];
const UCX = 'ucx_put_bw_64_mps';

async function run(pace: Pace): Promise<BenchResult> {
  const ours = [LARGE, STOCK].flatMap(({ name: buffer, bytes: socketBufferBytes }) =>
    SHAPES.map(({ name, regions }): Variant => async () => {
      const flow = await stream({
        opcode: WrOpcode.RDMA_WRITE,
        size: SIZE,
        bytes: regions * REGION_BYTES,
        localBytes: LOCAL_BYTES,
        regions,
        seconds: SECONDS * pace.share,
        progress: 'poll',
        windowPackets: WINDOW_PACKETS,
        // Packets kept for selective repeat would bound the window.
        reorderPackets: 0,
        skipIcrc: true,
        socketBufferBytes,
      });
      return flowFigures(`${name}_${buffer}`, flow);
    }),
  );
  const yardsticks = new Yardsticks([UCX]);
  const rounds = await interleave('write-rate', [...ours, ...yardsticks.variants], pace);
  const figures = medians(rounds);
  const stock = medianOf(rounds, (f) => f[`write_64_random_keys_${STOCK.name}_mps`]! / f[UCX]!);
  if (stock > 0) figures[`write_64_random_keys_${STOCK.name}_to_ucx_put_bw_64_ratio`] = stock;
  const random = `write_64_random_keys_${LARGE.name}_mps`;
  const against = 'write_64_random_keys against UCX tcp put';
  return {
    counts: 'messages',
    rounds,
    figures,
    bars: [
      atLeast('write_64_random_keys, millions a second', figures[random]!, 6),
      yardsticks.bar(against, UCX, () =>
        atLeast(
          against,
          medianOf(rounds, (f) => f[random]! / f[UCX]!),
          8,
        ),
      ),
      ...SHAPES.map(({ name }) =>
        atLeast(
          `${name} with SO_RCVBUF ${STOCK.name}`,
          medianOf(
            rounds,
            (f) => f[`${name}_${STOCK.name}_mps`]! / f[`${name}_${LARGE.name}_mps`]!,
          ),
          0.5,
        ),
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'write-rate',
  description: '64-byte RC WRITEs in lists of 64 between two processes, the initiator polling',
  run,
};
