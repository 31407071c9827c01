/** `verbena put` between two hosts of a network that something happens to meanwhile. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cliPath, noise, type Ended } from '../support/processes.js';
import { Network, addressOf } from './network.js';

/** A file of 4 MB takes 2 s. */
const LINK = { rate: 20, queue: 100, rtt: 1 };

export interface Put {
  readonly ended: Ended;
  /** Did the file arrive as it was sent? */
  readonly isWhole: () => boolean;
}

/**
 * Puts a file of `bytes` bytes from host 1 to host 2. `happens` runs when a quarter of the file was
 * carried; `check` looks at the result while the file is still there.
 */
export async function putFile(
  bytes: number,
  options: readonly string[],
  happens: (network: Network) => void | Promise<void>,
  check: (put: Put) => void,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'verbena-put-'));
  const network = await Network.open(2);
  try {
    network.set(LINK);
    const directory = join(folder, 'received');
    mkdirSync(directory);
    const source = join(folder, 'file');
    const data = noise(bytes);
    writeFileSync(source, data);
    const words = ['serve', '--dir', directory, '--bind', addressOf(2), '--no-token'];
    const server = network.start(2, process.execPath, [cliPath, ...words]);
    await server.printed('stdout', /\S/);
    const client = network.start(1, process.execPath, [
      ...[cliPath, 'put', source, addressOf(2), '--piece-bytes', '64k', ...options],
    ]);
    await network.untilCarried(bytes / 4, client.ended);
    await happens(network);
    const ended = await client.ended;
    server.kill();
    const isWhole = (): boolean => readFileSync(join(directory, 'file')).equals(data);
    check({ ended, isWhole });
  } finally {
    await network.close();
    rmSync(folder, { recursive: true });
  }
}
