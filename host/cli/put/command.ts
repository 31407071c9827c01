/** The words of the command `put`. */
import { Option, type Command } from 'commander';
import { ROCE_PORT } from '../../link/link.js';
import { begin, example, run } from '../base/command.js';
import {
  addDscpOption,
  addFaultOptions,
  addPieceOption,
  addPortOption,
  localAddress,
  seconds,
  whole,
} from '../base/options.js';
import { addPskOptions } from '../base/psk-file.js';
import { isRoomAddress } from '../base/room-address.js';
import { addTokenOptions } from '../file-transfer/access.js';
import type { PutOptions } from './options.js';

export function addPut(program: Command): void {
  const command = begin(
    program,
    'put',
    'send a file by RDMA WRITE; an interrupted transfer resumes',
  )
    .argument('<file>')
    .argument(
      '<address>',
      `host[:port] of "verbena serve" (port ${ROCE_PORT} otherwise), or a room: ws://…#ROOM`,
    )
    .option('--bind <address>', 'local address (default: the route to the server)', localAddress);
  addPortOption(command, '--local-port <port>', 'local UDP port; 0: a free one', 0);
  addDscpOption(command);
  addPieceOption(command)
    .option(
      '--outage <seconds>',
      'time without the server that put survives (default: 60; with --retries: 0)',
      seconds,
    )
    .option(
      '--retries <number>',
      'reconnects without progress before put fails (default: 5, and --outage)',
      whole(0, 1000),
    )
    .addOption(
      new Option('--pmem', 'write and flush into the persistent memory of "serve --pmem"')
        // Records have a fixed length, and a log that is cut off is not resumed.
        .conflicts(['pieceBytes', 'retries', 'outage']),
    )
    .option('--pcap <file>', 'capture every packet')
    .option('--json', 'print the result as JSON');
  addTokenOptions(command, 'the key of the server');
  addFaultOptions(addPskOptions(command))
    .addHelpText('after', example('verbena put image.iso 192.0.2.7'))
    .action((file: string, address: string, options: PutOptions) =>
      run('put', async () => {
        if (!isRoomAddress(address)) {
          (await import('../../device/progress/idle-threads.js')).startThreadAhead();
        }
        return (await import('./put.js')).put(file, address, options);
      }),
    );
}
