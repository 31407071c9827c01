/**
 * Examples whose host calls fail, one at a time. Whatever fails, an example either does without it,
 * or ends with one line for each process that says so, and leaves nothing behind: no process, no
 * file, no shared memory.
 */
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deviceDirectory } from '../../host/device/sharing/device-directory.js';
import { inParallel, judge, ownFileOf, play, type Played } from './play.js';
import type { Injection } from './inject.js';
import type { Example } from './table.js';

/** One call that an example makes. */
export interface HostCall {
  /** `PROCESS/THREAD NAME`. */
  readonly at: string;
  /** Among those, from 1 on. */
  readonly number: number;
  /** With which it will fail. */
  readonly errno: string;
}

export interface Outcome {
  readonly example: string;
  readonly call: HostCall | undefined;
  /** `done`: all the same; `refused`: it says why not. */
  readonly kind: 'done' | 'refused';
  readonly stderr: string;
  /** Complaint about the run. */
  readonly complaint: string | undefined;
}

interface Trial extends Played {
  readonly lines: readonly string[];
  readonly leftovers: readonly string[];
}

/** A device that processes share has its number in its name. */
const SHARED_MEMORY = deviceDirectory(process.geteuid!());
const LEFT_MILLIS_MAX = 5000;
/** As Node prints what we warn of. */
const WARNING = /^\(node:\d+\) VerbenaWarning: |^\(Use `node --trace-warnings/;

async function attempt(example: Example, call?: HostCall): Promise<Trial> {
  const directory = mkdtempSync(join(tmpdir(), 'verbena-fail-'));
  const temporary = mkdtempSync(join(directory, 'tmp-'));
  const log = join(directory, 'calls');
  writeFileSync(log, '');
  try {
    const injection: Injection = { log, ...(call && { at: call.at, number: call.number }) };
    const hook = new URL('./inject.js', import.meta.url).href;
    const env = {
      ...process.env,
      TMPDIR: temporary,
      NODE_OPTIONS: `--import=${hook}`,
      VERBENA_INJECT: JSON.stringify(injection),
    };
    const played = await play(example, env, ownFileOf(example.name));
    const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
    const pids = new Set(
      lines.filter((line) => line.startsWith('pid ')).map((line) => line.slice(4)),
    );
    const leftovers = await left(temporary, [...pids].map(Number), played.pid);
    return { ...played, lines, leftovers };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Processes and files that it has left behind. Ends what still runs, by its id. */
async function left(directory: string, pids: readonly number[], pid: number): Promise<string[]> {
  const until = performance.now() + LEFT_MILLIS_MAX;
  while (pids.some(isAlive) && performance.now() < until) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const running = pids.filter(isAlive);
  for (const each of running) process.kill(each, 'SIGKILL');
  const shared = readdirSync(SHARED_MEMORY).filter((name) => name.endsWith(`-${pid}`));
  for (const name of shared) rmSync(join(SHARED_MEMORY, name), { force: true });
  return [
    ...running.map((each) => `process ${each}`),
    ...readdirSync(directory),
    ...shared.map((name) => join(SHARED_MEMORY, name)),
  ];
}

/** The calls that an example makes when nothing fails. */
export async function callsOf(example: Example): Promise<readonly HostCall[]> {
  const trial = await attempt(example);
  const complaint = judge(example, trial) ?? (trial.leftovers.length > 0 && `${trial.leftovers}`);
  if (complaint) throw new Error(`${example.name}, without a failure: ${complaint}`);
  const counts = new Map<string, number>();
  const calls = new Map<string, HostCall>();
  for (const line of trial.lines) {
    const [kind, pid, place, name, errno = ''] = line.split(' ');
    if (kind !== 'call') continue;
    const at = `${place} ${name}`;
    const number = (counts.get(`${pid} ${at}`) ?? 0) + 1;
    counts.set(`${pid} ${at}`, number);
    // Processes with the same part fail alike.
    calls.set(`${at} ${number}`, { at, number, errno });
  }
  return [...calls.values()];
}

/** Complaint about its output: undefined when it is a line or two that name an errno. */
function judgeWords({ stderr }: Played, errno: string): string | undefined {
  const lines = stderr.split('\n').filter((line) => line !== '' && !WARNING.test(line));
  if (lines.length === 0) return 'it failed and did not say why';
  const strange = lines.find((line) => !/^[\w-]+: \S/.test(line) || /^\s+at |node:/.test(line));
  if (strange !== undefined) return `no sentence: ${strange}`;
  // A lost packet may end in a refusal of another process, elsewhere.
  if (!stderr.includes(errno) && !/\(E[A-Z]+\)/.test(stderr)) return `does not say ${errno}`;
  return undefined;
}

/** Lets `call` fail. */
export async function fail(example: Example, call: HostCall): Promise<Outcome> {
  const trial = await attempt(example, call);
  const kind = trial.code === 0 ? 'done' : 'refused';
  // A file that the system does not let it remove stays, and is named.
  const removes = / (unlink|rm)\w*$/.test(call.at);
  const isTold = (name: string): boolean => removes && trial.stderr.includes(name);
  const wrong = (): string | undefined => {
    if (trial.hung) return 'it hangs';
    const left = trial.leftovers.filter((name) => !isTold(name));
    if (left.length > 0) return `left behind: ${left.join(', ')}`;
    if (trial.code === null) return 'a signal ended it';
    return kind === 'done' ? judge(example, trial) : judgeWords(trial, call.errno);
  };
  const { stderr } = trial;
  return { example: example.name, call, kind, stderr, complaint: wrong() };
}

/** One call of each name: which of them is another one for each `turn`. */
export function oneOfEachKind(calls: readonly HostCall[], turn: number): readonly HostCall[] {
  const kinds = new Map<string, HostCall[]>();
  for (const call of calls) {
    const name = call.at.slice(call.at.indexOf(' ') + 1);
    kinds.set(name, [...(kinds.get(name) ?? []), call]);
  }
  return [...kinds.values()].map((same) => same[turn % same.length]!);
}

export interface FailOptions {
  readonly json: boolean;
  /** One call of each kind, in place of all. */
  readonly kinds: boolean;
}

/** Every call of every example, each in a run of its own. */
export async function failEach(
  examples: readonly Example[],
  { json, kinds }: FailOptions,
): Promise<[passed: number, failed: number]> {
  let [passed, wrong] = [0, 0];
  for (const [turn, example] of examples.entries()) {
    const all = await callsOf(example);
    const calls = kinds ? oneOfEachKind(all, turn) : all;
    const counts = { done: 0, refused: 0, failed: 0 };
    for (const result of inParallel(calls, (call) => fail(example, call))) {
      const outcome = await result;
      counts[outcome.complaint ? 'failed' : outcome.kind]++;
      if (json) console.log(JSON.stringify(outcome));
      else if (outcome.complaint) console.log(`FAIL ${describe(outcome)}`);
    }
    const { done, refused, failed } = counts;
    passed += done + refused;
    wrong += failed;
    const told = `${done} done all the same, ${refused} refused with a sentence, ${failed} wrong`;
    console.error(`== ${example.name}: ${calls.length} host calls: ${told}`);
  }
  return [passed, wrong];
}

export function describe({ example, call, complaint, stderr }: Outcome): string {
  const which = call && `${call.at} ${call.number} ${call.errno}`;
  return `${example}, ${which}: ${complaint}\n${stderr.replace(/^/gm, '     | ')}`;
}
