/** Another member of a mesh, and its memory. */
import type { Remote } from '../remote/remote.js';
import { timeoutError, type RemoteError } from '../remote/remote-error.js';
import type { RemoteRegion } from '../remote/remote-region.js';
import type { MemoryByName } from '../remote/local-regions.js';
import { ControlKind, buildControl, keyOf, parseControl, type Control } from './control.js';

/** The region for collective operations; applications do not see it. */
export const SCRATCH = 'verbena.mesh';
/** Messages of calls that this member has not made yet. */
const EARLY_MAX = 256;
const HEARTBEAT = buildControl({
  kind: ControlKind.HEARTBEAT,
  op: 0,
  type: 0,
  sequence: 0,
  group: 0n,
  segment: 0,
  count: 0,
});

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
  #heardMillis = performance.now();
  #isBeating = false;
  #lost: RemoteError | undefined;
  readonly #early = new Map<string, Control>();
  readonly #waiting = new Map<string, (control: Control) => void>();

  /** @internal */
  constructor(id: string, remote: Remote<unknown>) {
    this.id = id;
    this.remote = remote;
    const { [SCRATCH]: _scratch, ...memory } = remote.memory;
    this.memory = memory as never;
    this.closed = remote.closed.then((reason) => this.#lost ?? reason);
    void this.#receive();
  }

  /** @internal Region for collective operations. */
  get scratch(): RemoteRegion | undefined {
    return this.remote.memory[SCRATCH];
  }

  /** @internal Milliseconds since the last message of the peer. */
  get silentMillis(): number {
    return performance.now() - this.#heardMillis;
  }

  /** @internal This process was stopped itself: the peer may have sent messages meanwhile. */
  excuse(): void {
    this.#heardMillis = performance.now();
  }

  /** @internal Sends a sign of life, unless the one before is still on its way. */
  beat(): void {
    if (this.#isBeating) return;
    this.#isBeating = true;
    const done = (): void => void (this.#isBeating = false);
    this.remote.send(HEARTBEAT).then(done, done);
  }

  /** @internal The peer is silent for too long. */
  lose(millis: number): void {
    const remedy = 'its process was stopped, suspended or killed, or the network is gone';
    this.#lost = timeoutError(`peer ${this.id}`, millis, remedy);
    void this.remote.destroy();
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

  async #receive(): Promise<void> {
    for await (const message of this.remote) {
      this.#heardMillis = performance.now();
      const control = parseControl(message);
      if (!control) return void this.remote.destroy();
      if (control.kind === ControlKind.HEARTBEAT) continue;
      const key = keyOf(control);
      const resolve = this.#waiting.get(key);
      this.#waiting.delete(key);
      if (resolve) {
        resolve(control);
        continue;
      }
      this.#early.set(key, control);
      // A member that makes calls in which this one does not take part.
      const [oldest] = this.#early.keys();
      if (this.#early.size > EARLY_MAX) this.#early.delete(oldest!);
    }
  }
}
