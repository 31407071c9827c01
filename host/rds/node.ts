/** A node: the core on a device, with the device's clock. All sockets of its address share it. */
import { checkKeys } from '../base/options.js';
import { openTowards } from '../cm/connection-device.js';
import { checkAuth, copyAuth, type AuthOptions, type AuthRule } from '../cm/auth-option.js';
import type { CancelTimer } from '../device/clock.js';
import type { Device } from '../device/device.js';
import { checkFunction, checkWhole, mustBe, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { Endpoint } from '../link/endpoint.js';
import { localAddressTowards } from '../link/interface.js';
import { ROCE_PORT } from '../link/link.js';
import { checkContext, type Context } from '../verbs/context.js';
import { ACCESS_FILE, ownIdentity, readAccessList } from './access.js';
import type { Identity } from './protocol/identity.js';
import { configText, parametersOf, writeConfig } from './protocol/config.js';
import { RdsCore, type CoreOptions } from './protocol/core.js';
import { infoText } from './info.js';
import type { Path } from './protocol/path.js';
import { statsText } from './protocol/statistics.js';
import { MultiDeviceTransport } from './transport/multi-device-transport.js';
import { AuthKind, SharedState, SHARED_PATHS_MAX } from './sharing/shared-state.js';
import { Sharing } from './sharing/sharing.js';
import { DebugLevel, TraceLevel } from './protocol/trace.js';
import { VerbsTransport } from './transport/verbs-transport.js';

/** How a node is set up. */
export type RdsNodeOptions = Pick<
  CoreOptions,
  'heartbeatMicros' | 'outageMicros' | 'recoveryMicros' | 'parameters' | 'pathsMax' | 'log'
> & {
  /** Users and groups that may use reliable datagrams. Default /etc/verbena/rds.access. */
  readonly accessFile?: string;
  /**
   * Messages shorter than this many bytes are copied even with MessageFlag.ZEROCOPY. Default 32768:
   * from that length on, sending without a copy takes less processor time (`bench rds`).
   */
  readonly zeroCopyBytes?: number;
  /**
   * Authenticates all connections of the node with a pre-shared key, and their packets: required
   * then, without a fallback. Peers are nodes of our own kind with the same key; Linux has none.
   * All processes of a shared device have it, or none. Default: no authentication.
   */
  readonly auth?: AuthOptions;
};

/** Options of `addDevice`. */
export interface AddDeviceOptions {
  /** The device only carries messages of other addresses. Default false. */
  readonly isReserve?: boolean;
}

const nodes = new WeakMap<Device, RdsNode>();
const KBYTE = 1024;
/** So long the end waits for peers to have the last acknowledgements. */
const FAREWELL_MICROS = 100_000;
const ZERO_COPY_BYTES = 32768;
/** Between two looks at completions of a thread that is blocked. */
const SETTLE_MILLIS = 1;
const SLEEP = new Int32Array(new SharedArrayBuffer(4));
/** Of this software, as `config` says it. */
const VERSION = '0.1.0';

function checkOptions(options: RdsNodeOptions): void {
  const limits = 'heartbeatMicros outageMicros recoveryMicros pathsMax zeroCopyBytes';
  checkKeys('RdsNode.of', options, `${limits} parameters log accessFile auth`);
  const rows = [
    ['heartbeatMicros', 1000],
    ['outageMicros', 1000],
    ['recoveryMicros', 0],
    ['pathsMax', 1],
    ['zeroCopyBytes', 0],
  ] as const;
  for (const [name, least] of rows) {
    const value = options[name];
    if (value !== undefined) checkWhole(name, value, least, Number.MAX_SAFE_INTEGER);
  }
  const { log, accessFile } = options;
  checkFunction('log', log);
  if (accessFile === undefined || typeof accessFile === 'string') return;
  throw mustBe('accessFile', 'a path', accessFile);
}

/** A device’s node of reliable datagrams: its paths, ports and settings. */
export class RdsNode {
  readonly context: Context;
  readonly core: RdsCore;
  /** @internal */
  readonly transports: MultiDeviceTransport;
  /** @internal Open sockets of this process: they end with the node. */
  readonly sockets = new Set<{ close(): void }>();
  /** @internal True: the node opens no device by itself when this machine loses its addresses. */
  stays = false;
  /** Messages of fewer bytes are copied. */
  readonly zeroCopyBytes: number;
  readonly #receiveBytesMax: number;
  readonly #accessFile: string;
  readonly #options: RdsNodeOptions;
  readonly #sharing: Sharing | undefined;
  #auth: AuthOptions | undefined;
  #authRule: AuthRule | undefined;
  /** That has the connections, when another one did before. */
  #inherited: RdsCore | undefined;
  #cancelTimer: CancelTimer | undefined;
  #timerMicros = 0;
  #isClosed = false;
  #isFollowing = false;
  /** Of devices that the node has opened itself. */
  readonly #own = new Set<Context>();

  /**
   * Returns the device's node; the first call creates it. Throws MisuseError; RefusalError ENOMEM,
   * EADDRINUSE, EBUSY (it exists with another `auth`), EACCES (the access file, or another `auth` in
   * the node's other processes), EOPNOTSUPP (`auth` in a browser).
   */
  static of(context: Context, options: RdsNodeOptions = {}): RdsNode {
    context.checkOpen();
    checkOptions(options);
    const known = nodes.get(context.device);
    if (known && !known.#isClosed) {
      known.#checkAuth(options.auth);
      return known;
    }
    const node = new RdsNode(context, options);
    nodes.set(context.device, node);
    return node;
  }

  private constructor(context: Context, options: RdsNodeOptions) {
    this.context = context;
    this.#options = options;
    this.zeroCopyBytes = options.zeroCopyBytes ?? ZERO_COPY_BYTES;
    this.#accessFile = options.accessFile ?? ACCESS_FILE;
    this.checkAccess();
    const { MaxRecvMemory } = parametersOf(options.parameters);
    this.#receiveBytesMax = MaxRecvMemory * KBYTE;
    this.#setAuth(options.auth);
    const transport = new VerbsTransport(context, 0, this.#receiveBytesMax, this.#auth);
    this.transports = new MultiDeviceTransport(transport);
    const { shared } = context.device;
    let sharedState: SharedState | undefined;
    try {
      sharedState = shared && SharedState.join(context, () => transport.random(), this.#authKind);
    } catch (error) {
      transport.close();
      throw error;
    }
    const isLed = sharedState !== undefined && !sharedState.tryOwn();
    this.core = this.#makeCore(isLed ? undefined : sharedState);
    this.#inform(() => `incarnation ${this.core.incarnation}${isLed ? ', carried elsewhere' : ''}`);
    this.core.claims = sharedState;
    transport.core = this.core;
    transport.onInput = () => this.arm();
    transport.onBroken = (peer) => void this.#follow(peer);
    this.#sharing =
      sharedState && new Sharing(context, sharedState, () => this.#inherit(sharedState));
    if (isLed) this.core.elsewhere = this.#sharing!.follow(this.core);
    else {
      transport.listen();
      this.#sharing?.lead(this.core);
    }
    context.siblings.observers.add({
      asyncEvent: () => {},
      peerGone: () => {},
      stays: true,
      closing: () => this.#leave(),
    });
  }

  #makeCore(sharedState: SharedState | undefined): RdsCore {
    const { clock } = this.context.device;
    const now = clock.now();
    // So that what we send is above all that a former incarnation of this node has sent.
    const nanos = clock.wallclockNanos?.(now) ?? BigInt(Math.floor(now)) * 1000n;
    return new RdsCore(this.transports, {
      ...this.#options,
      former: this.core,
      ...(sharedState && { pathRecords: sharedState, pathsMax: SHARED_PATHS_MAX }),
      local: this.context.local,
      identity: ownIdentity(),
      admits: (identity) => this.#admits(identity),
      incarnation: sharedState?.incarnation ?? (this.transports.random() || 1),
      firstSequence: Number(nanos / 1000n),
    });
  }

  #setAuth(auth: AuthOptions | undefined): void {
    if (auth === undefined) return;
    this.#authRule = checkAuth(auth);
    this.#auth = copyAuth(auth);
  }

  get #authKind(): AuthKind {
    if (!this.#authRule) return AuthKind.NONE;
    return this.#authRule.encrypts ? AuthKind.ENCRYPTED : AuthKind.TAGGED;
  }

  /** Throws if the caller asks for other keys than the node has, or the node has none. */
  #checkAuth(auth: AuthOptions | undefined): void {
    if (auth === undefined) return;
    const { keys, encrypts } = checkAuth(auth);
    const own = this.#authRule;
    const ids = keys.map(({ id }) => id).join();
    if (own?.keys.map(({ id }) => id).join() === ids && own.encrypts === encrypts) return;
    throw new RefusalError(
      'EBUSY',
      own
        ? 'RdsNode.of: the node of this device has another `auth`; node.setAuth replaces its keys'
        : 'RdsNode.of: the node of this device has no `auth`; pass it before the first socket',
    );
  }

  /**
   * Replaces the keys of a node with `auth`; connections that are up keep theirs. To rotate a key,
   * add it as the second one at all nodes, then make it the first one, then the only one. Throws
   * MisuseError.
   */
  setAuth(auth: AuthOptions): void {
    const own = this.#authRule;
    if (!own || checkAuth(auth).encrypts !== own.encrypts) {
      throw new MisuseError(
        'auth',
        'setAuth needs a node that was created with `auth`, and the same `encrypt`',
      );
    }
    this.#setAuth(auth);
    for (const transport of this.transports.all) transport.setAuth(this.#auth!);
  }

  /** Becomes the owner of the node after its former owner has died. */
  #inherit(sharedState: SharedState): RdsCore {
    const { first } = this.transports;
    const core = this.#makeCore(sharedState);
    first.core = core;
    this.#inherited = core;
    this.#inform(() => 'is owned by this process from now on');
    first.listen();
    return core;
  }

  /** Does this process own the node's connections? */
  get isOwner(): boolean {
    return this.#sharing?.isOwner ?? true;
  }

  get #active(): RdsCore {
    return this.#inherited ?? this.core;
  }

  /** Closes when peers have acknowledged what was read, or after FAREWELL_MICROS. */
  async #leave(): Promise<void> {
    const { clock } = this.context.device;
    await new Promise<void>((resolve) => {
      let left = 0;
      const cancelTimer = clock.at(this.now + FAREWELL_MICROS, resolve);
      const done = (): void => {
        if (--left > 0) return;
        cancelTimer();
        resolve();
      };
      left = this.#isClosed ? 0 : this.#active.acknowledgeNow(this.now, done);
      if (left === 0) done();
    });
    this.close();
  }

  /**
   * Adds a device to this node: messages that one device cannot carry go over another, and peers
   * of our own kind learn its address. A closed device is skipped; the node ends with its first.
   * `isReserve`: the device only carries messages of other addresses, and is the source of none.
   * Throws MisuseError (also for a device that the node has in the other role), RefusalError
   * EADDRINUSE (it is a node), ENOBUFS (at most 8), ENOMEM.
   */
  addDevice(context: Context, options: AddDeviceOptions = {}): void {
    checkContext('addDevice', context);
    checkKeys('addDevice', options, 'isReserve');
    const { isReserve = false } = options;
    if (typeof isReserve !== 'boolean') {
      throw new MisuseError('isReserve', `addDevice: must be a boolean, got ${shown(isReserve)}`);
    }
    context.checkOpen();
    const known = nodes.get(context.device);
    if (known && !known.#isClosed) {
      if (known === this) return this.#checkRole(context, isReserve);
      throw new RefusalError(
        'EADDRINUSE',
        `addDevice: ${context.local.gid} has its own node; close that`,
      );
    }
    const transports = this.transports;
    const index = transports.all.length;
    const transport = new VerbsTransport(context, index, this.#receiveBytesMax, this.#auth);
    transport.core = this.core;
    transport.onInput = () => this.arm();
    transport.onBroken = (peer) => void this.#follow(peer);
    try {
      transport.listen();
      this.core.addAddress(this.now, context.local, isReserve);
    } catch (error) {
      transport.close();
      throw error;
    }
    transports.all.push(transport);
    nodes.set(context.device, this);
    this.#inform(() => `is at ${context.local}, too`);
    context.siblings.observers.add({
      asyncEvent: () => {},
      peerGone: () => {},
      stays: true,
      closing: async () => {
        transports.leave(transport, this.core);
        nodes.delete(context.device);
        this.arm();
      },
    });
    this.arm();
  }

  /**
   * If this machine has lost all addresses of the node: adds a device at the address from which it
   * reaches `peer` now. Peers know the node by its former address, and so do its sockets.
   */
  async #follow(peer: Endpoint): Promise<void> {
    const { all } = this.transports;
    const isStranded = !this.context.device.shared && !all.some(({ isHere }) => isHere);
    if (!isStranded || this.stays || this.#isFollowing || this.#isClosed) return;
    this.#isFollowing = true;
    let context: Context | undefined;
    try {
      const address = await localAddressTowards(peer.gid.toString());
      context = await openTowards(address, { address, keepsAlive: false }, ROCE_PORT);
      this.#own.add(context);
      if (this.#isClosed) return void (await context.close());
      this.addDevice(context);
      for (const path of this.paths) path.seek(this.now);
      this.#say(
        DebugLevel.WARNINGS,
        `this machine has lost ${this.core.local.gid}: ${address} serves`,
      );
    } catch (error) {
      await context?.close();
      // Another connection that breaks tries again.
      this.#say(DebugLevel.ERRORS, `no other address serves: ${(error as Error).message}`);
    } finally {
      this.#isFollowing = false;
    }
  }

  /** A device of this node does not change its role. */
  #checkRole(context: Context, isReserve: boolean): void {
    const index = this.transports.all.findIndex((one) => one.context.device === context.device);
    if (index < 0 || this.core.isReserve(index) === isReserve) return;
    const [role, other] = isReserve ? ['an address', 'a reserve'] : ['a reserve', 'an address'];
    const rule = `addDevice: ${context.local.gid} is ${role} of this node already, not ${other}`;
    throw new MisuseError('isReserve', `${rule}; close its context, and open it anew`);
  }

  /** Throws RefusalError EACCES if the access file does not list this process's user or groups. */
  checkAccess(): void {
    const list = readAccessList(this.#accessFile);
    if (!list || list.allows(ownIdentity())) return;
    throw new RefusalError(
      'EACCES',
      `socket: this user has no access; add it or one of its groups to ${this.#accessFile}`,
    );
  }

  /** Fails closed: a file that cannot be read or parsed admits no peer. */
  #admits(identity: Identity | undefined): boolean {
    try {
      return readAccessList(this.#accessFile)?.allows(identity) ?? true;
    } catch (error) {
      if (error instanceof RefusalError) return false;
      throw error;
    }
  }

  get now(): number {
    return this.context.device.clock.now();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Send buffers in use. */
  get buffersUsed(): number {
    return this.transports.buffersUsed;
  }

  /** @internal Peers, of the process that owns the node. */
  get paths(): Iterable<Path> {
    return this.#active.paths;
  }

  #inform(text: () => string): void {
    const { trace, local } = this.core;
    trace.log(this.now, DebugLevel.INFORMATION, () => `node ${local} ${text()}`);
  }

  #say(level: number, text: string): void {
    this.core.trace.log(this.now, level, () => text);
  }

  /** The text of /proc/driver/rds/stats. */
  stats(): string {
    const rxMemory = this.transports.receiveBytes;
    const { nodesConnected, stalledPorts } = this.#active.gauges();
    const gauges = { ...this.core.gauges(), nodesConnected, stalledPorts, rxMemory };
    return statsText(this.core.statistics, gauges);
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
    const { receivesPosted: rxBufs, receivesTaken } = this.transports;
    const sessions = [...this.paths].map(({ peer, state }) => {
      return { ip: `${peer.gid}`, state, rxBufs, rxCache: receivesTaken };
    });
    const sockets = [...this.core.ports.values()].map(({ number, pending, isStalled }) => {
      return { port: number, rxPending: pending, state: isStalled ? 'STALLED' : 'ACTIVE' };
    });
    return infoText(sessions, sockets);
  }

  /** When a call began, if `level` of RdsTraceLvl says that it is timed; else 0. */
  begun(level: number, name: string): number {
    const { trace } = this.core;
    if (trace.isLogged(DebugLevel.CALLS)) trace.write(this.now, DebugLevel.CALLS, name);
    return trace.isTimed(level) ? this.now : 0;
  }

  /** It ends. */
  ended(begun: number, name: string): void {
    if (begun !== 0) this.core.trace.timed(begun, name, this.now - begun);
  }

  /** A call that neither sends, receives nor polls. */
  control<Result>(name: string, run: () => Result): Result {
    const begun = this.begun(TraceLevel.CTRL, name);
    try {
      return run();
    } finally {
      this.ended(begun, name);
    }
  }

  /** To be called after every call of the core: the next deadline may be another. */
  arm(): void {
    const next = this.#active.nextMicros;
    if (next === 0 || this.#isClosed || (this.#timerMicros !== 0 && this.#timerMicros <= next)) {
      return;
    }
    this.#setTimer(next);
  }

  #setTimer(next: number): void {
    this.#cancelTimer?.();
    this.#timerMicros = next;
    const fire = (): void => {
      this.#timerMicros = 0;
      this.#cancelTimer = undefined;
      this.#active.advance(this.now);
      this.arm();
    };
    // An acknowledgement that waits for a message must not keep the event loop busy meanwhile.
    this.#cancelTimer = this.context.device.clock.at(next, fire, true);
  }

  /**
   * @internal At the end of a process, which has no more turns of the event loop: blocks it until
   * the devices of the peers have every message, at most `millis`. `isEmpty` sends what waits
   * outside of the node, and returns whether it sent all. The devices must have threads of their
   * own.
   */
  settle(isEmpty: () => boolean, millis: number): void {
    const { device } = this.context;
    let left = 0;
    let isLast = false;
    for (const until = this.now + millis * 1000; this.now < until;) {
      const isSent = isEmpty();
      if (left === 0) {
        if (isLast) return;
        // Behind every message: its completion says that the peer's device has them.
        isLast = isSent;
        left = this.#active.acknowledgeNow(this.now, () => left--);
        if (left === 0) return;
      }
      device.engine.drain();
      Atomics.wait(SLEEP, 0, 0, SETTLE_MILLIS);
      for (const transport of this.transports.all) transport.sweep();
    }
  }

  /** Ends all connections and gives everything back; the device stays open. */
  close(): void {
    if (this.#isClosed) return;
    for (const socket of [...this.sockets]) socket.close();
    this.#sharing?.close();
    this.#inherited?.close(this.now);
    this.core.close(this.now);
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.transports.close();
    this.#sharing?.closed();
    for (const { context } of this.transports.all) nodes.delete(context.device);
    for (const context of this.#own) void context.close();
  }
}
