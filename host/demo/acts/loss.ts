/** Packets are lost below the engine, on purpose; what was written is there all the same. */
import { PICTURE_BYTES } from '../memory-layout.js';
import { counted, millis, type Act, type Stage } from './act.js';

/** Copies of the whole picture. */
const COPIES = 4;

export const loss: Act = {
  id: 'loss',
  title: 'Lose packets',
  sentence:
    'A faulty wire below the engine: so many of the packets that this tab sends are gone. ' +
    'The peer’s adapter asks for what is missing (NAK), and all of it arrives.',
  slider: { label: 'Packets lost', min: 0, max: 30, step: 1, value: 5, unit: '%' },
  async play(stage, percent) {
    const { station, session, say } = stage;
    station.faults.change({ loss: percent / 100 });
    const before = counters(stage);
    say(`The picture is WRITTEN ${COPIES} times, ${percent} % of the packets are lost.`);
    const start = performance.now();
    for (let copy = 0; copy < COPIES; copy++) {
      session.copyOurs();
      await session.painter.settled();
    }
    const took = performance.now() - start;
    const ours = station.memory.slice(0, PICTURE_BYTES);
    await session.refresh();
    const theirs = session.view.memory;
    const wrong = ours.filter((byte, index) => byte !== theirs[index]).length;
    const after = counters(stage);
    const figures = {
      percent,
      lost: after.lost - before.lost,
      naks: after.naks - before.naks,
      retransmitted: after.retransmitted - before.retransmitted,
      wrong,
    };
    const reliable = stage.reliableDelay(0.99);
    return {
      sentences: [
        `${counted(figures.lost, 'packet')} lost, ${counted(figures.naks, 'NAK')}, ` +
          `${counted(figures.retransmitted, 'packet')} sent again, in ${took.toFixed(0)} ms. ` +
          `Bytes that differ: ${wrong}.`,
        `A 64-byte READ takes ${millis(session.delays.quantile(0.5))}, ` +
          `99 of 100 at most ${millis(session.delays.quantile(0.99))}.` +
          (Number.isNaN(reliable)
            ? ''
            : ` A WebSocket to the server, reliable and not touched by the slider: ${millis(reliable)}.`),
      ],
      figures,
    };
  },
};

function counters({ station }: Stage) {
  const { rcvdSeqErr, retransmittedPkts } = station.context.counters();
  return {
    lost: station.faults.counters.lost,
    naks: Number(rcvdSeqErr),
    retransmitted: Number(retransmittedPkts),
  };
}
