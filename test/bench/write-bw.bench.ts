/** WRITEs between two processes, against bare sockets, UCX and libfabric in the same rounds. */
import { WrOpcode } from '../../host/index.js';
import { barePump, BUFFERS } from './bare.js';
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bar, Bench, BenchResult, Figures, Pace, Variant } from './harness.js';
import { Yardsticks } from './programs.js';
import { stream } from './stream.js';

const SECONDS = 1;
const SHAPES = [
  { name: 'write_1048576', size: 2 ** 20, bytes: 32 * 2 ** 20 },
  { name: 'write_65536_hot', size: 65536, bytes: 131072 },
  { name: 'write_65536_cold', size: 65536, bytes: 16 * 2 ** 20 },
];
const PUMP = { packetBytes: 4160, segments: 15 };
const [LARGE, STOCK] = BUFFERS as [(typeof BUFFERS)[0], (typeof BUFFERS)[0]];
const UCX_1048576 = 'ucx_put_bw_1048576_gbps';
const UCX_65536 = 'ucx_put_bw_65536_gbps';
const RXD_65536 = 'fi_pingpong_udp_ofi_rxd_65536_gbps';
/** Yardstick of each shape, and the ratio that it must reach. */
const RATIOS: readonly (readonly [shape: string, yardstick: string, least: number])[] = [
  ['write_1048576', UCX_1048576, 1.4],
  ['write_65536_hot', UCX_65536, 2],
  ['write_65536_cold', UCX_65536, 1.7],
  ['write_65536_hot', RXD_65536, 20],
  ['write_65536_cold', RXD_65536, 20],
  ['write_1048576', 'bare_pump', 0.43],
  ['write_65536_hot', 'bare_pump', 0.53],
  ['write_65536_cold', 'bare_pump', 0.45],
];
/** Goals behind these, once the sender does not copy. */
const GOALS = [
  ...SHAPES.map(
    ({ name }) => [name, name === 'write_1048576' ? UCX_1048576 : UCX_65536, 2] as const,
  ),
  ...SHAPES.map(({ name }) => [name, 'bare_pump', 0.6] as const),
];
/** Nanoseconds of processor time that we may add to a packet of 4 KiB, on either side. */
const ADDED = [
  { name: 'write_1048576', most: 650 },
  { name: 'write_65536_hot', most: 430 },
  { name: 'write_65536_cold', most: 580 },
];
const LEAST_STOCK = 0.5;
/** With `icrc: 'always'`, of the pump: as before packets without ICRC. */
const WITH_ICRC = 'write_1048576_icrc';
const WITH_ICRC_LEAST = 0.38;

function variants({ share }: Pace): Variant[] {
  const seconds = SECONDS * share;
  const { name: _, ...first } = SHAPES[0]!;
  const write = { opcode: WrOpcode.RDMA_WRITE, seconds, progress: 'poll' } as const;
  const withIcrc = async (): Promise<Figures> =>
    flowFigures(
      `${WITH_ICRC}_${LARGE.name}`,
      await stream({ ...first, ...write, socketBufferBytes: LARGE.bytes }),
    );
  const all = [LARGE, STOCK].flatMap(({ name: buffer, bytes: receiveBufferBytes, window }) => [
    async () =>
      flowFigures(
        `bare_pump_${buffer}`,
        await barePump({ ...PUMP, receiveBufferBytes, window, seconds }),
      ),
    ...SHAPES.map(({ name, ...shape }): Variant => async () => {
      const options = { ...shape, ...write, skipIcrc: true };
      const buffers = { socketBufferBytes: receiveBufferBytes };
      return flowFigures(`${name}_${buffer}`, await stream({ ...options, ...buffers }));
    }),
  ]);
  return [...all, withIcrc];
}

/** Of one side: ours less the pump's. */
function added(figures: Figures, shape: string, buffer: string, side: string): number {
  const name = `_${buffer}_${side}_cpu_ns_per_packet`;
  return figures[`${shape}${name}`]! - figures[`bare_pump${name}`]!;
}

async function run(pace: Pace): Promise<BenchResult> {
  const yardsticks = new Yardsticks([UCX_1048576, UCX_65536, RXD_65536]);
  const rounds = await interleave('write-bw', [...variants(pace), ...yardsticks.variants], pace);
  const ratio = (shape: string, other: string, buffer: string): number => {
    const yardstick = other === 'bare_pump' ? `${other}_${buffer}_gbps` : other;
    return medianOf(rounds, (f) => f[`${shape}_${buffer}_gbps`]! / f[yardstick]!);
  };
  const figures = medians(rounds);
  for (const [shape, other] of RATIOS) {
    const value = ratio(shape, other, STOCK.name);
    if (value > 0) figures[`${shape}_${STOCK.name}_to_${other.replace('_gbps', '')}_ratio`] = value;
  }
  const bars: Bar[] = [...RATIOS, ...GOALS].map(([shape, other, least], index) => {
    const what = `${index < RATIOS.length ? '' : 'goal: '}${shape} against ${other}`;
    return yardsticks.bar(what, other, () => atLeast(what, ratio(shape, other, LARGE.name), least));
  });
  for (const { name, most } of ADDED) {
    for (const side of ['initiator', 'target']) {
      const what = `${name}: added processor time per packet, ${side} side, ns`;
      const value = medianOf(rounds, (f) => added(f, name, LARGE.name, side));
      figures[`${name}_${STOCK.name}_added_${side}_cpu_ns_per_packet`] = medianOf(rounds, (f) =>
        added(f, name, STOCK.name, side),
      );
      bars.push(atMost(what, value, most));
    }
  }
  const icrc = '1 MiB with an ICRC in each packet against bare_pump';
  bars.push(atLeast(icrc, ratio(WITH_ICRC, 'bare_pump', LARGE.name), WITH_ICRC_LEAST));
  for (const { name } of SHAPES) {
    const [large, stock] = [`${name}_${LARGE.name}_gbps`, `${name}_${STOCK.name}_gbps`];
    const value = medianOf(rounds, (f) => f[stock]! / f[large]!);
    bars.push(atLeast(`${name} with SO_RCVBUF ${STOCK.name}`, value, LEAST_STOCK));
  }
  return { rounds, figures, bars };
}

export const bench: Bench = {
  name: 'write-bw',
  description: 'RC WRITEs between two processes, the initiator polling, UDP loopback',
  run,
};
