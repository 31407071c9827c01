/** Packets of the loopback interface while checks run. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run, withFolder } from '../tools.js';

const PORT = 4791;
const HEADER_BYTES = 128;
const PACKETS_SHOWN = 60;
/** So late, at most, dumpcap writes what it has captured. */
const WRITTEN_MILLIS = 2000;
const FIELDS = ['frame.time_relative', 'ip.src', 'infiniband.bth.opcode', 'infiniband.bth.psn'];

/** Text of the last packets between two addresses, one line each. */
type LastPackets = (addresses: readonly [string, string]) => Promise<string>;

/** Captures as long as `use` runs. Rejects if dumpcap does not start. */
export async function withCapture(use: (lastPackets: LastPackets) => Promise<void>): Promise<void> {
  await withFolder(async (folder) => {
    const file = join(folder, 'lo.pcapng');
    const filter = ['-f', `udp port ${PORT}`, '-s', String(HEADER_BYTES)];
    const dumpcap = spawn('dumpcap', ['-i', 'lo', ...filter, '-w', file], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const ended = once(dumpcap, 'close');
    try {
      await new Promise<void>((resolve, reject) => {
        let errors = '';
        dumpcap.stderr.setEncoding('utf8').on('data', (text: string) => {
          errors += text;
          // "File: NAME": it has opened the interface.
          if (errors.includes(file)) resolve();
        });
        dumpcap.once('error', reject);
        dumpcap.once('close', () => reject(new Error(`dumpcap ended: ${errors}`)));
      });
      await use(async ([one, other]) => {
        await sleep(WRITTEN_MILLIS);
        const between = `ip.addr == ${one} && ip.addr == ${other}`;
        const fields = FIELDS.flatMap((field) => ['-e', field]);
        const text = run('tshark', ['-n', '-r', file, '-Y', between, '-T', 'fields', ...fields]);
        const lines = (await text).stdout.trimEnd().split('\n');
        return [`last of ${lines.length} packets:`, ...lines.slice(-PACKETS_SHOWN)].join('\n');
      });
    } finally {
      dumpcap.kill('SIGINT');
      await ended;
    }
  });
}
