/** Frames of a race: a peer takes them at a port of its own, and acknowledges each. */
import { formatUrl } from '../cm/url.js';
import { connectFrames, listenFrames, type FrameChannel } from '../mesh/frames/frame-channel.js';
import type { Context } from '../verbs/context.js';
import { FRAME_BYTES } from './memory-layout.js';

const PORT = 7472;
/** Channels at once, of some 700 KB each. */
const CHANNELS_MAX = 8;
/** A tab has one race at a time; the channel of one that failed may still be there. */
const CHANNELS_PER_PEER = 2;
const CONNECT_MILLIS = 10_000;
const OPTIONS = { bytesMax: FRAME_BYTES, frames: 2 } as const;

/** Takes frames until the device is closed. Rejects as `listenFrames`. */
export async function serveFrames(context: Context): Promise<void> {
  const url = formatUrl({ address: `${context.local.gid}`, port: PORT, udpPort: undefined });
  const listener = await listenFrames(url, {
    context,
    channelsPerPeer: CHANNELS_PER_PEER,
    ...OPTIONS,
  });
  let channels = 0;
  for await (const channel of listener) {
    if (channels >= CHANNELS_MAX) {
      void channel.close();
      continue;
    }
    channels++;
    void take(channel).finally(() => channels--);
  }
}

/** A frame is acknowledged when it is complete; the race needs its time, not its bytes. */
async function take(channel: FrameChannel): Promise<void> {
  for await (const _frame of channel);
}

/** A channel for frames to that peer. Rejects as `connectFrames`. */
export function openFrames(context: Context, address: string): Promise<FrameChannel> {
  const url = formatUrl({ address, port: PORT, udpPort: undefined });
  return connectFrames(url, { context, timeout: CONNECT_MILLIS, ...OPTIONS });
}
