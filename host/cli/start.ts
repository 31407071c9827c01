/**
 * The start of the command. `verbena run` and `verbena put` need few modules: with all of them it
 * took 65 ms of processor time more before the program began, or the file was sent.
 */
import type { Command } from 'commander';
import { makeRoot, start } from './base/command.js';

type Add = (program: Command) => void;

/** Commands that start without the modules of the others. */
const APART: Readonly<Record<string, () => Promise<Add>>> = {
  run: async () => (await import('./run/command.js')).addRun,
  put: async () => (await import('./put/command.js')).addPut,
};

async function programOf(name = ''): Promise<() => Command> {
  if (!Object.hasOwn(APART, name)) return (await import('./main.js')).makeProgram;
  const add = await APART[name]!();
  return () => {
    const program = makeRoot();
    add(program);
    return program;
  };
}

await start(await programOf(process.argv[2]));
