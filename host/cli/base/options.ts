/** Options that several commands share, and how the words of a command line become numbers. */
import { isIP } from 'node:net';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { Gid } from '../../link/endpoint.js';
import { describeAddresses, isWildcard } from '../../link/interface.js';
import { PIECE_BYTES_MAX, PIECE_BYTES_MIN } from '../../transfer/piece-bytes.js';
import type { FaultPercents } from './fault-percents.js';

/** A parser of whole numbers for commander. */
export function whole(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };
}

/** Seconds, also parts of them. */
export function seconds(text: string): number {
  const value = Number(text);
  if (text.trim() !== '' && value >= 0 && value <= 86_400) return value;
  throw new InvalidArgumentError('It must be a number of seconds from 0 to 86400.');
}

/** A parser of sizes: `65536`, `64k`, `8M`, `1G`, `1T` (powers of 1024). */
export function size(least: number, most: number): (text: string) => number {
  return (text) => {
    const [, digits = 'none', unit = ''] = /^(\d+)([kKmMgGtT]?)$/.exec(text) ?? [];
    const value = Number(digits) * 1024 ** ['', 'k', 'm', 'g', 't'].indexOf(unit.toLowerCase());
    if (value >= least && value <= most) return value;
    const range = `${least} to ${most} bytes`;
    throw new InvalidArgumentError(`It must be a size from ${range}; 64k, 8M, 1G, 1T are sizes.`);
  };
}

/** A parser of a local address. Packets name it, which excludes a wildcard. */
export function localAddress(text: string): string {
  const [plain = ''] = text.split('%', 1);
  if (isIP(plain) && !isWildcard(Gid.parse(plain))) return text;
  const rule = 'It must be an IPv4 or IPv6 address, not a wildcard.';
  throw new InvalidArgumentError(`${rule} ${describeAddresses()}.`);
}

/** Path MTUs, in bytes. */
export const MTUS: readonly number[] = [256, 512, 1024, 2048, 4096];

/** A parser of path MTUs. */
export function mtu(text: string): number {
  const value = /^\d{3,4}$/.test(text) ? Number(text) : NaN;
  if (MTUS.includes(value)) return value;
  throw new InvalidArgumentError('It must be 256, 512, 1024, 2048 or 4096.');
}

/** A parser of what sets a parameter. */
export function assignment(text: string): string {
  if (/^\w+=\S+$/.test(text)) return text;
  throw new InvalidArgumentError('It must be parameter=value, as in RdsTraceLvl=0x1000.');
}

function percent(text: string): number {
  const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (value <= 100) return value;
  throw new InvalidArgumentError('It must be a percentage from 0 to 100.');
}

/** A port on which a program listens; 0: any free one. */
export function addPortOption(
  command: Command,
  flags: string,
  description: string,
  preset: number,
): Command {
  return command.option(flags, description, whole(0, 65535), preset);
}

/** A port that both sides name: 0 would be a port that the peer cannot know. */
export function addNamedPortOption(
  command: Command,
  flags: string,
  description: string,
  preset: number,
): Command {
  return command.option(flags, description, whole(1, 65535), preset);
}

export function addPieceOption(command: Command): Command {
  const option = new Option('--piece-bytes <size>', 'bytes that travel, and resume, as one');
  option.argParser(size(PIECE_BYTES_MIN, PIECE_BYTES_MAX)).default(2 ** 20, '1M');
  return command.addOption(option);
}

/** `--dscp`: of commands that carry data through a network with classes. */
export function addDscpOption(command: Command): Command {
  const description = 'DSCP of the packets that are sent, 0 to 63';
  return command.option('--dscp <number>', description, whole(0, 63), 0);
}

const FAULT_HELP = `
Fault injection (percent of the packets that this side sends):
  --loss P  --duplicate P  --reorder P  --corrupt P  --seed N (same faults again)`;

/** `--loss` and the like: not in the list of options, but in the text below it. */
export function addFaultOptions(command: Command): Command {
  for (const name of ['loss', 'duplicate', 'reorder', 'corrupt']) {
    command.addOption(new Option(`--${name} <percent>`).argParser(percent).hideHelp());
  }
  command.addOption(new Option('--seed <number>').argParser(whole(0, 2 ** 32 - 1)).hideHelp());
  return command.addHelpText('after', FAULT_HELP);
}

/** Fault options among `options`. */
export function faultsOf(options: FaultPercents): FaultPercents {
  const { loss, duplicate, reorder, corrupt, seed } = options;
  return {
    ...(loss === undefined ? {} : { loss }),
    ...(duplicate === undefined ? {} : { duplicate }),
    ...(reorder === undefined ? {} : { reorder }),
    ...(corrupt === undefined ? {} : { corrupt }),
    ...(seed === undefined ? {} : { seed }),
  };
}

/** The same as words of a command line. */
export function faultArguments(faults: FaultPercents): string[] {
  return Object.entries(faults).flatMap(([name, value]) => [`--${name}`, `${value as number}`]);
}
