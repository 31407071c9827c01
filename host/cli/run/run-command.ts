/**
 * `verbena run`, and no other command: the program waits for this process, which loads one file in
 * place of those of all commands (host/bundle.mjs).
 */
import { makeRoot, start } from '../base/command.js';
import { addRun } from './command.js';
import type { Signals } from './signals.js';

/** Runs the command line of this process, and ends it. `signals`: those since its start. */
export async function runCommand(signals: Signals): Promise<never> {
  await start(() => {
    const program = makeRoot();
    addRun(program, signals);
    return program;
  });
  // The program has ended, and its device is closed: timers of either do not count.
  process.exit();
}
