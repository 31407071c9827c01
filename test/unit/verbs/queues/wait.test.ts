/** Waits for completions have an end: a timeout, or an AbortSignal. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError, RefusalError, SendFlag, WcStatus, WrOpcode } from '../../../../host/index.js';
import { PATIENT, connect, openSide, type Side } from '../../../support/pair.js';

const SIDE = { bytes: 4096, cqe: 256 };
const MILLIS = 30;
const LIMIT_MILLIS = 20_000;

const test = suite('completion queue: wait');
let sides: Side[] = [];

test.after.each(async () => {
  for (const { context } of sides) await context.close();
  sides = [];
});

async function openTwo(progress: 'thread' | 'poll' | 'inline'): Promise<readonly [Side, Side]> {
  const open = (address: string): Promise<Side> => openSide({ address, port: 0, progress }, SIDE);
  const [a, b] = [await open('127.0.84.1'), await open('127.0.84.2')];
  sides = [a, b];
  connect(a.qp, b, 1, 2, PATIENT);
  connect(b.qp, a, 2, 1, PATIENT);
  return [a, b];
}

function write({ qp, mr }: Side, to: Side, wrId: number): void {
  qp.postSend({
    wrId,
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: mr.addr, length: 64, lkey: mr.lkey }],
    rdma: { remoteAddr: to.mr.addr, rkey: to.mr.rkey },
  });
}

const reasonOf = (wait: Promise<unknown>): Promise<unknown> =>
  wait.then(
    () => 'completions',
    (error: unknown) => error,
  );

for (const progress of ['thread', 'poll', 'inline'] as const) {
  test(`${progress}: a wait ends after its timeout, and the next one has the completion`, async () => {
    const [a, b] = await openTwo(progress);
    const late = (await reasonOf(a.cq.wait(1, { timeout: MILLIS }))) as RefusalError;
    assert.instance(late, RefusalError);
    assert.is(late.code, 'ETIMEDOUT');
    assert.match(late.message, `no completion within ${MILLIS} ms`);
    write(a, b, 7);
    const [completion] = await a.cq.wait(1, { timeout: LIMIT_MILLIS });
    assert.equal([completion!.status, Number(completion!.wrId)], [WcStatus.SUCCESS, 7]);
  });

  test(`${progress}: a signal ends its waits alone, before and during them`, async () => {
    const [a, b] = await openTwo(progress);
    const controller = new AbortController();
    const ended = [1, 2].map(() => reasonOf(a.cq.wait(1, { signal: controller.signal })));
    const other = a.cq.wait(1);
    setTimeout(() => controller.abort('enough'), MILLIS);
    assert.equal(await Promise.all(ended), ['enough', 'enough']);
    assert.is(await reasonOf(a.cq.wait(1, { signal: controller.signal })), 'enough');
    write(a, b, 8);
    assert.is(Number((await other)[0]!.wrId), 8);
  });

  test(`${progress}: waits that end while completions arrive lose none`, async () => {
    const [a, b] = await openTwo(progress);
    const taken: number[] = [];
    for (let index = 0; index < 200; index++) {
      write(a, b, index);
      const wait = a.cq.wait(1, { timeout: index % 3 });
      for (const { wrId } of await wait.catch(() => [])) taken.push(Number(wrId));
    }
    while (taken.length < 200) {
      for (const { wrId } of await a.cq.wait(64, { timeout: LIMIT_MILLIS }))
        taken.push(Number(wrId));
    }
    assert.equal(
      taken,
      Array.from({ length: 200 }, (_, index) => index),
    );
  });
}

for (const progress of ['thread', 'poll', 'inline'] as const) {
  test(`${progress}: timers run between waits that find their completion at once`, async () => {
    const side = await openSide({ address: '127.0.84.1', port: 0, progress }, SIDE);
    sides = [side];
    // The queue pair's own partner: requests of one device need no packet.
    connect(side.qp, side, 1, 1, PATIENT);
    let hasRun = false;
    setTimeout(() => (hasRun = true), 1);
    const end = performance.now() + LIMIT_MILLIS;
    while (!hasRun && performance.now() < end) {
      write(side, side, 1);
      await side.cq.wait(1);
    }
    assert.ok(hasRun);
  });
}

test('a wait for no completion, unknown limits and wrong values are misuse', async () => {
  const [a] = await openTwo('inline');
  const wrong: readonly (readonly [unknown, unknown])[] = [
    [0, undefined],
    [-1, undefined],
    [1, { timeOut: 5 }],
    [1, { timeout: -1 }],
    [1, { signal: 'x' }],
    [1, null],
    [1, 5],
  ];
  for (const [count, limits] of wrong) {
    const error = await reasonOf(a.cq.wait(count as never, limits as never));
    assert.instance(error, MisuseError, `${String(count)}, ${JSON.stringify(limits)}`);
  }
});

test.run();
