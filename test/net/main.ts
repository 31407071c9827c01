/**
 * Networks with delay, loss, reordering and queues: our streams and files beside TCP.
 *
 *     npm run -s build && npm run -s net -- all [--rounds 3] [--html build/net.html] [--json]
 *
 * Ends with `N passed, M failed`: the bars. Needs root; without, nothing runs, and the code is 1.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { timerMillis } from '../../host/base/timer.js';
import { median, type Figures } from '../bench/harness.js';
import { read } from '../support/script.js';
import { Network, missingForNetwork } from './network.js';
import type { Outcome } from './outcome.js';
import { netPage } from './page.js';
import type { Round, Scenario } from './scenario.js';
import { SCENARIOS } from './scenarios.js';
import { ALL, words, type NetOptions } from './words.js';

/** Of one round with all its loads: the longest takes two minutes. */
const ROUND_SECONDS_MAX = 400;

const { options, names } = read<NetOptions>(words);

/** One round in a network of its own. Rejects also when it does not end. */
async function runRound(scenario: Scenario, isFirst: boolean): Promise<Round> {
  const network = await Network.open(scenario.hosts);
  let timer: NodeJS.Timeout | undefined;
  try {
    const late = new Promise<never>((_, reject) => {
      const rule = `the round did not end within ${ROUND_SECONDS_MAX} s`;
      timer = setTimeout(() => reject(new Error(rule)), timerMillis(ROUND_SECONDS_MAX * 1000));
    });
    return await Promise.race([scenario.run(network, isFirst), late]);
  } finally {
    clearTimeout(timer);
    await network.close();
  }
}

async function measure(scenario: Scenario): Promise<Outcome> {
  const rounds: Round[] = [];
  const errors: string[] = [];
  // Of a load that failed while nothing awaited it: that scenario fails, and the next one begins.
  const stray = (error: unknown): void => void errors.push(`stray: ${(error as Error).message}`);
  process.on('unhandledRejection', stray);
  for (let round = 1; round <= options.rounds; round++) {
    process.stderr.write(`${scenario.name}: round ${round} of ${options.rounds}\n`);
    try {
      const result = await runRound(scenario, round === 1);
      rounds.push(result);
      errors.push(...result.errors);
    } catch (error) {
      errors.push(`round ${round} failed: ${(error as Error).message}`);
    }
  }
  process.off('unhandledRejection', stray);
  const isWhole = rounds.length === options.rounds && !errors.some((text) => /^stray/.test(text));
  const figures: Figures = {};
  for (const figure of new Set(rounds.flatMap((each) => Object.keys(each.figures)))) {
    // Yardsticks are measured in the first round.
    figures[figure] = median(rounds.flatMap((each) => each.figures[figure] ?? []));
  }
  const notes = [...new Set(rounds.flatMap((each) => each.notes ?? []))];
  const judged = scenario.demands.map((demand) => {
    const { figure, atLeast = -Infinity, atMost = Infinity } = demand;
    const value = figures[figure] ?? NaN;
    return { ...demand, value, ok: isWhole && value >= atLeast && value <= atMost };
  });
  return { scenario, figures, judged, rounds, errors, notes };
}

function print({ scenario, figures, judged, errors, notes }: Outcome): void {
  const { name, link } = scenario;
  if (options.json) {
    return console.log(JSON.stringify({ name, link, figures, judged, errors, notes }));
  }
  const { rate, rtt, queue } = link;
  console.log(`${name}: ${rate} Mbit/s, ${rtt} ms, queue of ${queue} packets`);
  for (const [figure, value] of Object.entries(figures)) {
    console.log(`  ${figure.padEnd(34)} ${value.toPrecision(4)}`);
  }
  for (const { figure, value, ok, ...limits } of judged) {
    const { atLeast, atMost } = limits;
    const least = atLeast === undefined ? '' : ` at least ${atLeast}`;
    const most = atMost === undefined ? '' : ` at most ${atMost}`;
    console.log(`  ${ok ? 'ok  ' : 'FAIL'} ${figure}: ${value.toPrecision(4)},${least}${most}`);
  }
  for (const sentence of new Set([...errors, ...notes])) console.log(`  ${sentence}`);
}

/** The yardstick of most networks: without it their bars would have no figure. */
function missingYardstick(): string | undefined {
  const { error } = spawnSync('iperf3', ['--version'], { stdio: 'ignore' });
  return error && 'needs iperf3: apt-get install iperf3';
}

const missing = missingForNetwork() ?? missingYardstick();
if (missing !== undefined) {
  console.error(`npm run net: ${missing}`);
  process.exit(1);
}
const wanted = SCENARIOS.filter(({ name }) => names.includes(ALL) || names.includes(name));
const outcomes: Outcome[] = [];
for (const scenario of wanted) {
  const outcome = await measure(scenario);
  outcomes.push(outcome);
  print(outcome);
}
if (options.html !== undefined) writeFileSync(options.html, netPage(outcomes));
const judged = outcomes.flatMap((outcome) => outcome.judged);
const failed = judged.filter(({ ok }) => !ok).length;
console.log(`${judged.length - failed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
