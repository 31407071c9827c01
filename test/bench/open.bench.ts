/**
 * How long `openDevice` takes over the loopback link, with default limits: in a fresh process,
 * where the engine has to be compiled first, and then again and again in the same one.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createLoopbackPair, openDevice } from '../../host/index.js';
import {
  atMost,
  interleave,
  median,
  medians,
  type Bench,
  type BenchResult,
  type Figures,
  type Pace,
} from './harness.js';

/** Opens per round, after the first. */
const OPENS = 20;

async function openOnce(): Promise<number> {
  const { a } = createLoopbackPair();
  const start = performance.now();
  const context = await openDevice({ link: a });
  const millis = performance.now() - start;
  await context.close();
  return millis;
}

/** In a process of its own: the first open, then the median of the others. */
async function child(): Promise<void> {
  const cold = await openOnce();
  const warm: number[] = [];
  for (let index = 0; index < OPENS; index++) warm.push(await openOnce());
  console.log(JSON.stringify({ open_cold_ms: cold, open_ms: median([cold, ...warm]) }));
}

function freshProcess(): Figures {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [fileURLToPath(import.meta.url), 'child'],
    { encoding: 'utf8' },
  );
  if (status !== 0)
    throw new Error(`the process that opens devices ended with ${status}: ${stderr}`);
  return JSON.parse(stdout) as Figures;
}

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await interleave('open', [freshProcess], pace);
  const figures = medians(rounds);
  return {
    rounds,
    figures,
    bars: [
      atMost('opening a device, median, ms', figures['open_ms']!, 50),
      atMost('opening the first device of a process, ms', figures['open_cold_ms']!, 50),
    ],
  };
}

export const bench: Bench = {
  name: 'open',
  description: 'openDevice over the loopback link, in fresh processes',
  run,
};

if (process.argv[1] === fileURLToPath(import.meta.url) && process.argv[2] === 'child')
  await child();
