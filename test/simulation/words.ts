/** The arguments of `npm run sim`. */
import { availableParallelism } from 'node:os';
import { InvalidArgumentError } from 'commander';
import { SEED_MAX, script, whole } from '../support/script.js';
import { parseOptions, type SimulationOptions } from './options.js';

export interface SimulationWords {
  readonly seeds?: number;
  readonly first: number;
  readonly threads: number;
  readonly replay?: SimulationOptions;
  readonly shrink: boolean;
  readonly bail: boolean;
  readonly layouts: boolean;
  readonly net: boolean;
  readonly rds: boolean;
  readonly host: boolean;
  readonly periods: boolean;
  readonly kill: boolean;
  readonly crash: boolean;
  readonly table: boolean;
}

function replayed(text: string): SimulationOptions {
  try {
    return parseOptions(text);
  } catch (error) {
    const why = (error as Error).message;
    throw new InvalidArgumentError(`It must be a seed, or options as JSON: ${why}.`);
  }
}

export const words = script(
  'sim',
  'devices and their traffic in virtual time, with faults by seed; a seed that fails is shrunk',
  '--seeds 5000',
  '--replay 123',
  '--crash --kill',
)
  .option('--seeds <number>', 'how many (default: 1000, or what the kind has)', whole(1, SEED_MAX))
  .option('--first <number>', 'the first one', whole(0, SEED_MAX), 1)
  .option('--threads <number>', 'at a time', whole(1, 256), availableParallelism())
  .option('--replay <seed>', 'one seed, or options as JSON: twice, and what it did', replayed)
  .option('--no-shrink', 'leave seeds that fail as they are')
  .option('--bail', 'end with the first failure', false)
  .option('--layouts', 'instead: random memory layouts against an oracle', false)
  .option('--net', 'instead: streams through networks, and how they share them', false)
  .option('--rds', 'instead: reliable datagrams', false)
  .option('--host', 'instead: the host code of processes, in orders selected by seed', false)
  .option('--periods', 'instead: a link loses every n-th packet, n from 2 to 200', false)
  .option('--kill', 'instead: processes that die at every step', false)
  .option('--crash', 'instead: power cuts at every step; with --kill a real server', false)
  .option('--table', 'write throughput.snapshot.txt and runs.snapshot.txt', false);
