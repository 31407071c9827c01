/**
 * A path loses every n-th packet: identical retransmissions lose the same packet each time, until
 * no retry is left.
 */
import { PERFECT, formatOptions, optionsOf, type SimulationOptions } from './options.js';
import { simulate } from './world.js';

export const PERIOD_MAX = 200;
const OPERATIONS = 60;

/** One connection, three on one path, and one to a peer that keeps out-of-order packets. */
const SHAPES: readonly Partial<SimulationOptions>[] = [
  { connections: 1, operations: OPERATIONS },
  { connections: 3, operations: OPERATIONS / 3 },
  { connections: 3, operations: OPERATIONS / 3, reorderPackets: 64, ownKind: true },
];
export const KINDS: ReadonlyMap<string, Partial<SimulationOptions>> = new Map([
  ['SENDs of 64 bytes', { kinds: ['SEND'], messageBytesMax: 64 }],
  ['WRITEs', { kinds: ['RDMA_WRITE'], messageBytesMax: 65536 }],
  ['READs', { kinds: ['RDMA_READ'], messageBytesMax: 65536, rdAtomicMax: 16 }],
  ['READs one by one', { kinds: ['RDMA_READ'], messageBytesMax: 65536, rdAtomicMax: 1 }],
  ['atomics', { kinds: ['ATOMIC_FETCH_AND_ADD'], rdAtomicMax: 16 }],
]);

function optionsAt(lossPeriod: number, kind: Partial<SimulationOptions>): SimulationOptions {
  return {
    ...optionsOf(1),
    ...PERFECT,
    ...{ seed: 1, devices: 2, windowPackets: 128, windowBytes: 4 * 2 ** 20, mtu: 3 },
    ...{ timeout: 10, sendDepth: 64, receiveDepth: 32, latencyMicros: 10 },
    ...kind,
    ...SHAPES[lossPeriod % SHAPES.length],
    lossPeriod,
  };
}

/** Throws when a connection of that kind of traffic ends. */
export async function simulateLoss(lossPeriod: number, what: string): Promise<void> {
  const options = optionsAt(lossPeriod, KINDS.get(what)!);
  try {
    await simulate(options);
  } catch (error) {
    const replay = `npm run -s sim -- --replay '${formatOptions(options)}'`;
    throw new Error(`${(error as Error).message}\n${replay}`, { cause: error });
  }
}

/** Each period with each kind of traffic; the number of failures. */
export async function runLosses(): Promise<number> {
  let [passed, failed] = [0, 0];
  for (const what of KINDS.keys()) {
    for (let lossPeriod = 2; lossPeriod <= PERIOD_MAX; lossPeriod++) {
      try {
        await simulateLoss(lossPeriod, what);
        passed++;
      } catch (error) {
        failed++;
        console.log(`each ${lossPeriod}-th packet lost, ${what}: ${(error as Error).message}`);
      }
    }
  }
  console.log(`${passed} passed, ${failed} failed`);
  return failed;
}
