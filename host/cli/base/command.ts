/**
 * Common part of all commands of `verbena`: complaints, exit codes, the head of the command line.
 */
import { readFileSync } from 'node:fs';
import {
  Command,
  CommanderError,
  type HelpContext,
  type Option,
  type OutputConfiguration,
} from 'commander';
import { Exit, complainOfWarnings, escapeInvisible, reportFailure, watchOutput } from './report.js';

const EXIT_CODES = `
Example:
  verbena tour
  verbena put --help

Exit codes: 0 done, 1 refused or failed, 2 the command line is wrong, 130 ended by ctrl-C
(serve, demo, sniff and nvme-target run until ctrl-C or SIGTERM: 0).
VERBENA_DEBUG=1 shows where an error comes from.
`;

/** For what a process without work left does before it ends. */
const ENDING_MILLIS = 1000;

/** Runs a command; its result is the exit code. */
export async function run(command: string, action: () => Promise<number>): Promise<void> {
  try {
    process.exitCode = await action();
  } catch (error) {
    process.exitCode = reportFailure(command, error);
  }
  setTimeout(endUnlessWriting, ENDING_MILLIS).unref();
}

/**
 * The library of data channels keeps the process for half a minute if the tab of one has crashed;
 * closing them does not end that.
 */
function endUnlessWriting(): void {
  if (process.stdout.writableLength === 0 && process.stderr.writableLength === 0) process.exit();
}

/** Commands that lie in one word, such as `rpma bench` in `rpma`. */
export function group(program: Command, name: string, description: string): Command {
  return program.command(name).description(description).configureOutput(complaintsOf(name));
}

/** A command whose complaints about its own words begin like all others. */
export function begin(program: Command, name: string, description: string): Command {
  // `rpma bench` lies in `rpma`.
  const whole = program.parent ? `${program.name()} ${name}` : name;
  return program
    .command(name)
    .description(description)
    .configureOutput(complaintsOf(whole))
    .hook('preAction', refuseEmpty);
}

/** An empty word is mostly a shell variable that is not set. `--token` reports its own length. */
function refuseEmpty(command: Command): void {
  const { args, options, registeredArguments } = command;
  const isEmpty = (option: Option): boolean =>
    option.long !== '--token' && command.getOptionValue(option.attributeName()) === '';
  const argument = registeredArguments.find((_, index) => args[index] === '');
  const name = argument ? `<${argument.name()}>` : options.find(isEmpty)?.flags;
  if (name !== undefined) command.error(`error: ${name} must not be empty, got ''`);
}

/** One line, which says where there is more. */
function complaintsOf(name: string): OutputConfiguration {
  const command = `verbena ${name}`.trim();
  return {
    outputError(text, write) {
      const sentence = text
        .replace(/^error: /, '')
        .trim()
        .replace(/\s*\n\s*/g, ' ');
      write(`${command}: ${escapeInvisible(sentence)} (${command} --help)\n`);
    },
  };
}

export function example(...lines: string[]): string {
  return `\nExample:\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

/** Without a command, commander prints the whole help to standard error in place of a sentence. */
class OneLineCommand extends Command {
  override createCommand(name?: string): Command {
    return new OneLineCommand(name);
  }

  override help(context?: HelpContext | ((text: string) => string)): never {
    if (typeof context === 'function') return super.help(context);
    if (!context?.error) return super.help(context);
    const [, unknown] = this.args;
    if (unknown !== undefined) return this.error(`error: unknown command '${unknown}'`);
    return this.error('error: missing command');
  }
}

/** The command line without a command. */
export function makeRoot(): Command {
  const { version, description } = JSON.parse(
    readFileSync(new URL('../../../../package.json', import.meta.url), 'utf8'),
  ) as { version: string; description: string };
  return (
    new OneLineCommand('verbena')
      .description(description)
      .version(version)
      // Behind a command's name, letters are the command's.
      .enablePositionalOptions()
      .addHelpText('after', EXIT_CODES)
      // Commands made from now on inherit both.
      .exitOverride()
      .configureOutput(complaintsOf(''))
  );
}

/** Exit code for the command line itself: requested help, or an error in it. */
export function exitCodeOf(error: unknown): number {
  if (!(error instanceof CommanderError)) throw error;
  return error.exitCode === 0 ? Exit.OK : Exit.MISUSE;
}

/** Runs the command line of this process. */
export async function start(makeProgram: () => Command): Promise<void> {
  watchOutput();
  complainOfWarnings(process.argv[2] ?? '');
  try {
    await makeProgram().parseAsync();
  } catch (error) {
    process.exitCode = exitCodeOf(error);
  }
}
