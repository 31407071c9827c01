/**
 * Makes a failing run small: takes faults away one by one, then devices, connections, operations
 * and variety, and keeps every change with which it still fails in the same words.
 */
import { PERFECT, type SimulationOptions } from './options.js';
import { simulate } from './world.js';

export interface Shrunk {
  readonly options: SimulationOptions;
  /** How the smallest run fails. */
  readonly error: Error;
  readonly runs: number;
}

type Change = (options: SimulationOptions) => Partial<SimulationOptions>;

/** Runs at most: each is a small part of a second. */
const RUNS_MAX = 400;

/** The words of a failure, without what changes from run to run. */
function words(error: Error): string {
  return error.message
    .replace(/^connection [^:]*: /, '')
    .replace(/\b[A-Z_]{4,}\b/g, (name) => (name.endsWith('ERR') ? name : 'X'))
    .replace(/[0-9]+/g, '#')
    .split('\n')[0]!;
}

/** How it fails; undefined: it does not. */
async function failureOf(options: SimulationOptions): Promise<Error | undefined> {
  try {
    await simulate(options);
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

/** From the largest cut to the smallest. */
function changes(options: SimulationOptions): Change[] {
  const list: Change[] = [];
  for (const [name, value] of Object.entries(PERFECT)) {
    if (JSON.stringify(options[name as keyof SimulationOptions]) === JSON.stringify(value))
      continue;
    list.push(() => ({ [name]: value }));
  }
  for (const share of [0.1, 0.5, 0.8, 0.95]) {
    list.push(({ operations }) => ({ operations: Math.floor(operations * share) }));
  }
  list.push(({ connections }) => ({ connections: Math.max(connections - 1, 1) }));
  list.push(({ connections }) => ({ connections: Math.ceil(connections / 2) }));
  list.push(({ devices }) => ({ devices: Math.max(devices - 1, 2) }));
  list.push(({ messageBytesMax }) => ({ messageBytesMax: Math.max(messageBytesMax >> 2, 256) }));
  for (const name of options.kinds) {
    list.push(({ kinds }) => ({ kinds: kinds.filter((other) => other !== name) }));
  }
  return list;
}

/** `options` must fail. */
export async function shrink(options: SimulationOptions): Promise<Shrunk> {
  let smallest = options;
  let error = await failureOf(options);
  let runs = 1;
  if (!error) throw new Error('does not fail: nothing to shrink');
  const wanted = words(error);
  for (let changed = true; changed && runs < RUNS_MAX;) {
    changed = false;
    for (const change of changes(smallest)) {
      const candidate = { ...smallest, ...change(smallest) };
      const same = JSON.stringify(candidate) === JSON.stringify(smallest);
      if (same || candidate.kinds.length === 0 || runs >= RUNS_MAX) continue;
      const failure = await failureOf(candidate);
      runs++;
      if (!failure || words(failure) !== wanted) continue;
      smallest = candidate;
      error = failure;
      changed = true;
    }
  }
  return { options: smallest, error, runs };
}
