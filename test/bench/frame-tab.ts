/**
 * The sending side of the bench `frames`, in a tab's Worker: it imports nothing, its caller passes the
 * library. Each frame begins with the time at which it was sent, in milliseconds of the system's
 * clock, and its number.
 */
import type * as Library from '../../host/browser/mesh.js';

export const FRAME_HEADER_BYTES = 16;
/** A frame that takes longer counts as that. */
export const LATENCY_MILLIS_MAX = 5000;
const BARE_BYTES = 1100;
const LOST_MILLIS = 1500;

/** How frames travel: ours, or by `channels` channels of one kind. */
export interface Way {
  readonly name: string;
  readonly kind: 'frames' | 'reliable' | 'bare';
  readonly channels: number;
}

function clock(): number {
  return performance.timeOrigin + performance.now();
}

function pause(millis: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, millis));
}

/** Answers of the receiver by frame number. */
class Answers {
  readonly #waiting = new Map<number, () => void>();

  answered(number: number): void {
    this.#waiting.get(number)?.();
    this.#waiting.delete(number);
  }

  wait(number: number, millis: number): Promise<void> {
    return Promise.race([
      new Promise<void>((resolve) => this.#waiting.set(number, resolve)),
      pause(millis),
    ]);
  }
}

type Send = (frame: Uint8Array, number: number) => Promise<unknown>;

export class FrameTab {
  readonly #send: Send;
  #next = 0;

  private constructor(send: Send) {
    this.#send = send;
  }

  static async open(library: typeof Library, way: Way): Promise<FrameTab> {
    if (way.kind !== 'frames') return new FrameTab(await openChannels(library, way));
    const link = new library.DataChannelLink({ connections: way.channels, windowBytes: 32_768 });
    const context = await library.openDevice({ link, memoryBytes: 2 ** 26 });
    const peer = await link.connect(`/${way.name}`);
    const channel = await library.connectFrames(`rdma://[${peer.gid}]:7475`, { context });
    return new FrameTab((frame) => channel.send(frame));
  }

  /** Frames one after the other, each after a pause. */
  async idle(count: number, bytes: number, idleMillis: number): Promise<void> {
    for (let index = 0; index < count; index++) {
      await this.#frame(bytes);
      await pause(idleMillis);
    }
  }

  /** Frames at a rate, whatever becomes of them. */
  async steady(count: number, bytes: number, perSecond: number): Promise<void> {
    const start = performance.now();
    const all: Promise<unknown>[] = [];
    for (let index = 0; index < count; index++) {
      all.push(this.#frame(bytes));
      const due = start + ((index + 1) * 1000) / perSecond;
      await pause(Math.max(0, due - performance.now()));
    }
    await Promise.all(all);
  }

  #frame(bytes: number): Promise<unknown> {
    const frame = new Uint8Array(bytes);
    const view = new DataView(frame.buffer);
    const number = this.#next++;
    view.setFloat64(0, clock(), true);
    view.setUint32(8, number, true);
    return Promise.race([this.#send(frame, number), pause(2 * LATENCY_MILLIS_MAX)]);
  }
}

async function openChannels(library: typeof Library, way: Way): Promise<Send> {
  const { name, kind, channels: count } = way;
  const answers = new Answers();
  const channels: Library.DatagramChannel[] = [];
  for (let index = 0; index < count; index++) {
    const connector = library.defaultConnector({ reliable: kind === 'reliable' });
    const connection = await connector.offer();
    const body = JSON.stringify(connection.description);
    const response = await fetch(`/${name}`, { method: 'POST', body });
    const { channel } = connection;
    const open = new Promise<void>((resolve) =>
      channel.start({
        opened: resolve,
        message: (bytes) =>
          answers.answered(new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true)),
        interrupted: () => undefined,
        closed: () => undefined,
      }),
    );
    await connection.accept((await response.json()) as Library.Description);
    await open;
    channels.push(channel);
  }
  return (frame, number) => {
    const header = frame.slice(0, FRAME_HEADER_BYTES);
    const share = Math.ceil(frame.length / count);
    const piece = kind === 'bare' ? BARE_BYTES : share;
    for (const [index, channel] of channels.entries()) {
      const end = Math.min((index + 1) * share, frame.length);
      for (let at = index * share; at < end; at += piece) {
        // Each message has the header, in place of its first bytes.
        const message = frame.slice(at, Math.min(at + piece, end));
        message.set(header.subarray(0, message.length));
        channel.send(message);
      }
    }
    return answers.wait(number, kind === 'bare' ? LOST_MILLIS : LATENCY_MILLIS_MAX);
  };
}
