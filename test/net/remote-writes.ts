/**
 * Memory of a peer over the network, as two programs:
 *
 *     node build/test/net/remote-writes.js serve ADDRESS
 *     node build/test/net/remote-writes.js write ADDRESS [reconnect]
 *     node build/test/net/remote-writes.js read ADDRESS
 *
 * The second one writes 64 KiB again and again until a write fails; it prints a WritesResult as its
 * last line. With `reconnect` it writes once more, by the same object. The third one reads 64 KiB
 * eight times at once, again and again, and prints how many packets were in flight at most.
 */
import { RemoteError, connect, share } from '../../host/index.js';
import { pathToFileURL } from 'node:url';

const PORT = 7000;
const BYTES = 65536;
const TIMEOUT = 10_000;
const READS = 8;
/** Packets of one READ, and how many READs are to be in flight at once. */
const READ_PACKETS = 64;
const TOGETHER = 3;
/** The window grows with the round trips, of which a busy machine has fewer. */
const READ_MILLIS_MAX = 15_000;

export interface WritesResult {
  readonly code: string;
  readonly message: string;
  readonly explanation: string;
  /** Between the last write that was done and the failure. */
  readonly millis: number;
  /** Did a write after it succeed? */
  readonly goesOn: boolean;
}

async function serve(address: string): Promise<void> {
  const { url } = await share(`rdma://${address}:${PORT}`, { table: BYTES });
  console.log(`listening at ${url}`);
}

async function write(address: string, reconnect: boolean): Promise<void> {
  const remote = await connect(`rdma://${address}:${PORT}`, { reconnect, timeout: TIMEOUT });
  const table = remote.memory['table']!;
  const bytes = new Uint8Array(BYTES).fill(0xa5);
  let doneAt = performance.now();
  try {
    for (;;) {
      await table.write(0, bytes);
      doneAt = performance.now();
    }
  } catch (error) {
    if (!(error instanceof RemoteError)) throw error;
    const { code, message, explanation } = error;
    const millis = performance.now() - doneAt;
    const goesOn = await table.write(0, bytes, { timeout: TIMEOUT }).then(
      () => true,
      () => false,
    );
    console.log(JSON.stringify({ code, message, explanation, millis, goesOn }));
  }
  await remote.destroy();
}

async function read(address: string): Promise<void> {
  const remote = await connect(`rdma://${address}:${PORT}`, { timeout: TIMEOUT });
  const { memory, connection } = remote;
  const end = performance.now() + READ_MILLIS_MAX;
  let most = 0;
  const reading = Array.from({ length: READS }, async () => {
    const bytes = new Uint8Array(BYTES);
    while (most <= TOGETHER * READ_PACKETS && performance.now() < end) {
      await memory['table']!.readInto(0, bytes);
      most = Math.max(most, connection!.qp.pathState()?.inFlightPackets ?? 0);
    }
  });
  await Promise.all(reading);
  console.log(most);
  await remote.destroy();
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [what, address = '', how] = process.argv.slice(2);
  if (what === 'serve') await serve(address);
  else await (what === 'read' ? read(address) : write(address, how === 'reconnect'));
}
