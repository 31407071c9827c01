/** The same frame through the same loss, by one reliable data channel and by Verbena's frames. */
import type { FrameChannel } from '../../mesh/frames/frame-channel.js';
import type { EchoChannel } from '../echo-channel.js';
import { openFrames } from '../frame-service.js';
import { Latencies, millis } from '../latencies.js';
import { FRAME_BYTES } from '../memory-layout.js';
import type { MainAct, Stage } from './act.js';

/** How long frames are started. */
const RACE_MILLIS = 10_000;
/** Between an arrival and the next start: both connections are idle. */
const PAUSE_MILLIS = 250;
const FRAME_MILLIS_MAX = 5000;
/** Each way, in the relay: the two are some 4,000 km of fibre apart. */
const DELAY_MILLIS = 20;

export const race: MainAct = {
  id: 'race',
  async play(stage, percent) {
    const { endpoint, session, say } = stage;
    let channel: FrameChannel | undefined;
    try {
      const wire = await stage.lose(percent, DELAY_MILLIS);
      const frames = (channel = await openFrames(endpoint.context, `${session.peer.gid}`));
      // Lost in our link alone would be lost for one of the two only.
      if (!wire.reliable) await stage.lose(0);
      const reliable = wire.reliable ?? (await stage.channel('reliable'));
      say('');
      const runs = await stage.quietly(() => raceFor(stage, frames, reliable));
      return outcomeOf(runs, percent, wire.missing);
    } finally {
      await channel?.close().catch(() => undefined);
      await stage.lose(0);
    }
  },
};

interface Runs {
  readonly ours: Latencies;
  readonly reliable: Latencies;
  frames: number;
}

async function raceFor(stage: Stage, channel: FrameChannel, reliable: EchoChannel): Promise<Runs> {
  const frame = new Uint8Array(FRAME_BYTES);
  const runs: Runs = { ours: new Latencies(), reliable: new Latencies(), frames: 0 };
  const start = performance.now();
  for (;;) {
    const leftMillis = start + RACE_MILLIS - performance.now();
    if (leftMillis <= 0) return runs;
    stage.show({ kind: 'start', leftMillis });
    const arrive = (lane: 'ours' | 'reliable') => (took: number) => {
      runs[lane].add(took);
      stage.show({ kind: 'arrival', lane, millis: took, median: runs[lane].quantile(0.5) });
    };
    await Promise.all([
      send(channel, frame).then(arrive('ours')),
      reliable.frame(FRAME_BYTES, FRAME_MILLIS_MAX).then(arrive('reliable')),
    ]);
    runs.frames++;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLIS));
  }
}

/** Milliseconds until the peer has acknowledged the whole frame. */
async function send(channel: FrameChannel, frame: Uint8Array): Promise<number> {
  const start = performance.now();
  await channel.send(frame);
  return performance.now() - start;
}

/** Infinity: a frame that did not arrive. */
function slowest(took: number): string {
  return Number.isFinite(took) ? millis(took) : `more than ${FRAME_MILLIS_MAX / 1000} s, or lost`;
}

function outcomeOf({ ours, reliable, frames }: Runs, percent: number, missing?: string) {
  const figures = {
    frames,
    percent,
    isBelow: missing === undefined ? 1 : 0,
    oursP50: ours.quantile(0.5),
    oursMax: ours.quantile(1),
    reliableP50: reliable.quantile(0.5),
    reliableMax: reliable.quantile(1),
  };
  const ratio = figures.reliableP50 / figures.oursP50;
  const verdict = !Number.isFinite(ratio)
    ? 'By the ordinary channel too few frames arrived to compare.'
    : ratio >= 1.05
      ? `Verbena is ${ratio.toFixed(1)} times as fast.`
      : ratio <= 0.95
        ? `The ordinary channel is ${(1 / ratio).toFixed(1)} times as fast this time.`
        : 'A draw this time.';
  return {
    sentences: [
      `${verdict} Half of the ${frames} frames took less than ${millis(figures.oursP50)} by Verbena, ` +
        `${millis(figures.reliableP50)} by the ordinary channel; the slowest ` +
        `${slowest(figures.oursMax)} and ${slowest(figures.reliableMax)}.`,
      ...(missing === undefined
        ? []
        : [`Without a relay (${missing}) no packet was delayed or lost on purpose.`]),
    ],
    figures,
  };
}
