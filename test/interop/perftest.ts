/** `verbena perf` with perftest's programs, each as server and as client. */
import assert from 'node:assert/strict';
import type { PerfTest, PerfVerb } from '../../host/cli/perf/options.js';
import type { Ended, Program } from '../support/processes.js';
import type { GuestGroup, Report } from './group.js';
import { cmListening } from './rxe/cm-peer.js';
import type { GuestProgram } from './rxe/guest.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

interface Game {
  readonly verb: PerfVerb;
  readonly test: PerfTest;
  readonly weServe: boolean;
  /** Without: perftest's `-R`, over IPv4. Its version 6.06 has no `-R` over IPv6. */
  readonly tcp?: 'IPv4' | 'IPv6';
  /** For both programs: they take the same letters. */
  readonly words?: string;
}

const PORT = 18515;
const SECONDS_MAX = 90;
/** It looks at its clock first. */
const START_SECONDS = 60;
/** rxe's, of IPv4 and of IPv6. */
const GID_INDEX = { IPv4: 1, IPv6: 2 } as const;
const ITERS = 200;

function wordsOf({ verb, words }: Game): string[] {
  const size = verb === 'atomic' || words?.includes('-s') ? [] : ['-s', '4000'];
  const iters = words?.includes('-D') || words?.includes('-n') ? [] : ['-n', `${ITERS}`];
  return [...size, ...iters, ...(words?.split(' ') ?? [])];
}

function linuxCommand(game: Game, host: string): string {
  const how = game.tcp ? `-x ${GID_INDEX[game.tcp]}` : '-R';
  const command = `ib_${game.verb}_${game.test} ${how} -F ${wordsOf(game).join(' ')} ${host}`;
  // Its complaints land in the middle of a line.
  return `${command} 2>/tmp/complaints || { cat /tmp/complaints; false; }`;
}

/** The rows of numbers that a program has printed, below perftest's columns. */
function rowsOf(output: string, { test }: Game): number[][] {
  const head = test === 'bw' ? /#bytes +#iterations +BW peak/ : /#bytes +#iterations +t_/;
  const lines = output.split('\n');
  const start = lines.findIndex((line) => head.test(line));
  assert.ok(start >= 0, `no columns in:\n${output}`);
  const rows: number[][] = [];
  for (const line of lines.slice(start + 1)) {
    // Its deviation is no number where times were long.
    const cells = line.trim().replace('-nan', '0').split(/\s+/).map(Number);
    if (!cells.every(Number.isFinite)) break;
    rows.push(cells);
  }
  return rows;
}

/** Numbers that measurements have: in order, above 0, and not of another world. */
function assertPlausible(row: readonly number[], game: Game, isLinux: boolean): void {
  const { test, verb } = game;
  const [bytes = 0, iterations = 0, ...figures] = row;
  if (!game.words?.includes('-a')) {
    assert.equal(
      bytes,
      verb === 'atomic' ? 8 : Number(/-s (\d+)/.exec(game.words ?? '')?.[1] ?? 4000),
    );
  }
  assert.ok(iterations > 0, row.join(' '));
  if (test === 'bw') {
    const [peak = NaN, average = 0, rate = 0] = figures;
    // On a busy machine its clock does not calibrate: then all figures are 0.
    if (isLinux && rate === 0) return;
    assert.ok(rate > 0 || bytes > 2 ** 19, row.join(' '));
    // Printed figures have two digits, and six.
    const computed = (rate * 1e6 * bytes) / 2 ** 20;
    const rounding = 0.01 + (0.6 * bytes) / 2 ** 20;
    assert.ok(Math.abs(computed - average) <= rounding, row.join(' '));
    assert.ok(peak === 0 || peak >= average * 0.9, row.join(' '));
  } else if (figures.length === 7) {
    const [least = 0, most = 0, typical = 0, average = 0, , p99 = 0, p999 = 0] = figures;
    assert.ok(least > 1 && least <= typical && typical <= p99 && p99 <= p999, row.join(' '));
    assert.ok(average >= least && most < 10e6, row.join(' '));
  } else assert.equal(figures.length, 2, row.join(' '));
}

async function start(lab: Lab, game: Game): Promise<{ ours: Program; linux: GuestProgram }> {
  const { guest } = lab;
  const { tcp } = game;
  const us = tcp === 'IPv6' ? lab.ipv6 : lab.ipv4;
  const exchange = tcp ? ['--exchange', 'tcp'] : ['--perftest'];
  const words = ['perf', game.verb, game.test, ...exchange, '--bind', us, ...wordsOf(game)];
  if (game.weServe) {
    const ours = lab.verbena(...words);
    await ours.printed('stdout', /Waiting for client/);
    return { ours, linux: guest.spawn(linuxCommand(game, lab.ipv4)) };
  }
  const linux = guest.spawn(linuxCommand(game, ''));
  try {
    await (tcp ? guest.listening(PORT, START_SECONDS) : cmListening(guest, PORT, START_SECONDS));
  } catch (error) {
    // The next one wants its port.
    await linux.stop();
    throw new Error(`${(error as Error).message}\n${linux.output}`);
  }
  // perftest talks TCP over IPv4 only, whatever the packets are.
  return { ours: lab.verbena(...words, guest.ipv4), linux };
}

/** Plays to the end; returns what our side measured. */
async function play(lab: Lab, game: Game): Promise<string> {
  const { ours, linux } = await start(lab, game);
  try {
    const output = linux.finished(SECONDS_MAX);
    const [mine, theirs] = await Promise.all([ours.ended, output]).catch(async (error: Error) => {
      ours.kill();
      const { stdout, stderr } = await ours.ended;
      throw new Error(`${error.message}\nours:\n${stdout}${stderr}`);
    });
    return assertDone(mine, theirs, game);
  } finally {
    ours.kill();
    await linux.stop();
  }
}

function assertDone({ code, stdout, stderr }: Ended, theirs: string, game: Game): string {
  assert.equal(stderr, '');
  assert.equal(code, 0);
  const isPassive = game.test === 'lat' && (game.verb === 'read' || game.verb === 'atomic');
  const ourRows = isPassive && game.weServe ? [] : rowsOf(stdout, game);
  const theirRows = isPassive && !game.weServe ? [] : rowsOf(theirs, game);
  const count = game.words?.includes('-a') ? 23 : 1;
  if (!(isPassive && game.weServe)) assert.equal(ourRows.length, count, stdout);
  if (!(isPassive && !game.weServe)) assert.ok(theirRows.length > 0, theirs);
  for (const row of ourRows) assertPlausible(row, game, game.weServe);
  for (const row of theirRows) assertPlausible(row, game, true);
  const last = (ourRows.length > 0 ? ourRows : theirRows).at(-1)!;
  return game.test === 'bw' ? `${last[3]} MiB/s` : `${last[4] ?? last[2]} us`;
}

function describe(game: Game): string {
  const program = `ib_${game.verb}_${game.test} ${game.tcp ? `-x ${GID_INDEX[game.tcp]}` : '-R'}`;
  const roles = game.weServe ? 'Linux to Verbena' : 'Verbena to Linux';
  return [`${program}:`, roles, ...(game.words ? [game.words] : [])].join(' ');
}

async function playAll(report: Report, lab: Lab, games: readonly Omit<Game, 'weServe'>[]) {
  for (const game of games) {
    for (const weServe of [false, true]) {
      await report.check(describe({ ...game, weServe }), async () => {
        report.note(await play(lab, { ...game, weServe }));
      });
    }
  }
}

const PROGRAMS = (['write', 'read', 'send', 'atomic'] as const).flatMap((verb) =>
  (['bw', 'lat'] as const).map((test) => ({ verb, test })),
);

/** Further games of perftest. */
const VARIATIONS: readonly Omit<Game, 'weServe'>[] = [
  { verb: 'write', test: 'bw', words: '-s 65536 -q 4' },
  { verb: 'write', test: 'bw', words: '-b' },
  { verb: 'read', test: 'bw', words: '-b -o 4' },
  { verb: 'send', test: 'bw', words: '-b' },
  { verb: 'write', test: 'bw', words: '-D 2' },
  { verb: 'send', test: 'bw', words: '-a -n 5' },
  { verb: 'read', test: 'lat', words: '-e' },
  { verb: 'send', test: 'bw', words: '-c UD -s 1024 -r 512' },
  { verb: 'send', test: 'lat', words: '-c UD -s 64' },
];

export const perftestGroup: GuestGroup = {
  name: 'perftest',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await playAll(report, lab, PROGRAMS);
    await playAll(report, lab, VARIATIONS);
    for (const tcp of ['IPv4', 'IPv6'] as const) {
      await playAll(
        report,
        lab,
        PROGRAMS.map((program) => ({ ...program, tcp })),
      );
      await playAll(report, lab, [{ verb: 'write', test: 'lat', tcp, words: '-c UC' }]);
    }
  },
};
