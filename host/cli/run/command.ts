/** The words of the command `run`. */
import type { Command } from 'commander';
import { begin, example, run } from '../base/command.js';
import { addRunOptions, type RunCliOptions } from './options.js';
import type { Signals } from './signals.js';

const RUN_HELP = `
The program finds one device, verbena0. Exit code: that of the program; 128 + n after signal n;
127 if the program is missing, 126 if it cannot be started.
`;

/** `signals`: those since the start of this process. */
export function addRun(program: Command, signals?: Signals): void {
  const command = begin(program, 'run', 'run an RDMA program in C, unmodified, on a device')
    .argument('<command...>', 'the program and its arguments')
    // Its options are its own.
    .passThroughOptions();
  addRunOptions(command)
    .addHelpText('after', RUN_HELP)
    .addHelpText(
      'after',
      example('verbena run ibv_devinfo', 'verbena run --address 127.0.0.2 -- ib_send_lat'),
    )
    .action((words: string[], options: RunCliOptions) =>
      run('run', async () => (await import('./run.js')).runProgram(words, options, signals)),
    );
}
