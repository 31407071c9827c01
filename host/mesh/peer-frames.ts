/** Frames between members: one channel (frames/frame-channel.ts) with each peer. */
import { checkKeys, checkObject } from '../base/options.js';
import { timerMillis } from '../base/timer.js';
import { checkWait, withinLimits, type WaitLimits } from '../base/wait-limits.js';
import type { RemoteError } from '../remote/remote-error.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import {
  FRAME_OPTIONS,
  checkFrameOptions,
  openFrameChannel,
  openFrameListener,
  type FrameChannel,
  type FrameListener,
  type FrameOptions,
} from './frames/frame-channel.js';
import { MeshError, closedError } from './mesh-error.js';

/** Of the connection manager, at all members. */
const PORT = 7474;
/** One that has ended unnoticed, and its successor. */
const CHANNELS_PER_PEER = 2;
const CONNECT_MILLIS = 3000;
const RETRY_MILLIS = 200;
const RETRY_MILLIS_MAX = 2000;

/** The channel with one peer, which is another one after each interruption. */
export class PeerFrames {
  readonly #id: string;
  #channel: FrameChannel | undefined;
  /** Why no channel follows. */
  #refusal: Error | undefined;
  readonly #waiting = new Set<() => void>();

  constructor(id: string) {
    this.#id = id;
  }

  get isOver(): boolean {
    return this.#refusal !== undefined;
  }

  /** The peer has connected anew, or this side. */
  take(channel: FrameChannel): void {
    if (this.isOver) return void channel.close();
    void this.#channel?.close();
    this.#channel = channel;
    void channel.closed.then(() => {
      if (this.#channel === channel) this.#channel = undefined;
    });
    this.#wake();
  }

  end(refusal: Error): void {
    this.#refusal ??= refusal;
    void this.#channel?.close();
    this.#wake();
  }

  async get(limits: WaitLimits): Promise<FrameChannel> {
    checkWait('frames', limits);
    const late = (): Error => {
      const rule = `frames: no channel with ${this.#id} after ${limits.timeout} ms`;
      return new MeshError('ETIMEDOUT', `${rule}; check its process and the network`, [this.#id]);
    };
    const waits: { wake?: () => void } = {};
    const there = async (): Promise<FrameChannel> => {
      for (;;) {
        if (this.#refusal) throw this.#refusal;
        if (this.#channel) return this.#channel;
        await new Promise<void>((resolve) => this.#waiting.add((waits.wake = resolve)));
      }
    };
    try {
      return await withinLimits(there(), limits, late);
    } finally {
      if (waits.wake) this.#waiting.delete(waits.wake);
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}

/** A peer as far as frames need it. */
interface FramePeer {
  readonly id: string;
  readonly frameSlot: PeerFrames;
  readonly closed: Promise<RemoteError | undefined>;
}

/** Throws MisuseError. */
export function checkMeshFrames(
  frames: FrameOptions | undefined,
): Required<FrameOptions> | undefined {
  if (frames === undefined) return undefined;
  checkObject('joinMesh', frames, 'frames');
  checkKeys('joinMesh frames', frames, FRAME_OPTIONS as never);
  return checkFrameOptions('joinMesh', frames);
}

/** The channels of a member. */
export class MeshFrames {
  readonly #self: string;
  readonly #pd: ProtectionDomain;
  readonly #own: Required<FrameOptions>;
  readonly #stop = new AbortController();
  #listener: FrameListener | undefined;

  constructor(self: string, pd: ProtectionDomain, own: Required<FrameOptions>) {
    this.#self = self;
    this.#pd = pd;
    this.#own = own;
  }

  /** `peerOf`: the peer with this identifier; others are refused. */
  async start(peerOf: (id: string) => FramePeer | undefined): Promise<void> {
    const target = { address: this.#self, port: PORT };
    // The smaller identifier connects.
    const connecting = (id: string) => (id < this.#self ? peerOf(id) : undefined);
    const permits = (id: string): boolean => connecting(id) !== undefined;
    const count = CHANNELS_PER_PEER;
    this.#listener = await openFrameListener(target, this.#pd, this.#own, count, permits);
    void this.#accept(this.#listener, connecting);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#listener?.close();
  }

  /** The peer has frames as well: the smaller identifier connects, and again after each end. */
  async connect({ id, frameSlot }: FramePeer): Promise<void> {
    if (this.#self > id) return;
    let millis = RETRY_MILLIS;
    const { signal } = this.#stop;
    for (;;) {
      try {
        const target = { address: id, port: PORT, timeout: CONNECT_MILLIS, signal };
        const channel = await openFrameChannel(target, this.#pd, this.#own);
        frameSlot.take(channel);
        millis = RETRY_MILLIS;
        await channel.closed;
      } catch {
        millis = Math.min(2 * millis, RETRY_MILLIS_MAX);
      }
      if (frameSlot.isOver || signal.aborted) return;
      await new Promise((resolve) => setTimeout(resolve, timerMillis(millis)));
      if (frameSlot.isOver || signal.aborted) return;
    }
  }

  async #accept(
    listener: FrameListener,
    peerOf: (id: string) => FramePeer | undefined,
  ): Promise<void> {
    for await (const channel of listener) {
      const peer = peerOf(channel.connection.id.getPeerAddr()?.address ?? '');
      if (peer) peer.frameSlot.take(channel);
      else void channel.close();
    }
  }
}

/** The peer, or this member, joined without frames. */
export function noFramesError(id: string): MeshError {
  const rule = `frames: ${id} joined without the option frames`;
  return new MeshError('EOPNOTSUPP', `${rule}; set it at all`, [id]);
}

/** The peer has left. */
export function leftError(id: string, reason: RemoteError | undefined): Error {
  return reason ?? closedError('frames', id);
}
