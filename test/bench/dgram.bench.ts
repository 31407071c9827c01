/** Our stack over the link that is made of node:dgram alone, against node:dgram itself. */
import { WrOpcode } from '../../host/index.js';
import { BUFFERS } from './bare.js';
import { dgramPingPong, dgramPump } from './dgram.js';
import { flowFigures } from './flow.js';
import { atLeast, atMost, interleave, medianOf, medians } from './harness.js';
import type { Bench, BenchResult, Pace, Variant } from './harness.js';
import { sendTrips } from './stack-trips.js';
import { stream } from './stream.js';
import { TripLog } from './trips.js';

const SECONDS = 1;
const TRIPS = 3000;
const SIZE = 65536;
const BYTES = 2 ** 20;
const PACKET_BYTES = 4160;
/**
 * V8's young generation keeps the size to which it grew while a program was loaded. A collection
 * then follows after each 32 MiB of datagrams. A pump that loads next to nothing avoids that, so
 * both are measured, with the default heap and with a small one.
 */
const HEAPS = [
  { heap: '', thereOptions: [] },
  { heap: '_young_2mib', thereOptions: ['--max-semi-space-size=2'] },
];
const [LARGE, STOCK] = BUFFERS as [(typeof BUFFERS)[0], (typeof BUFFERS)[0]];

/** The pump by itself, and the stack over the link, with as large a socket buffer. */
function flow(
  seconds: number,
  name: string,
  receiveBufferBytes: number,
  thereOptions: string[],
): Variant[] {
  return [
    async () =>
      flowFigures(
        `dgram_pump_${name}`,
        await dgramPump({ packetBytes: PACKET_BYTES, receiveBufferBytes, seconds, thereOptions }),
      ),
    async () =>
      flowFigures(
        `stack_write_65536_${name}`,
        await stream({
          opcode: WrOpcode.RDMA_WRITE,
          size: SIZE,
          bytes: BYTES,
          seconds,
          progress: 'inline',
          thereProgress: 'inline',
          thereOptions,
          socketBufferBytes: receiveBufferBytes,
        }),
      ),
  ];
}

async function run(pace: Pace): Promise<BenchResult> {
  const seconds = SECONDS * pace.share;
  const log = new TripLog();
  const trips = { bytes: 64, count: TRIPS * pace.share };
  const flows = [
    ...HEAPS.flatMap(({ heap, thereOptions }) =>
      flow(seconds, LARGE.name + heap, LARGE.bytes, thereOptions),
    ),
    ...flow(seconds, STOCK.name, STOCK.bytes, []),
  ];
  const rounds = await interleave(
    'dgram',
    [
      ...flows,
      async () => log.keep('dgram_ping_pong_64', await dgramPingPong(trips)),
      async () =>
        log.keep('stack_send_64', await sendTrips({ ...trips, progress: 'inline', waits: true })),
    ],
    pace,
  );
  const ratio = (one: string, other: string): number =>
    medianOf(rounds, (figures) => figures[one]! / figures[other]!);
  const stack = (buffer: string) => `stack_write_65536_${buffer}_gbps`;
  const pump = (buffer: string) => `dgram_pump_${buffer}_gbps`;
  return {
    rounds,
    figures: {
      ...medians(rounds),
      ...Object.fromEntries(
        HEAPS.map(({ heap }) => [
          `stack_to_dgram_pump_${LARGE.name}${heap}_ratio`,
          ratio(stack(LARGE.name + heap), pump(LARGE.name + heap)),
        ]),
      ),
      stack_to_dgram_pump_212992_ratio: ratio(stack(STOCK.name), pump(STOCK.name)),
    },
    distributions: log.distributions,
    bars: [
      atLeast(
        'WRITEs of 64 KiB against the windowed dgram pump',
        ratio(stack(LARGE.name), pump(LARGE.name)),
        0.8,
      ),
      atMost(
        'a SEND to and fro against a bare dgram ping-pong, p50',
        ratio('stack_send_64_p50_us', 'dgram_ping_pong_64_p50_us'),
        1.5,
      ),
      atLeast(
        `WRITEs of 64 KiB with SO_RCVBUF ${STOCK.name}`,
        ratio(stack(STOCK.name), stack(LARGE.name)),
        0.5,
      ),
    ],
  };
}

export const bench: Bench = {
  name: 'dgram',
  description: 'the stack over the node:dgram link, against node:dgram by itself',
  run,
};
