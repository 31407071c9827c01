/**
 * Parser of the words behind `npm run NAME --`: one voice for all scripts, which is that of the
 * `verbena` command. The words of a script are in `words.ts` of its folder, apart from what it
 * does.
 */
import { Command, CommanderError, InvalidArgumentError } from 'commander';

export { whole } from '../../host/cli/base/options.js';

const EXIT_CODES =
  '\nExit codes: 0 all is well, 1 something failed, 2 the command line is wrong.\n';
const MISUSE = 2;
export const SEED_MAX = 2 ** 32 - 1;

/** Begins the command line of `npm run name`; `examples` are words behind `--`. */
export function script(name: string, description: string, ...examples: string[]): Command {
  const command = `npm run ${name}`;
  const lines = examples.map((words) => `  ${command}${words && ` -- ${words}`}\n`);
  return new Command(`${command} --`)
    .description(description)
    .exitOverride()
    .configureOutput({
      outputError(text, write) {
        const sentence = text.replace(/^error: /, '').trim();
        write(`${command}: ${sentence.replace(/\s*\n\s*/g, ' ')} (${command} -- --help)\n`);
      },
    })
    .addHelpText('after', `\nExample:\n${lines.join('')}${EXIT_CODES}`);
}

/** A parser of numbers above 0. */
export function positive(most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() !== '' && value > 0 && value <= most) return value;
    throw new InvalidArgumentError(`It must be a number above 0, at most ${most}.`);
  };
}

/** A parser of names of which there are a few. */
export function nameOf(what: string, known: readonly string[]) {
  return (text: string, before: readonly string[] = []): readonly string[] => {
    if (known.includes(text)) return [...before, text];
    throw new InvalidArgumentError(`There is no ${what} of that name, but ${known.join(', ')}.`);
  };
}

/** The options and arguments of this process. Help, or a complaint, ends it. */
export function read<Options>(program: Command): {
  readonly options: Options;
  readonly names: readonly string[];
} {
  try {
    program.parse();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    process.exit(error.exitCode === 0 ? 0 : MISUSE);
  }
  return { options: program.opts() as Options, names: program.processedArgs.flat() as string[] };
}
