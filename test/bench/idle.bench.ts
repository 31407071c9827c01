/**
 * Cost of a connected device while it is idle: two processes, a thread each, some traffic first, so
 * that timers and wake-ups have been in use.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { atMost, interleave, medians } from './harness.js';
import type { Bench, BenchResult, Figures, Pace } from './harness.js';
import { FlowWatch } from './flow.js';
import { openBoth } from './stack.js';

const SECONDS = 5;
const SETTLE_MILLIS = 500;
const MESSAGES = 200;
const BYTES = 64;

async function idle(seconds: number): Promise<Figures> {
  const both = await openBoth({ progress: 'thread', bytes: 65536, echo: BYTES, waits: true });
  const { end, partner } = both;
  for (let message = 0; message < MESSAGES; message++) {
    end.receive(BYTES);
    end.send(BYTES);
    while ((await end.received()).length === 0);
  }
  await pause(SETTLE_MILLIS);
  const watch = new FlowWatch(partner);
  await pause(seconds * 1000);
  const spent = watch.read();
  const again = Number(end.context.counters().retransmittedPkts);
  await both.close();
  return {
    idle_initiator_cpu_percent: (100 * spent.initiatorCpuSeconds) / spent.seconds,
    idle_target_cpu_percent: (100 * spent.targetCpuSeconds) / spent.seconds,
    idle_packets_sent_again: again,
  };
}

async function run(pace: Pace): Promise<BenchResult> {
  const rounds = await interleave('idle', [() => idle(SECONDS * pace.share)], pace);
  const figures = medians(rounds);
  return {
    rounds,
    figures,
    bars: ['initiator', 'target'].map((side) => {
      const value = figures[`idle_${side}_cpu_percent`]!;
      return atMost(`idle, processor time of the ${side} process, percent`, value, 1);
    }),
  };
}

export const bench: Bench = {
  name: 'idle',
  description: 'two connected processes, a thread each, nothing to do: processor time',
  run,
};
