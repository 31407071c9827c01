/**
 * How a command ends: exit codes, one line per failure on standard error, and standard output whose
 * reader may close it at any time (`| head`).
 */
import { MisuseError, VerbenaError } from '../../errors/errors.js';

/** Exit codes of every command. */
export const Exit = {
  OK: 0,
  /** Refused or failed; standard error has one line that says why. */
  FAILED: 1,
  /** The command line is wrong. */
  MISUSE: 2,
  /** Ended by ctrl-C, as shells count it: 128 + SIGINT. */
  INTERRUPTED: 130,
} as const;

/** Unicode categories of characters without a glyph, but for line feed and tab. */
const INVISIBLE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The user pressed ctrl-C; `message` says how to go on. */
export class Interrupted extends VerbenaError {
  override readonly name = 'Interrupted';
}

let closed = false;

/** Standard output's reader has gone: nothing that is printed arrives. */
export function outputClosed(): boolean {
  return closed;
}

/** To be called once, before anything is printed. */
export function watchOutput(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      // A reader that goes away is no failure of ours; what else goes wrong with a terminal or a
      // full disk behind a redirection is.
      if (error.code === 'EPIPE') closed ||= stream === process.stdout;
      else process.exit(Exit.FAILED);
    });
  }
}

/** Prints lines to standard output; the promise waits for a reader that is slower than we are. */
export async function printLine(line: string): Promise<void> {
  if (closed || process.stdout.write(`${escapeInvisible(line)}\n`)) return;
  await new Promise<void>((resolve) => {
    const proceed = (): void => {
      process.stdout.removeListener('drain', proceed);
      process.stdout.removeListener('error', proceed);
      resolve();
    };
    process.stdout.on('drain', proceed);
    process.stdout.on('error', proceed);
  });
}

/**
 * Replaces control characters, changes of text direction and other invisible characters by
 * `\u202e` and the like, which JSON also reads. The text may be a peer's; a terminal would obey it.
 */
export function escapeInvisible(text: string): string {
  return text.replace(INVISIBLE, (found) => found.replace(/[^]/g, escapeUnit));
}

function escapeUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** Prints a line to standard error, with the command that it comes from in front. */
export function complain(command: string, line: string): void {
  const text = escapeInvisible(line.replace(/\s*\n\s*/g, ' '));
  process.stderr.write(`verbena ${command}: ${text}\n`);
}

/** Warnings of this package become lines of the command, each sentence once; others are Node's. */
export function complainOfWarnings(command: string): void {
  const [byNode] = process.listeners('warning');
  const known = new Set<string>();
  process.removeAllListeners('warning').on('warning', (warning) => {
    const { name, message } = warning;
    if (name !== 'VerbenaWarning') return byNode?.(warning);
    if (!known.has(message)) complain(command, message);
    known.add(message);
  });
}

/** One line about `error` of any origin. */
export function describeError(error: unknown): string {
  if (error instanceof VerbenaError) return error.message;
  const message = error instanceof Error ? error.message : String(error);
  // A message of the system (open, listen, …) is a sentence; any other error is a fault of Verbena.
  if (error instanceof Error && 'syscall' in error) return message;
  return `unexpected: ${message} (VERBENA_DEBUG=1 shows where)`;
}

/** Reports what ended a command; returns its exit code. */
export function reportFailure(command: string, error: unknown): number {
  complain(command, describeError(error));
  if (process.env['VERBENA_DEBUG'] === '1' && error instanceof Error) {
    process.stderr.write(`${error.stack ?? ''}\n`);
    if (error.cause) process.stderr.write(`cause: ${String(error.cause)}\n`);
  }
  if (error instanceof Interrupted) return Exit.INTERRUPTED;
  return error instanceof MisuseError ? Exit.MISUSE : Exit.FAILED;
}
