/** More messages than the other's application has receives for. */
import { Word } from '../memory-layout.js';
import { RECEIVES, sendMessages } from '../messages.js';
import { counted, type Act, type Stage } from './act.js';

const MESSAGES = 60;
const PACE_MILLIS = 15;
const LIMIT_MILLIS = 20_000;

export const slowReceiver: Act = {
  id: 'slow-receiver',
  title: 'Overwhelm a slow program',
  sentence:
    `Shows back-pressure: the peer’s program takes ${PACE_MILLIS} ms for each message and has room for ` +
    `${RECEIVES}. Its adapter makes ours wait (RNR NAK), and drops nothing.`,
  async play(stage) {
    const { endpoint, session, say } = stage;
    await session.refresh();
    const before = session.view.word(Word.MESSAGES);
    const refusedBefore = refusals(stage);
    await endpoint.writeWord(session, Word.PACE_MILLIS, PACE_MILLIS);
    say(`${counted(MESSAGES, 'message')} are sent at once.`);
    const start = performance.now();
    try {
      await sendMessages(session.message, session.regions.inbox, MESSAGES);
      // The last ones have arrived; the application may still be busy with them.
      const deadline = performance.now() + LIMIT_MILLIS;
      while (session.view.word(Word.MESSAGES) < before + MESSAGES) {
        if (performance.now() > deadline) throw new Error('the peer takes no messages');
        await session.refresh();
      }
    } finally {
      await endpoint.writeWord(session, Word.PACE_MILLIS, 0);
    }
    const millis = performance.now() - start;
    const taken = session.view.word(Word.MESSAGES) - before;
    const refused = refusals({ endpoint }) - refusedBefore;
    return {
      sentences: [
        `The peer’s application took ${counted(taken, 'message')}, in ${millis.toFixed(0)} ms.`,
        `Its adapter said ${counted(refused, 'time')} that no receive was posted (RNR NAK).`,
      ],
      figures: { sent: MESSAGES, taken, refused },
    };
  },
};

function refusals({ endpoint }: Pick<Stage, 'endpoint'>): number {
  return Number(endpoint.context.counters().rcvdRnrErr);
}
