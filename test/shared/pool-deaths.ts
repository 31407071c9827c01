/**
 * Processes that take regions of one pool, register and invalidate them, and are killed at random
 * moments: the pool has all of them back, and none of their keys opens anything.
 *
 *     node build/test/shared/pool-deaths.js [--rounds 300] [--members 3] [--seed 1]
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type * as verbena from '../../host/index.js';
import { createFmrPool, fmrPools, type Context } from '../../host/index.js';
import type { Member } from '../support/member.js';
import { runDeaths, type DeathReport } from './deaths.js';

const ULP = 'deaths';
const PARAMS = { ulp: ULP, maxLength: 4096, mrsMax: 256, mrsMin: 32, idleMicros: 5000 };

async function usePool(member: Member): Promise<void> {
  await member.run(({ context, verbena, kept }, params) => {
    const { AccessFlag, SendFlag, WrOpcode } = verbena;
    const access = AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE;
    const memory = context.alloc(4096);
    const pool = verbena.createFmrPool(context, undefined, params);
    const users = [4, 0, 0].map((numMr) => pool.createUser(numMr));
    const tally = { changes: 0, isIdle: false };
    Object.assign(kept, { tally });
    const held: [(typeof users)[0], verbena.FmrDesc][] = [];
    const registerOnce = (desc: verbena.FmrDesc): void => {
      const regMr = desc.regMr(memory, access);
      kept.qp.postSend([
        { opcode: WrOpcode.REG_MR, sendFlags: 0, regMr },
        {
          opcode: WrOpcode.LOCAL_INV,
          sendFlags: SendFlag.SIGNALED,
          invalidateRkey: regMr.key,
        },
      ]);
      for (let seen = 0; seen === 0;) {
        for (const { status } of kept.cq.poll(4)) {
          if (status !== 0) throw new Error(`a registration ended with ${status}`);
          seen++;
        }
      }
    };
    const turn = (): void => {
      if (tally.isIdle) return void setTimeout(turn, 1);
      for (let step = 0; step < 200; step++) {
        const user = users[tally.changes % 3]!;
        const desc = user.getMr();
        if (desc) held.push([user, desc]);
        if (desc && step % 5 === 0) registerOnce(desc);
        if (held.length > 24 || !desc) {
          for (const [owner, one] of held.splice(0, held.length - (tally.changes % 7))) {
            owner.putMr(one);
          }
        }
        tally.changes++;
      }
      setImmediate(turn);
    };
    setImmediate(turn);
  }, PARAMS);
}

/** All of the pool, one after the other. */
function lookThrough(watcher: Context): string[] {
  const pool = fmrPools(watcher).get(ULP)!;
  const wrong: string[] = [];
  const { total, users } = pool.stats;
  if (users !== 0) wrong.push(`${users} users of the dead`);
  const user = pool.createUser(0);
  const all = new Set<number>();
  for (let desc = user.getMr(); desc; desc = user.getMr()) {
    if (all.has(desc.rkey >>> 8)) wrong.push('a region is in two hands');
    all.add(desc.rkey >>> 8);
    if (desc.mr.registered) wrong.push('a region of the dead is registered');
  }
  if (all.size !== total) wrong.push(`${all.size} of ${total} regions are there`);
  return wrong;
}

export function runPoolDeaths(
  options: Omit<Parameters<typeof runDeaths>[0], 'work' | 'before' | 'after'>,
): Promise<DeathReport> {
  return runDeaths({
    ...options,
    work: usePool,
    before: (watcher) => void createFmrPool(watcher, undefined, PARAMS),
    after: lookThrough,
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '300' },
      members: { type: 'string', default: '3' },
      seed: { type: 'string', default: '1' },
    },
  });
  const report = await runPoolDeaths({
    rounds: Number(values.rounds),
    members: Number(values.members),
    seed: Number(values.seed),
    address: '127.1.77.2',
  });
  for (const sentence of report.wrong) console.log(sentence);
  const { rounds, wrong, changes } = report;
  console.log(`${changes} regions taken and given back by those that lived last`);
  console.log(`${rounds - wrong.length} passed, ${wrong.length} failed`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
}
