/**
 * The start of the command. `verbena run` needs few modules: with all of them it took 65 ms of
 * processor time more before the program began.
 */
import type { Command } from 'commander';
import { makeRoot, start } from './base/command.js';

async function programOf(name: string | undefined): Promise<() => Command> {
  if (name !== 'run') return (await import('./main.js')).makeProgram;
  const { addRun } = await import('./run/command.js');
  return () => {
    const program = makeRoot();
    addRun(program);
    return program;
  };
}

await start(await programOf(process.argv[2]));
