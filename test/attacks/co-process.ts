/**
 * A hostile process of a shared device: it has the arena mapped, and writes what it likes. What is
 * promised: the other processes neither trap nor hang, and touch no memory outside of the arena.
 */
import * as assert from 'uvu/assert';
import { freshName, Member } from '../support/member.js';
import type * as AbiModule from '#build/abi.js';
import type * as StructModule from '../../host/engine/struct.js';
import type { Attack } from './attack.js';

const ROUNDS = 40;
const ANSWER_MILLIS = 20_000;

/** Verbs of a program of the device; resolves to the number of calls that were refused. */
function exercise(member: Member): Promise<number> {
  return member.run(({ verbena, context }) => {
    let refused = 0;
    const attempt = (work: () => void): void => {
      try {
        work();
      } catch (error) {
        if (!(error instanceof verbena.VerbenaError)) throw error;
        refused++;
      }
    };
    attempt(() => context.free(context.alloc(1000)));
    attempt(() => {
      const pd = context.allocPd();
      attempt(() => void pd.allocShpd(1));
      attempt(() => pd.regMr(context.alloc(64), verbena.AccessFlag.LOCAL_WRITE).dereg());
      const cq = context.createCq(4);
      attempt(() => pd.createQp({ sendCq: cq, recvCq: cq }).destroy());
      attempt(() => pd.dealloc());
      cq.destroy();
    });
    attempt(() => void context.importPd(65537));
    return refused;
  });
}

/** Writes random words over the tables of the arena: a few at first, many in the end. */
function scribble(member: Member, round: number): Promise<number> {
  return member.run(async ({ context, load }, turn) => {
    const { ArenaLayout } = (await load('build/abi.js')) as typeof AbiModule;
    const { structAt } = (await load('build/host/engine/struct.js')) as typeof StructModule;
    const { arena } = context.device;
    const tables = structAt(arena.memory, ArenaLayout, arena.address);
    const { contextSlots, protectionDomains, attachments, keys, keyNotes, blocks } = tables;
    const { services, inboxes, steering, state } = tables;
    const starts = [contextSlots, protectionDomains, attachments, keys, keyNotes, blocks];
    starts.push(services, inboxes, steering, state);
    const { words } = arena.memory;
    const below = (count: number): number => Math.floor(Math.random() * count);
    const count = Math.ceil(1.3 ** turn);
    for (let index = 0; index < count; index++) {
      const at = starts[below(starts.length)]! + 4 * below(4 ** below(8));
      words[at >> 2] = Math.random() * 2 ** 32;
    }
    return count;
  }, round);
}

async function within<T>(promise: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: no answer`)), ANSWER_MILLIS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export const CO_PROCESS_ATTACKS: readonly Attack[] = [
  {
    name: 'a process that overwrites the tables of a shared device traps and hangs no other one',
    position: 'co-process',
    unit: 'words',
    async run() {
      const options = { name: freshName(), address: '127.1.32.9', memoryBytes: 8 * 2 ** 20 };
      const members: Member[] = [];
      let [words, refused] = [0, 0];
      try {
        for (let count = 0; count < 3; count++) members.push(await Member.open(options));
        const [hostile, ...others] = members as [Member, Member, Member];
        for (let round = 0; round < ROUNDS; round++) {
          words += await scribble(hostile, round);
          for (const other of others) {
            refused += await within(exercise(other), `round ${round}`);
            const isAlive = await within(
              other.run(({ context }) => String(context.failure)),
              `round ${round}`,
            );
            assert.type(isAlive, 'string');
          }
        }
        assert.ok(refused > 0, 'calls that were refused');
        return words;
      } finally {
        for (const member of members) {
          member.kill();
          await member.ended;
        }
      }
    },
  },
];
