/** The options of `verbena run`. */
import { InvalidArgumentError, Option, type Command } from 'commander';
import type { FaultPercents } from '../base/fault-percents.js';
import { addFaultOptions, localAddress, size } from '../base/options.js';

export interface RunCliOptions extends FaultPercents {
  readonly address: string;
  readonly name?: string;
  readonly memory?: number;
  readonly icrc: 'needed' | 'always';
  readonly turns: 'program' | 'device';
  readonly pcap?: string;
  readonly fault?: string;
}

/** Below them there is no room for tables and queues; above them, no address of the engine. */
const MEMORY_MIN = 64 * 2 ** 20;
const MEMORY_MAX = 2 ** 32;

function icrc(text: string): 'needed' | 'always' {
  if (text === 'needed' || text === 'always') return text;
  throw new InvalidArgumentError('It must be needed or always.');
}

function turns(text: string): 'program' | 'device' {
  if (text === 'program' || text === 'device') return text;
  throw new InvalidArgumentError('It must be program or device.');
}

function deviceName(text: string): string {
  if (/^[A-Za-z0-9._-]{1,64}$/.test(text)) return text;
  throw new InvalidArgumentError('It must be 1 to 64 letters, digits, dots and dashes.');
}

export function addRunOptions(command: Command): Command {
  command
    .option('--address <address>', 'local address of the device', localAddress, '127.0.0.1')
    .option(
      '--name <name>',
      'device that processes with this name share (default: one each)',
      deviceName,
    )
    .option(
      '--memory <size>',
      'memory that programs can register, with tables and queues: 64M to 4G, with --name at most ' +
        '3839M (default: 2G, with --name 1G)',
      size(MEMORY_MIN, MEMORY_MAX),
    )
    .addOption(
      new Option('--icrc <how>', 'needed or always: ICRC also where both sides omit it')
        .argParser(icrc)
        .default('needed'),
    )
    .addOption(
      new Option('--turns <how>', 'program or device: process that runs the engine during polls')
        .argParser(turns)
        .default('program'),
    )
    .option('--pcap <file>', 'capture every packet')
    .option('--fault <file>', 'verbs that fail, as JSON (host/guide/C-PROGRAMS.md)');
  return addFaultOptions(command);
}
