#!/usr/bin/env node
/** Starts the command. */
import { Signals } from './run/signals.js';

if (process.argv[2] === 'run') {
  // Before all else: SIGUSR1 would open an inspector, and others end this process alone.
  const signals = new Signals();
  const file = new URL('./run/run-command.js', import.meta.url).href;
  const { runCommand } = (await import(file)) as typeof import('./run/run-command.js');
  await runCommand(signals);
} else {
  const [{ start }, { makeProgram }] = await Promise.all([
    import('./base/command.js'),
    import('./main.js'),
  ]);
  await start(makeProgram);
}
