/** `verbena perf` as tests start it. */
import type { Program, Workspace } from './processes.js';

export type Words = readonly (string | number)[];

/** `a b c` as words of a command line. */
export function wordsOf(text: string): Words {
  return text.split(' ');
}

/** A server at `address` that a client may come to. */
export async function startPerfServer(
  space: Workspace,
  address: string,
  ...words: Words
): Promise<Program> {
  const server = space.start('perf', ...words, '--bind', address);
  await server.printed(words.includes('--json') ? 'stderr' : 'stdout', /waiting/i);
  return server;
}
