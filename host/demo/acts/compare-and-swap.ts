/** Several queue pairs count in one word of the other's memory, by compare and swap. */
import { SendFlag, WrOpcode } from '../../verbs/enums.js';
import { at, check, type End } from '../private-data.js';
import { Word, readWord } from '../memory-layout.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import { counted, type Act, type Stage } from './act.js';

const CONTENDERS = 4;
const TURNS = 25;
const WORD_BYTES = 8;

interface Contender {
  readonly end: End;
  readonly region: MemoryRegion;
  lost: number;
}

export const compareAndSwap: Act = {
  id: 'compare-and-swap',
  title: 'Count together',
  sentence:
    'Shows atomics: four connections count in one word of the peer’s memory by compare and swap. ' +
    'No count is lost, and the peer’s program takes no part.',
  async play(stage) {
    const { endpoint, session } = stage;
    const contenders = await Promise.all(
      Array.from({ length: CONTENDERS }, async (): Promise<Contender> => {
        const end = await endpoint.spare(session.peer);
        return { end, region: endpoint.scratch(WORD_BYTES), lost: 0 };
      }),
    );
    try {
      return await contend(stage, contenders);
    } finally {
      for (const { end, region } of contenders) {
        await end.connection.close();
        region.dereg();
        endpoint.context.free(region.buffer);
      }
    }
  },
};

async function contend({ session, say }: Stage, contenders: readonly Contender[]) {
  await session.refresh();
  const before = session.view.word(Word.CELL);
  say(`The word holds ${before}; ${CONTENDERS} count to ${before + CONTENDERS * TURNS}.`);
  const start = performance.now();
  await Promise.all(contenders.map((contender) => count(contender, before)));
  const millis = performance.now() - start;
  await session.refresh();
  const after = session.view.word(Word.CELL);
  const lost = contenders.reduce((sum, contender) => sum + contender.lost, 0);
  const won = CONTENDERS * TURNS;
  return {
    sentences: [
      `The word holds ${after}: ${counted(won, 'swap')} took place, and ` +
        `${counted(lost, 'attempt')} found another’s value, in ${millis.toFixed(0)} ms.`,
      `Remote callbacks: ${session.view.word(Word.CALLBACKS)}.`,
    ],
    figures: { before, after, won, lost },
  };
}

async function count(contender: Contender, before: number): Promise<void> {
  const { end, region } = contender;
  let known = BigInt(before);
  for (let won = 0; won < TURNS;) {
    end.connection.qp.postSend({
      opcode: WrOpcode.ATOMIC_CMP_AND_SWP,
      sgList: [{ addr: region.addr, length: WORD_BYTES, lkey: region.lkey }],
      atomic: { ...at(end, Word.CELL), compareAdd: known, swap: known + 1n },
      sendFlags: SendFlag.SIGNALED,
    });
    check(await end.connection.sendCq.wait());
    const found = BigInt(readWord(region.buffer, 0));
    if (found === known) {
      won++;
      known++;
    } else {
      contender.lost++;
      known = found;
    }
  }
}
