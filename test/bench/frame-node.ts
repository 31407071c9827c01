/** The receiving side of the bench `frames`: latencies of the frames of one way (frame-tab.ts). */
import { DataChannelLink, openDevice, type Context } from '../../host/index.js';
import { NodeConnector } from '../../host/link/rtc/node.js';
import type { Answerer } from '../../host/link/signalling/signalling.js';
import { listenFrames } from '../../host/mesh/index.js';
import { NetworkPath } from '../support/network-path.js';
import { LATENCY_MILLIS_MAX, type Way } from './frame-tab.js';

export class FrameNode {
  readonly path = new NetworkPath();
  /** By frame number. */
  readonly #latencies = new Map<number, number>();
  readonly #bytes = new Map<number, number>();
  readonly #closing: (() => unknown)[] = [];
  #first = 0;
  #frameBytes = 0;

  private constructor(
    readonly way: Way,
    readonly answer: Answerer,
  ) {}

  static async open(way: Way): Promise<FrameNode> {
    if (way.kind === 'frames') return FrameNode.#openFrames(way);
    const connector = new NodeConnector({ reliable: way.kind === 'reliable' });
    await connector.address();
    const node: FrameNode = new FrameNode(way, async (offer) => {
      const { channel, description } = await connector.answer(offer as never);
      channel.start({
        opened: () => undefined,
        message: (bytes) => {
          const number = node.#part(bytes);
          if (number === undefined) return;
          const answer = new Uint8Array(4);
          new DataView(answer.buffer).setUint32(0, number, true);
          channel.send(answer);
        },
        interrupted: () => undefined,
        closed: () => undefined,
      });
      node.#closing.push(() => channel.close());
      return description;
    });
    return node;
  }

  static async #openFrames(way: Way): Promise<FrameNode> {
    const link = new DataChannelLink({ connections: way.channels, windowBytes: 32_768 });
    const context: Context = await openDevice({ link, memoryBytes: 2 ** 26 });
    const node = new FrameNode(way, link.answer);
    const listener = await listenFrames(`rdma://[${context.local.gid}]:7475`, { context });
    node.#closing.push(
      () => listener.close(),
      () => context.close(),
    );
    void (async () => {
      for await (const channel of listener) {
        for await (const { bytes } of channel) node.#whole(bytes);
      }
    })();
    return node;
  }

  /** Frames of this size are counted from now on. */
  begin(frameBytes: number): void {
    this.#frameBytes = frameBytes;
    this.#latencies.clear();
    this.#bytes.clear();
  }

  /** Latencies in milliseconds of `count` frames; those that are missing have the longest. */
  end(count: number): number[] {
    const found: number[] = [];
    for (let number = this.#first; number < this.#first + count; number++) {
      found.push(Math.min(this.#latencies.get(number) ?? LATENCY_MILLIS_MAX, LATENCY_MILLIS_MAX));
    }
    this.#first += count;
    return found;
  }

  async close(): Promise<void> {
    for (const close of this.#closing) await close();
    this.path.close();
  }

  #whole(bytes: Uint8Array): number {
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const number = view.getUint32(8, true);
    const now = performance.timeOrigin + performance.now();
    this.#latencies.set(number, now - view.getFloat64(0, true));
    return number;
  }

  /** The number of a frame that is whole with this part. */
  #part(bytes: Uint8Array): number | undefined {
    const number = new DataView(bytes.buffer, bytes.byteOffset).getUint32(8, true);
    const received = (this.#bytes.get(number) ?? 0) + bytes.length;
    this.#bytes.set(number, received);
    return received >= this.#frameBytes ? this.#whole(bytes) : undefined;
  }
}
