/**
 * Hostile packets and hostile posted work against the engine, with its branches counted.
 *
 *     npm run fuzz -- [--packets N] [--seconds S] [--seed S] [--threads T] [--update-corpus]
 *                     [--authentication on|off|both]
 */
import { Opcode, OpcodeName } from '#build/abi.js';
import { PROFILES, type Profile } from './campaign.js';
import { minimise, writeCorpus, type Entry } from './corpus.js';
import {
  buildCoverage,
  onAuthenticPath,
  onPostedPath,
  onReceivePath,
  reached,
  type Branch,
} from './coverage.js';
import { fuzzDatagrams } from './datagrams.js';
import { replayRegressions } from './regressions.js';
import { runWorker } from './run-worker.js';
import { Slot } from './slot.js';
import { read } from '../support/script.js';
import { whyUnreachable } from './unreachable.js';
import { words, type Authentication, type FuzzOptions } from './words.js';
import type { Outcome } from './worker.js';

/** A scenario takes a millisecond: one that takes this long will not end. */
const HANG_SECONDS = 60;
/** The share of each kind of campaign in all packets. */
const SHARES: Readonly<Record<Authentication, Partial<Record<Profile, number>>>> = {
  on: { authentic: 1 },
  off: { receive: 0.7, posted: 0.3 },
  both: { receive: 0.4, posted: 0.2, authentic: 0.4 },
};
/** Beside them, for nodes of reliable datagrams. */
const DATAGRAMS_SHARE = 0.05;
const RECEIVE_PERCENT = 95;
const POSTED_PERCENT = 95;
const AUTHENTIC_PERCENT = 95;

const {
  packets,
  seconds: secondsMax,
  seed,
  threads,
  updateCorpus: updates,
  authentication,
} = read<FuzzOptions>(words).options;
const shares = SHARES[authentication];
const profiles = PROFILES.filter((profile) => shares[profile] !== undefined);
const until = Date.now() + secondsMax * 1000;

const slots: Slot[] = [];
let passed = 0;
let failed = 0;

function verdict(ok: boolean, what: string): void {
  if (ok) passed++;
  else failed++;
  console.log(`${ok ? 'ok  ' : 'FAIL'} ${what}`);
}

function campaign(profile: Profile, index: number, share: number): Promise<Outcome | string> {
  const slot = new Slot();
  slots.push(slot);
  const task = { profile, packets: share, until, seed: seed + index };
  return runWorker(task, slot, HANG_SECONDS);
}

function showProgress(start: number): void {
  const sum = (of: (slot: Slot) => number): number => slots.reduce((n, slot) => n + of(slot), 0);
  const done = sum((slot) => slot.packets);
  const seconds = (performance.now() - start) / 1000;
  const rate = Math.round(done / seconds);
  const executions = sum((slot) => slot.executions);
  process.stderr.write(`\r${done} of ${packets} packets, ${rate}/s, ${executions} scenarios   `);
}

function place(branch: Branch): string {
  return `${branch.file}:${branch.line}:${branch.column} ${branch.kind}`;
}

/** A node has some forty packets of a hostile peer. */
function judgeDatagrams(): void {
  const nodes = Math.ceil((packets * DATAGRAMS_SHARE) / 40);
  try {
    const report = fuzzDatagrams(nodes, seed);
    const { packets: count, accepted, ended, read } = report;
    const tried = `${count} packets over ${accepted} connections, ${ended} ended, ${read} messages`;
    verdict(true, `reliable datagrams: ${tried}`);
  } catch (error) {
    verdict(false, `reliable datagrams: ${(error as Error).message}`);
  }
}

/** Branches that nothing can reach are listed in unreachable.ts, each with its reason. */
function judgeBranches(taken: Uint8Array): void {
  const engine = buildCoverage();
  const parts = [
    ['receive', onReceivePath, RECEIVE_PERCENT],
    ['posted', onPostedPath, POSTED_PERCENT],
    ['authentic', onAuthenticPath, AUTHENTIC_PERCENT],
  ] as const;
  for (const [name, belongs, least] of parts.filter(([each]) => profiles.includes(each))) {
    const { total, missing, percent } = reached(engine, taken, belongs);
    const count = `${total - missing.length} of ${total} branches, ${percent.toFixed(1)} %`;
    verdict(percent >= least, `${name} path: ${count} (at least ${least} %)`);
    for (const branch of missing) {
      const reason = whyUnreachable(branch);
      console.log(`     not reached: ${place(branch)}${reason ? ` (${reason})` : ''}`);
    }
  }
}

function judgeOpcodes(outcomes: readonly Outcome[]): void {
  const opcodes = new Set(outcomes.flatMap((outcome) => [...outcome.opcodes]));
  const missing = Object.values(Opcode).filter((opcode) => !opcodes.has(opcode));
  const names = missing.map((opcode) => OpcodeName[opcode]).join(', ');
  const all = Object.values(Opcode).length;
  const count = `${all - missing.length} of ${all} opcodes past the border`;
  verdict(missing.length === 0, missing.length === 0 ? count : `${count}; not: ${names}`);
}

async function updateCorpus(profile: Profile, entries: readonly Entry[]): Promise<void> {
  process.stderr.write(`\rminimising the ${profile} corpus: ${entries.length} scenarios\n`);
  writeCorpus(profile, await minimise(buildCoverage(), profile, entries));
}

const start = performance.now();
buildCoverage();
for (const { what, error } of await replayRegressions()) {
  verdict(error === undefined, `replayed: ${what}${error ? `\n     ${error}` : ''}`);
}
const meter = setInterval(() => showProgress(start), 1000);
const work = Array.from({ length: threads }, async (_, thread) => {
  const results: (Outcome | string)[] = [];
  for (const [index, profile] of profiles.entries()) {
    const share = Math.ceil((packets * shares[profile]!) / threads);
    results.push(await campaign(profile, thread * PROFILES.length + index, share));
  }
  return results;
});
const results = (await Promise.all(work)).flat();
clearInterval(meter);
process.stderr.write('\r');

const outcomes: Outcome[] = [];
for (const result of results) {
  if (typeof result === 'string') {
    verdict(false, result);
    continue;
  }
  outcomes.push(result);
  if (result.finding) verdict(false, result.finding.reason);
}
const taken = new Uint8Array(buildCoverage().branches.length);
for (const outcome of outcomes) outcome.taken.forEach((one, id) => (taken[id]! |= one));
const executed = outcomes.reduce((sum, outcome) => sum + outcome.executions, 0);
const received = outcomes.reduce((sum, outcome) => sum + outcome.packets, 0);
const seconds = (performance.now() - start) / 1000;
console.log(`${executed} scenarios, ${Math.round(executed / seconds)}/s`);
console.log(`${received} packets, ${Math.round(received / seconds)}/s, ${seconds.toFixed(0)} s`);
verdict(
  results.length === outcomes.length && outcomes.every(({ finding }) => !finding),
  'no trap, no hang, no byte changed outside granted memory, no invariant broken',
);
judgeOpcodes(outcomes);
judgeDatagrams();
judgeBranches(taken);
if (updates) {
  for (const [place, profile] of profiles.entries()) {
    const mine = outcomes.filter((_, index) => index % profiles.length === place);
    await updateCorpus(
      profile,
      mine.flatMap(({ corpus }) => [...corpus]),
    );
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
