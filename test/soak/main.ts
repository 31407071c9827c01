/**
 * Mixed load in four processes, which are killed, stopped, cut off and left without a disk; and the
 * books about it. Ends with `N passed, N failed`.
 *
 *     npm run soak [-- --minutes 15] [--seed N] [--json] [--plot FILE.html]
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Coordinator, MEMBERS, type Soaked } from './coordinator.js';
import { SmallDisk } from './disk.js';
import { settledTrendOf, trendOf, type Trend } from './memory.js';
import { read } from '../support/script.js';
import { plotPage } from './plot.js';
import { words, type SoakOptions } from './words.js';

/** Allowance for memory that may come and go: buffers of the runtime, code that is compiled. */
const GROWTH_BYTES_MAX = 32 * 2 ** 20;
const ENGINE_GROWTH_BYTES_MAX = 2 ** 20;
/** As shells count it: 128 + SIGINT. */
const INTERRUPTED = 130;

/** Each a sentence and whether it is so. */
function judge(soaked: Soaked, rss: Trend, engine: Trend): [sentence: string, holds: boolean][] {
  const { violations, faults, acknowledged } = soaked;
  const [grown, taken] = [rss.after - rss.before, engine.after - engine.before];
  const kills = faults['kill'] ?? 0;
  return [
    [
      `0 lost, nothing twice, no word torn: ${violations.length} violations`,
      violations.length === 0,
    ],
    [
      `${acknowledged} records acknowledged, ${kills} kills survived`,
      acknowledged > 0 && kills > 0,
    ],
    [`resident memory grew by ${kib(grown)} KiB`, grown <= GROWTH_BYTES_MAX],
    [
      Number.isNaN(taken)
        ? "the engine's memory was not compared: it ended before both quiet times had come"
        : `the engine's memory, in quiet times, grew by ${kib(taken)} KiB`,
      taken <= ENGINE_GROWTH_BYTES_MAX,
    ],
  ];
}

const kib = (bytes: number): number => Math.round(bytes / 1024);
const text = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([what, count]) => `${what} ${count}`)
    .join(', ');

async function soak({ minutes, seed, json, plot }: SoakOptions): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), 'verbena-soak-'));
  const disk = new SmallDisk(directory);
  if (disk.missing) console.error(`no full disk: ${disk.missing}`);
  try {
    const coordinator = new Coordinator(directory, seed, disk);
    let isInterrupted = false;
    process.once('SIGINT', () => {
      isInterrupted = true;
      coordinator.stop();
    });
    const isTerminal = process.stderr.isTTY;
    let told = 0;
    const soaked = await coordinator.run(minutes, (seconds) => {
      // A line that changes on a terminal, one every half a minute elsewhere.
      if (!isTerminal && seconds < told + 30) return;
      told = seconds;
      const { acknowledged, violations, faults } = coordinator;
      const books = `${acknowledged} records, ${violations.length} violations`;
      const line = `${seconds.toFixed(0)} of ${minutes * 60} s: ${books}; ${text(faults)}`;
      process.stderr.write(isTerminal ? `\r\x1b[K${line}` : `${line}\n`);
    });
    if (isTerminal) process.stderr.write('\n');
    const [rss, heap, receives] = (['rss', 'heap', 'receives'] as const).map((of) =>
      trendOf(soaked.samples, of),
    ) as [Trend, Trend, Trend];
    const engine = settledTrendOf(soaked.samples, 'engine');
    const memory = { rss, heap, engine, receives };
    const { samples, ...books } = soaked;
    const title = `${MEMBERS} processes, ${minutes} minutes, seed ${seed}`;
    if (plot !== undefined) writeFileSync(plot, plotPage(samples, title));
    const lines = judge(soaked, rss, engine);
    const failed = lines.filter(([, holds]) => !holds).length;
    if (json) {
      console.log(JSON.stringify({ minutes, seed, ...books, memory }));
    } else {
      console.log(`${title}\n  ${text(soaked.counts)}\n  ${text(soaked.faults)}`);
      for (const [name, trend] of Object.entries(memory)) {
        const [before, after] = [trend.before, trend.after].map((bytes) =>
          Number.isNaN(bytes) ? 'not seen' : `${kib(bytes)} KiB`,
        );
        const figures = `${before}, then ${after}`;
        console.log(`  ${name}: ${figures}; ${kib(trend.bytesPerMinute)} KiB a minute`);
      }
      for (const violation of soaked.violations) console.log(`  ${violation}`);
      for (const [sentence, holds] of lines) console.log(`${holds ? 'ok  ' : 'FAIL'} ${sentence}`);
      console.log(`${lines.length - failed} passed, ${failed} failed`);
    }
    if (isInterrupted) return INTERRUPTED;
    return failed === 0 ? 0 : 1;
  } finally {
    disk.remove();
    rmSync(directory, { recursive: true, force: true });
  }
}

process.exitCode = await soak(read<SoakOptions>(words).options);
