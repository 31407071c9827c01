/**
 * READs of 64 bytes, one every 20 ms, over a link that loses packets: the program of the demo’s act
 * about loss, in virtual time. Retransmission back-off must not add up over the READs that follow.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { faultLink, SendFlag, WcStatus, WrOpcode } from '../../../host/index.js';
import { Latencies } from '../../../host/demo/latencies.js';
import { makePair, type Pair } from '../../support/pair.js';

const MESSAGES = 250;
const EVERY_MICROS = 20_000;
const TRIP_MICROS_MAX = 1000;
const RUNS = 8;

function lossyPair(loss: number, seed: number): Promise<Pair> {
  return makePair({
    acquainted: true,
    reorderPackets: 1024,
    attributes: { timeout: 17, retryCnt: 7 },
    wrap: (link, side, clock) =>
      faultLink(link, {
        seed: 2 * seed + (side === 'a' ? 0 : 1),
        loss,
        delay: 1,
        delayMicrosMax: TRIP_MICROS_MAX,
        scheduler: { schedule: (micros, action) => clock.at(clock.now() + micros, action) },
      }),
  });
}

/** Milliseconds of each READ, from its post to its completion. */
async function readMillis(loss: number, seed: number): Promise<number[]> {
  const pair = await lossyPair(loss, seed);
  const { a, b, clock } = pair;
  const [starts, millis]: [number[], number[]] = [[], []];
  const take = (): void => {
    for (const { status } of a.cq.poll(64)) {
      assert.is(status, WcStatus.SUCCESS);
      millis.push((clock.now() - starts[millis.length]!) / 1000);
    }
  };
  for (let at = clock.now(); starts.length < MESSAGES; at += EVERY_MICROS) {
    starts.push(clock.now());
    a.qp.postSend({
      opcode: WrOpcode.RDMA_READ,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: a.mr.addr, length: 64, lkey: a.mr.lkey }],
      rdma: { remoteAddr: b.mr.addr, rkey: b.mr.rkey },
    });
    clock.at(at + EVERY_MICROS, () => undefined);
    pair.run(() => (take(), clock.now() >= at + EVERY_MICROS));
  }
  pair.run(() => (take(), millis.length === MESSAGES));
  await pair.close();
  return millis;
}

for (const [percent, p50Max, longestMax] of [
  [1, 2, 100],
  [10, 5, 500],
  [20, 20, 1000],
] as const) {
  test(`at ${percent} % loss half of the READs take ${p50Max} ms at most, none ${longestMax} ms`, async () => {
    for (let seed = 1; seed <= RUNS; seed++) {
      const latencies = new Latencies();
      const millis = await readMillis(percent / 100, seed);
      for (const one of millis) latencies.add(one);
      const p50 = latencies.quantile(0.5);
      assert.ok(p50 <= p50Max, `seed ${seed}: p50 ${p50} ms`);
      assert.ok(Math.max(...millis) < longestMax, `seed ${seed}: ${Math.max(...millis)} ms`);
    }
  });
}

test('the quantile of few values is a value that this share does not exceed', () => {
  const latencies = new Latencies();
  assert.ok(Number.isNaN(latencies.quantile(0.5)));
  latencies.add(1744);
  assert.is(latencies.quantile(0.5), 1744);
  latencies.add(2);
  assert.is(latencies.quantile(0.5), 2);
  assert.is(latencies.quantile(0.99), 1744);
});

test.run();
