/**
 * The local path and processes that are stopped: a requester in the middle of a copy, a target with
 * a full channel, a target that ends while messages wait for it.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { WrOpcode } from '../../host/index.js';
import {
  expect,
  join,
  localRequests,
  open,
  received,
  requests,
  type Told,
} from '../support/local-sides.js';
import { freshName, withMembers, type Member } from '../support/member.js';
import { sample } from '../support/sample.js';
import { until } from '../support/until.js';

const named = () => ({
  name: freshName(),
  address: '127.1.7.3',
  memoryBytes: 16 * 2 ** 20,
  localMemoryBytes: 32 * 2 ** 20,
});

/** Long enough that a stopped process stands in a copy most of the time. */
const COPY_BYTES = 512 * 1024;

/** Stops the process; it stands still when this resolves. */
async function stop(member: Member): Promise<void> {
  member.kill('SIGSTOP');
  await until(() => / T \d/.test(readFileSync(`/proc/${member.pid}/stat`, 'utf8')));
}

/** WRITEs of COPY_BYTES of the process to `target`, without a pause. The status that ends them. */
function flood(member: Member, target: Told): Promise<string> {
  return member.run(
    async ({ context, kept, verbena, pair }, { addr, rkey }, length) => {
      kept.memory = context.alloc(length).fill(0xee);
      const mr = kept.pd.regMr(kept.memory, pair.ALL_ACCESS);
      const sgList = [{ addr: mr.addr, length, lkey: mr.lkey }];
      const request = {
        opcode: verbena.WrOpcode.RDMA_WRITE,
        sendFlags: verbena.SendFlag.SIGNALED,
        sgList,
        rdma: { remoteAddr: addr, rkey },
      };
      const posted = Array.from({ length: 16 }, () => request);
      let status = 0;
      while (status === 0) {
        kept.qp.postSend(posted);
        for (let left = posted.length; left > 0;) {
          for (const wc of await kept.cq.wait(left)) {
            left--;
            status ||= wc.status;
          }
        }
      }
      mr.dereg();
      context.free(kept.memory);
      return verbena.WcStatusName[status]!;
    },
    target,
    COPY_BYTES,
  );
}

/** New memory of the process that the other one floods; resolves when bytes arrive. */
async function floodInto(
  a: Member,
  b: Member,
  retryCnt: number,
): Promise<{ readonly ended: Promise<string>; readonly one: Told }> {
  const one = await open(a);
  const other = await open(b);
  await join(b, one);
  await join(a, other, retryCnt);
  const target = await b.run(({ context, kept, pair }, length) => {
    kept.memory = context.alloc(length).fill(0);
    kept.mr = kept.pd.regMr(kept.memory, pair.ALL_ACCESS);
    return { addr: Number(kept.mr.addr), rkey: kept.mr.rkey };
  }, COPY_BYTES);
  const ended = flood(a, { ...other, ...target });
  const last = () => b.run(({ kept }) => kept.memory.at(-1));
  await until(async () => (await last()) === 0xee);
  return { ended, one };
}

type End = 'dereg' | 'RESET' | 'ERR' | 'destroy';

interface Ended {
  readonly millis: number;
  /** Of the refusal of the verb. */
  readonly code: string | undefined;
}

/** The verb in the process of the target, and how long it took there. */
function end(member: Member, verb: End): Promise<Ended> {
  return member.run(({ kept, verbena }, verb) => {
    const start = performance.now();
    let code: string | undefined;
    try {
      if (verb === 'dereg') kept.mr.dereg();
      else if (verb === 'destroy') kept.qp.destroy();
      else kept.qp.modify({ qpState: verbena.QpState[verb] });
    } catch (error) {
      ({ code } = error as { code?: string });
    }
    return { millis: performance.now() - start, code };
  }, verb);
}

/** Frees the memory, takes it again, and looks whether bytes arrive there. */
function reuse(member: Member): Promise<boolean> {
  return member.run(async ({ context, kept }, length) => {
    const at = kept.memory.byteOffset;
    context.free(kept.memory);
    kept.memory = context.alloc(length).fill(0x5a);
    if (kept.memory.byteOffset !== at) throw new Error('other memory');
    for (let look = 0; look < 20; look++) {
      await new Promise((resolve) => setTimeout(resolve, 2));
      if (kept.memory.some((byte) => byte !== 0x5a)) return false;
    }
    context.free(kept.memory);
    return true;
  }, COPY_BYTES);
}

/** Milliseconds: a verb waits some 200 for a process that stands still in its call. */
const [WAITED, BOUND] = [50, 3000];
const [ROUNDS, COPIES] = sample([10, 1], [30, 5]);

/** The queue pair serves again, and is reset: the shortest of three times. */
async function resetAgain(member: Member, peer: Told): Promise<number> {
  let least = Infinity;
  for (let turn = 0; turn < 3; turn++) {
    await join(member, peer);
    least = Math.min(least, (await end(member, 'RESET')).millis);
  }
  return least;
}

for (const verb of ['RESET', 'ERR', 'destroy'] as const) {
  test(`a requester that is stopped in a copy: ${verb} of its target waits once, and its memory is not free before`, () =>
    withMembers(2, named(), async (a, b) => {
      let inCopy = 0;
      for (let round = 0; round < ROUNDS && inCopy < COPIES; round++) {
        const { ended, one } = await floodInto(a!, b!, 0);
        await sleep(round % 3);
        await stop(a!);
        const { millis, code } = await end(b!, verb);
        assert.is(code, undefined);
        assert.ok(millis < BOUND, `${millis} ms`);
        if (millis > WAITED) {
          inCopy++;
          if (verb === 'RESET')
            assert.ok((await resetAgain(b!, one)) < WAITED, 'once, by all verbs');
        }
        // The process goes on while the region is being deregistered, which waits for it.
        const released = end(b!, 'dereg');
        await sleep(20);
        a!.kill('SIGCONT');
        assert.is((await released).code, undefined);
        assert.is(await reuse(b!), true, `round ${round}`);
        assert.is(await ended, 'RETRY_EXC_ERR');
      }
      assert.ok(inCopy > 0, 'it was stopped in a copy');
    }));
}

test('a requester that is stopped in a copy: dereg is refused, and succeeds when it has gone on', () =>
  withMembers(2, named(), async (a, b) => {
    let inCopy = 0;
    for (let round = 0; round < ROUNDS && inCopy === 0; round++) {
      // Its timer may be due when it goes on: 5 s have passed in its call.
      const { ended } = await floodInto(a!, b!, 7);
      await stop(a!);
      const { code } = await end(b!, 'dereg');
      if (code !== undefined) {
        assert.is(code, 'EBUSY');
        inCopy++;
        const freed = await b!.run(({ context, kept }) => {
          try {
            context.free(kept.memory);
          } catch (error) {
            return (error as { code?: string }).code;
          }
        });
        assert.is(freed, 'EBUSY', 'its memory is not free');
      }
      a!.kill('SIGCONT');
      if (code !== undefined) assert.is((await end(b!, 'dereg')).code, undefined);
      assert.is(await reuse(b!), true, `round ${round}`);
      assert.is(await ended, 'REM_ACCESS_ERR');
    }
    assert.ok(inCopy > 0, 'it was stopped in a copy');
  }));

/** SENDs of the process in one post, whose numbers are their bytes; their completions. */
function burst(member: Member, count: number): Promise<string[]> {
  return member.run(async ({ kept, verbena }, count) => {
    const { addr, lkey } = kept.mr;
    const posted = Array.from({ length: count }, (_, wrId) => {
      kept.memory.fill(wrId, 8 * wrId, 8 * wrId + 8);
      const sgList = [{ addr: addr + BigInt(8 * wrId), length: 8, lkey }];
      const { SEND } = verbena.WrOpcode;
      return { wrId, opcode: SEND, sendFlags: verbena.SendFlag.SIGNALED, sgList };
    });
    kept.qp.postSend(posted);
    const seen: string[] = [];
    while (seen.length < count) {
      for (const { wrId, status } of await kept.cq.wait()) {
        seen.push(`${wrId} ${verbena.WcStatusName[status]}`);
      }
    }
    return seen;
  }, count);
}

/** More than a channel has places. */
const MESSAGES = 40;
const numbered = (name: string): string[] =>
  Array.from({ length: MESSAGES }, (_, wrId) => `${wrId} ${name}`);

for (const [title, millis] of [
  ['less than the timeout', 20],
  ['longer than the timeout', 700],
] as const) {
  test(`a full channel to a process that is stopped for ${title}: each SEND arrives once, and later ones need no packet`, () =>
    withMembers(2, named(), async (a, b) => {
      const [one, other] = [await open(a!), await open(b!)];
      await join(b!, one);
      await join(a!, other, 7);
      await expect(b!, MESSAGES);
      await stop(b!);
      const sent = burst(a!, MESSAGES);
      await sleep(millis);
      b!.kill('SIGCONT');
      assert.equal(await sent, numbered('SUCCESS'));
      assert.is(await received(b!, MESSAGES), MESSAGES);
      const bytes = await b!.run(({ kept }) => [...kept.memory.subarray(0, 64 * 32)]);
      const first = bytes.filter((_, at) => at % 64 === 0);
      // The last eight receive requests use the places of the first eight.
      const places = Array.from({ length: 32 }, (_, place) => (place < 8 ? 32 + place : place));
      assert.equal(first, places);
      const before = await localRequests(a!);
      for (let turn = 0; turn < 4; turn++) {
        await expect(b!, 50);
        const got = received(b!, 50);
        assert.equal(await requests(a!, other, WrOpcode.SEND, 50), ['SUCCESS']);
        assert.is(await got, 50);
      }
      const local = (await localRequests(a!)) - before;
      assert.ok(local >= 190, `${local} of 200 by the local path`);
      assert.is(await b!.run(({ kept }) => kept.cq.poll(10).length), 0);
    }));
}

for (const verb of ['RESET', 'ERR', 'destroy'] as const) {
  test(`a target that is changed by ${verb} while messages are in its channel: none is executed, and retries end`, () =>
    withMembers(2, { ...named(), progress: 'poll' }, async (a, b) => {
      const [one, other] = [await open(a!), await open(b!)];
      await join(b!, one);
      await join(a!, other);
      await expect(b!, MESSAGES);
      // Its engine does not run: what is posted meanwhile is in the channel when it ends.
      const ended = b!.run(({ kept, verbena }, verb) => {
        kept.memory.fill(0xee);
        const start = performance.now();
        while (performance.now() - start < 150);
        if (verb === 'destroy') kept.qp.destroy();
        else kept.qp.modify({ qpState: verbena.QpState[verb] });
      }, verb);
      await sleep(20);
      const sent = burst(a!, MESSAGES);
      await ended;
      const flushed = numbered('WR_FLUSH_ERR');
      assert.equal(await sent, ['0 RETRY_EXC_ERR', ...flushed.slice(1)]);
      assert.is(await localRequests(a!), 0);
      const statuses = await b!.run(({ kept, verbena }) => {
        const names = kept.cq.poll(100).map(({ status }) => verbena.WcStatusName[status]);
        return { names, isUntouched: kept.memory.every((byte) => byte === 0xee) };
      });
      const receives = verb === 'ERR' ? Array(MESSAGES).fill('WR_FLUSH_ERR') : [];
      assert.equal(statuses, { names: receives, isUntouched: true });
      // Both connect anew, and messages are executed.
      const [two, three] = [await open(a!), await open(b!)];
      await join(b!, two);
      await join(a!, three, 7);
      await expect(b!, MESSAGES);
      assert.equal(await burst(a!, MESSAGES), numbered('SUCCESS'));
      assert.is(await localRequests(a!), MESSAGES);
    }));
}

for (const verb of ['RESET', 'destroy'] as const) {
  test(`a target that is changed by ${verb} while its engine takes messages: a part succeeds, and no later one`, () =>
    withMembers(2, named(), async (a, b) => {
      for (let round = 0; round < sample(4, 30); round++) {
        const [one, other] = [await open(a!), await open(b!)];
        await join(b!, one);
        await join(a!, other, 0);
        await expect(b!, 100);
        await stop(b!);
        const sent = burst(a!, 100);
        const ended = end(b!, verb);
        await sleep(round % 2 === 0 ? 5 : 0);
        b!.kill('SIGCONT');
        assert.is((await ended).code, undefined);
        const statuses = (await sent).map((one) => one.replace(/^\d+ /, ''));
        const taken = statuses.filter((status) => status === 'SUCCESS').length;
        const failed = ['RETRY_EXC_ERR', ...Array<string>(100).fill('WR_FLUSH_ERR')];
        const expected = [...Array<string>(taken).fill('SUCCESS'), ...failed].slice(0, 100);
        assert.equal(statuses, expected, `round ${round}`);
      }
    }));
}

test.run();
