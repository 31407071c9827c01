/** Datagrams are lost below the engine, on purpose; what was written is there all the same. */
import { SendFlag, WrOpcode } from '../../verbs/enums.js';
import { at, check, type End } from '../private-data.js';
import type { EchoChannel } from '../echo-channel.js';
import { Latencies, millis } from '../latencies.js';
import { PICTURE_BYTES } from '../memory-layout.js';
import { counted, type Act, type Stage } from './act.js';

/** Copies of the whole picture. */
const COPIES = 2;
/**
 * Messages that leave one after the other, whether those before are back or not, for five seconds.
 * On a busy machine a connection may pause for a second or two: the timers of the queue pair, of
 * the channel's window and of SCTP each double while nothing comes back. Within one second such a
 * pause was the median (1,744 ms, seen once in 13 runs).
 */
const MESSAGES = 250;
const EVERY_MILLIS = 20;
const MESSAGE_BYTES = 64;
const TRIP_MILLIS_MAX = 10_000;

export const loss: Act = {
  id: 'loss',
  title: 'Lose packets',
  sentence:
    'Shows what loss costs. A relay between the two drops this share of datagrams, below WebRTC; ' +
    'every byte arrives all the same. A reliable channel carries as many messages through the same loss.',
  slider: { label: 'Datagrams lost', min: 0, max: 20, step: 1, value: 5, unit: '%' },
  async play(stage, percent) {
    const { endpoint, session, say } = stage;
    const wire = await stage.lose(percent);
    const before = { ...counters(stage), lost: await wire.lost() };
    say(
      `${MESSAGES} messages of ${MESSAGE_BYTES} bytes there and back, ${percent} % of the datagrams are lost.`,
    );
    const reliable = wire.reliable ?? (await stage.channel('reliable').catch(() => undefined));
    const delays = await stage.quietly(() => compare(stage, reliable));
    say(`The picture is WRITTEN ${COPIES} times.`);
    const start = performance.now();
    for (let copy = 0; copy < COPIES; copy++) {
      session.copyOurs();
      await session.painter.settled();
    }
    const took = performance.now() - start;
    const ours = endpoint.memory.slice(0, PICTURE_BYTES);
    await session.refresh();
    const theirs = session.view.memory;
    const wrong = ours.filter((byte, index) => byte !== theirs[index]).length;
    const after = { ...counters(stage), lost: await wire.lost() };
    const figures = {
      percent,
      isBelow: wire.reliable ? 1 : 0,
      lost: after.lost - before.lost,
      naks: after.naks - before.naks,
      retransmitted: after.retransmitted - before.retransmitted,
      wrong,
      messages: MESSAGES,
      readP50: delays.ours.quantile(0.5),
      readP99: delays.ours.quantile(0.99),
      reliableP50: delays.reliable.quantile(0.5),
      reliableP99: delays.reliable.quantile(0.99),
    };
    const lost = counted(figures.lost, wire.reliable ? 'datagram' : 'packet');
    return {
      sentences: [
        `${MESSAGES} messages of ${MESSAGE_BYTES} bytes there and back, one every ${EVERY_MILLIS} ms:`,
        `READs: half within ${millis(figures.readP50)}, 99 of 100 within ${millis(figures.readP99)}.`,
        `${nameOf(wire.reliable, reliable)}: half within ${millis(figures.reliableP50)}, ` +
          `99 of 100 within ${millis(figures.reliableP99)}.`,
        `The picture was WRITTEN ${COPIES} times in ${took.toFixed(0)} ms. ${lost} lost, ${counted(figures.naks, 'NAK')}, ` +
          `${counted(figures.retransmitted, 'packet')} sent again. ` +
          `Bytes that differ: ${wrong}.`,
        ...(wire.missing
          ? [`No relay: ${wire.missing}. So packets are lost in our link alone.`]
          : []),
      ],
      figures,
    };
  },
};

function nameOf(relayed: EchoChannel | undefined, reliable: EchoChannel | undefined): string {
  if (relayed) return 'A reliable data channel, through the same loss';
  return reliable
    ? 'A reliable channel, which loses nothing'
    : 'No reliable channel to compare with';
}

function counters({ endpoint }: Stage) {
  const { rcvdSeqErr, retransmittedPkts } = endpoint.context.counters();
  return { naks: Number(rcvdSeqErr), retransmitted: Number(retransmittedPkts) };
}

/** The same number of messages at the same moments: READs, and on the reliable channel. */
async function compare(stage: Stage, channel: EchoChannel | undefined) {
  const { endpoint, session } = stage;
  const delays = { ours: new Latencies(), reliable: new Latencies() };
  const end = await endpoint.spare(session.peer);
  const region = endpoint.scratch(MESSAGE_BYTES);
  try {
    const starts: number[] = [];
    const finishing = finish(end, starts, delays.ours);
    const trips: Promise<void>[] = [];
    for (let message = 0; message < MESSAGES; message++) {
      starts.push(performance.now());
      end.connection.qp.postSend({
        opcode: WrOpcode.RDMA_READ,
        sgList: [{ addr: region.addr, length: MESSAGE_BYTES, lkey: region.lkey }],
        rdma: at(end, 0),
        sendFlags: SendFlag.SIGNALED,
      });
      const trip = channel?.trip(TRIP_MILLIS_MAX);
      if (trip) trips.push(trip.then((took) => delays.reliable.add(took)));
      await new Promise((resolve) => setTimeout(resolve, EVERY_MILLIS));
    }
    await Promise.all([finishing, ...trips]);
    return delays;
  } finally {
    await end.connection.close();
    region.dereg();
    endpoint.context.free(region.buffer);
  }
}

/** READs end in the order in which they were posted. */
async function finish(end: End, starts: readonly number[], delays: Latencies): Promise<void> {
  for (let done = 0; done < MESSAGES;) {
    const completions = await end.connection.sendCq.wait();
    check(completions);
    const now = performance.now();
    for (const _each of completions) delays.add(now - starts[done++]!);
  }
}
