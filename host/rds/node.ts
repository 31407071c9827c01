/** A node: the core on a device, with the device's clock. All sockets of its address share it. */
import type { CancelTimer } from '../device/clock.js';
import type { Device } from '../device/device.js';
import type { Context } from '../verbs/context.js';
import { PARAMETERS, configText, writeConfig } from './config.js';
import { RdsCore, type CoreOptions } from './core.js';
import { infoText } from './info.js';
import { statsText } from './statistics.js';
import { VerbsCarrier } from './verbs-carrier.js';

/** How a node is set up. */
export type RdsNodeOptions = Pick<
  CoreOptions,
  'heartbeatMicros' | 'recoveryMicros' | 'parameters' | 'pathsMax'
>;

const nodes = new WeakMap<Device, RdsNode>();
const KBYTE = 1024;
/** Of this software, as `config` says it. */
const VERSION = '0.1.0';

/** A device’s node of reliable datagrams: its paths, ports and settings. */
export class RdsNode {
  readonly context: Context;
  readonly core: RdsCore;
  readonly #carrier: VerbsCarrier;
  #cancelTimer: CancelTimer | undefined;
  #timerMicros = 0;
  #isClosed = false;

  /**
   * The device's node; made when it is asked for first. Throws MisuseError; RefusalError ENOMEM,
   * EADDRINUSE.
   */
  static of(context: Context, options: RdsNodeOptions = {}): RdsNode {
    context.checkOpen();
    const known = nodes.get(context.device);
    if (known && !known.#isClosed) return known;
    const node = new RdsNode(context, options);
    nodes.set(context.device, node);
    return node;
  }

  private constructor(context: Context, options: RdsNodeOptions) {
    this.context = context;
    const { clock } = context.device;
    const { MaxRecvMemory } = { ...PARAMETERS, ...options.parameters };
    this.#carrier = new VerbsCarrier(context, MaxRecvMemory * KBYTE);
    const now = clock.now();
    // So that what we send is above all that a former life of this node has sent.
    const nanos = clock.wallclockNanos?.(now) ?? BigInt(Math.floor(now)) * 1000n;
    this.core = new RdsCore(this.#carrier, {
      ...options,
      local: context.local,
      incarnation: this.#carrier.random() || 1,
      firstSequence: Number(nanos / 1000n),
    });
    this.#carrier.core = this.core;
    this.#carrier.onInput = () => this.arm();
    this.#carrier.listen();
    context.siblings.observers.add({
      asyncEvent: () => {},
      peerGone: () => {},
      closing: async () => this.close(),
    });
  }

  get now(): number {
    return this.context.device.clock.now();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Send buffers in use. */
  get buffersUsed(): number {
    return this.#carrier.sends.used;
  }

  /** The text of /proc/driver/rds/stats. */
  stats(): string {
    const rxMemory = this.#carrier.receiveBytes;
    return statsText(this.core.statistics, { ...this.core.gauges(), rxMemory });
  }

  /** The text of /proc/driver/rds/config. */
  config(): string {
    return configText(this.core.parameters, VERSION, `Node ${process.version}`);
  }

  /** `echo parameter=value`: as `writeConfig`. */
  writeConfig(line: string): void {
    writeConfig(this.core.parameters, line);
  }

  /** The text of /proc/driver/rds/info. */
  info(): string {
    const { receivesPosted: rxBufs, receivesTaken } = this.#carrier;
    const sessions = [...this.core.paths].map(({ peer, state }) => {
      return { ip: `${peer.gid}`, state, rxBufs, rxCache: receivesTaken };
    });
    const sockets = [...this.core.ports.values()].map(({ number, pending, isStalled }) => {
      return { port: number, rxPending: pending, state: isStalled ? 'STALLED' : 'ACTIVE' };
    });
    return infoText(sessions, sockets);
  }

  /** To be called after every call of the core: the next deadline may be another. */
  arm(): void {
    const next = this.core.nextMicros;
    if (next === 0 || this.#isClosed || (this.#timerMicros !== 0 && this.#timerMicros <= next)) {
      return;
    }
    this.#cancelTimer?.();
    this.#timerMicros = next;
    this.#cancelTimer = this.context.device.clock.at(next, () => {
      this.#timerMicros = 0;
      this.#cancelTimer = undefined;
      this.core.advance(this.now);
      this.arm();
    });
  }

  /** Ends all connections and gives everything back; the device stays open. */
  close(): void {
    if (this.#isClosed) return;
    this.core.close(this.now);
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.#carrier.close();
    nodes.delete(this.context.device);
  }
}
