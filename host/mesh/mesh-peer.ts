/** Another member of a mesh, and its memory. */
import { AccessFlag } from '#build/abi.js';
import { timerMillis } from '../base/timer.js';
import type { WaitLimits } from '../base/wait-limits.js';
import type { DataChannelLink } from '../link/channel/data-channel.js';
import { RightBit } from '../remote/hello.js';
import type { Remote } from '../remote/remote.js';
import { After, timeoutError, type RemoteError } from '../remote/remote-error.js';
import { RemoteRegion } from '../remote/remote-region.js';
import type { MemoryByName } from '../remote/local-regions.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import {
  ControlKind,
  LOSS,
  NO_DATA,
  buildControl,
  keyOf,
  parseControl,
  type Control,
} from './control.js';
import type { FrameChannel } from './frames/frame-channel.js';
import { PeerFrames, leftError, noFramesError } from './peer-frames.js';

/** Messages of calls that this member has not made yet. */
const EARLY_MAX = 256;
/**
 * Messages of a peer that are read within that time, 8,000 a second; further ones wait at the peer.
 * Barriers one after the other are some 3,000 a second.
 */
const READ_MAX = 400;
const READ_MILLIS = 50;
/** Signs of life within the keep-alive time. */
const BEATS = 5;
/** A timer of a busy process may fire this late. */
const LATE_MILLIS = 250;
/** Limits of `keepAliveMillis`. */
export const KEEP_ALIVE_MILLIS_MIN = 100;
export const KEEP_ALIVE_MILLIS_MAX = 86_400_000;

/** Of SCRATCH: the member has frames. */
const HAS_FRAMES = 1;

/** Where memory for a peer is made. */
export interface ScratchOwner {
  readonly link: DataChannelLink;
  readonly context: Context;
  readonly pd: ProtectionDomain;
  /** For each peer; half for what it scatters, half for what it gathers. */
  readonly scratchBytes: number;
  /** Called when the peer has frames as well; undefined: this member has none. */
  readonly meetFrames: ((peer: MeshPeer) => void) | undefined;
  /** Called with each GIVE_UP. */
  readonly gaveUp: (peer: MeshPeer, control: Control) => void;
}

/** The regions of a peer with the names that this member shares as well. */
export type PeerMemory<Named> = { readonly [Name in keyof MemoryByName<Named>]: RemoteRegion };

/**
 * A peer, from its `join` to its `leave`. A member that leaves and comes back is another MeshPeer,
 * with the same `id` unless its page or process is a new one.
 */
export class MeshPeer<Named = Readonly<Record<string, unknown>>> {
  /** Text of its GID, which its certificate proves. */
  readonly id: string;
  /**
   * Its regions by name: one-sided reads, writes and atomics. After `leave` all calls reject with
   * RemoteError ECONNRESET.
   */
  readonly memory: PeerMemory<Named> & Readonly<Record<string, RemoteRegion>>;
  /** Resolves when the peer has left: with the reason, or with undefined if it closed its mesh. */
  readonly closed: Promise<RemoteError | undefined>;
  /** @internal */
  readonly remote: Remote<unknown>;
  /** @internal What this peer, and no other one, writes for collective operations. */
  readonly inbox: Uint8Array;
  /** @internal Its memory for what this member writes. */
  readonly scratch: Promise<RemoteRegion>;
  /** @internal */
  readonly frameSlot: PeerFrames;
  #meetFrames: ScratchOwner['meetFrames'];
  #hasScratch: (region: RemoteRegion) => void = () => {};
  readonly #ownMillis: number;
  /** @internal Silence of that length ends the peer; 0: it has ended. */
  limitMillis = 0;
  readonly #link: DataChannelLink;
  readonly #heartbeat: Uint8Array;
  #beating: ReturnType<typeof setInterval> | undefined;
  #isBeating = false;
  #lost: RemoteError | undefined;
  /** @internal The next numbers, as it says, of groups in which this member made no call. */
  readonly claims = new Map<bigint, number>();
  readonly #early = new Map<string, Control>();
  readonly #waiting = new Map<string, (control: Control) => void>();

  /** @internal */
  constructor(id: string, remote: Remote<unknown>, keepAliveMillis: number, own: ScratchOwner) {
    this.id = id;
    this.#ownMillis = keepAliveMillis;
    this.#link = own.link;
    const beat = { kind: ControlKind.HEARTBEAT, count: keepAliveMillis };
    this.#heartbeat = buildControl({ ...NO_DATA, ...beat, sequence: 0, group: 0n });
    this.remote = remote;
    remote.requests.after = After.JOIN;
    this.memory = remote.memory as never;
    this.frameSlot = new PeerFrames(id);
    this.#meetFrames = own.meetFrames;
    if (!own.meetFrames) this.frameSlot.end(noFramesError('this member'));
    this.scratch = new Promise((resolve) => (this.#hasScratch = resolve));
    this.inbox = this.#offerScratch(own);
    this.closed = remote.closed.then((reason) => {
      clearInterval(this.#beating);
      // Messages that wait may still be read: none begins to watch it again.
      this.limitMillis = 0;
      this.frameSlot.end(leftError(id, this.#lost ?? reason));
      return this.#lost ?? reason;
    });
    this.#watch(keepAliveMillis);
    void this.#receive(own.gaveUp);
  }

  /**
   * Resolves with the channel for frames between this member and the peer, once it is connected. A
   * channel that has ended is replaced while the peer is there: call it again. Rejects with
   * MeshError EOPNOTSUPP (a side joined without `frames`), ETIMEDOUT, ECONNRESET (the peer closed
   * its mesh), RemoteError (why it left), the reason of `signal`.
   */
  frames(limits: WaitLimits = {}): Promise<FrameChannel> {
    return this.frameSlot.get(limits);
  }

  /** Memory for this connection: no other peer writes into it. Throws RefusalError ENOMEM. */
  #offerScratch({ context, pd, scratchBytes }: ScratchOwner): Uint8Array {
    const inbox = context.alloc(scratchBytes);
    const mr = pd.regMr(inbox, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
    void this.remote.closed.then(() => {
      mr.dereg();
      context.free(inbox);
    });
    const op = this.#meetFrames ? HAS_FRAMES : 0;
    const place = { sequence: mr.rkey, group: mr.addr, count: scratchBytes };
    const message = buildControl({ ...NO_DATA, ...place, kind: ControlKind.SCRATCH, op });
    this.remote.send(message).catch(() => undefined);
    return inbox;
  }

  #takeScratch({ sequence: rkey, group: addr, count: length, op }: Control): void {
    if (op !== HAS_FRAMES) this.frameSlot.end(noFramesError(this.id));
    else this.#meetFrames?.(this as never);
    // Once, also if the peer repeats its message.
    this.#meetFrames = undefined;
    const description = { name: 'scratch', addr, length, rkey, rights: RightBit.WRITE };
    // It has no handle.
    this.#hasScratch(new RemoteRegion(this.remote.requests, { id: 0n, description }));
  }

  /**
   * Sends a sign of life, and expects those of the peer: whatever comes by its channel, since a
   * message behind a long call waits for longer than the limit. The keep-alive of a queue pair has
   * no effect while requests are outstanding: then its retries decide, which take 17 s on data
   * channels.
   */
  #watch(millis: number): void {
    this.limitMillis = millis;
    clearInterval(this.#beating);
    const step = millis / BEATS;
    let last = performance.now();
    let silent = 0;
    let heard: number | undefined = 0;
    this.#beating = setInterval(() => {
      const now = performance.now();
      const before = heard;
      heard = this.#link.heard(this.id);
      // This process was stopped itself: the peer may have sent messages meanwhile.
      if (heard !== before || now - last > 2 * step + LATE_MILLIS) silent = -1;
      last = now;
      if (++silent === BEATS) this.#lose();
      else this.#beat();
    }, timerMillis(step));
    this.#beat();
  }

  /** Nothing is sent while the sign of life before is still on its way. */
  #beat(): void {
    if (this.#isBeating) return;
    this.#isBeating = true;
    const sent = this.remote.send(this.#heartbeat).catch(() => undefined);
    void sent.then(() => (this.#isBeating = false));
  }

  #lose(): void {
    const remedy = 'its process or network stopped, or is gone';
    this.#lost = timeoutError(`peer ${this.id}`, this.limitMillis, remedy);
    void this.remote.fail(this.#lost);
  }

  /** The smaller `keepAliveMillis` is in effect at both. */
  #agree(millis: number): void {
    const limit = Math.max(KEEP_ALIVE_MILLIS_MIN, Math.min(this.#ownMillis, millis));
    if (limit < this.limitMillis) this.#watch(limit);
  }

  /** @internal Resolves with the message of this key, once, whenever it arrives. */
  expect(key: string): Promise<Control> {
    const early = this.#early.get(key);
    if (early) {
      this.#early.delete(key);
      return Promise.resolve(early);
    }
    return new Promise((resolve) => this.#waiting.set(key, resolve));
  }

  /** @internal The call has ended. */
  forget(key: string): void {
    this.#waiting.delete(key);
  }

  async #receive(gaveUp: ScratchOwner['gaveUp']): Promise<void> {
    let read = 0;
    let endMillis = 0;
    for await (const message of this.remote) {
      const now = performance.now();
      if (now > endMillis) {
        read = 0;
        endMillis = now + READ_MILLIS;
      }
      if (++read > READ_MAX) {
        await new Promise((resolve) => setTimeout(resolve, timerMillis(endMillis - now)));
      }
      const control = parseControl(message);
      if (!control) return void this.remote.destroy();
      if (control.kind === ControlKind.HEARTBEAT) {
        this.#agree(control.count);
        continue;
      }
      if (control.kind === ControlKind.SCRATCH) {
        this.#takeScratch(control);
        continue;
      }
      if (control.kind === ControlKind.GIVE_UP) {
        gaveUp(this as never, control);
        if (control.segment === LOSS) continue;
      }
      const key = keyOf(control);
      const resolve = this.#waiting.get(key);
      this.#waiting.delete(key);
      if (resolve) resolve(control);
      else this.#early.set(key, control);
      // A member that makes calls in which this one does not take part.
      const [oldest] = this.#early.keys();
      if (this.#early.size > EARLY_MAX) this.#early.delete(oldest!);
    }
  }
}
