/**
 * The connection manager of one device: the state machine on queue pair 1, with the device's clock
 * and chance; and the tables that its ids share.
 */
import { AsyncEvent } from '#build/abi.js';
import { checkWhole } from '../errors/check-whole.js';
import { RefusalError } from '../errors/errors.js';
import type { Device } from '../device/device.js';
import type { CancelTimer } from '../device/clock.js';
import { nextTurn } from '../link/next-turn.js';
import type { AsyncEventRecord, Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { fillRandom } from '../verbs/refuse.js';
import { caGuidOf, serviceIdOf } from './address.js';
import { adopt } from './adoption.js';
import { CmCore } from './core.js';
import { disconnectAll, peerGone } from './endings.js';
import { GeneralServices } from './general-services.js';
import type { CmCounters } from './limits.js';
import { pathMtusOf } from './path-mtus.js';

/** An id as the manager sees it: receives the events of a device. */
export interface ManagedId {
  /** The first packet came to its queue pair. */
  communicationEstablished(): void;
  /** The device is gone. */
  deviceRemoval(): void;
}

const managers = new WeakMap<Device, Manager>();
/** Random words that are fetched at a time. */
const RANDOM_WORDS = 64;
/** Ports chosen by the manager begin here (RFC 6335). */
const DYNAMIC_PORT_LEAST = 49152;
const PORT_DRAWS = 256;

export class Manager {
  readonly core: CmCore;
  readonly ids = new Set<ManagedId>();
  /** The id that receives the events of a queue pair. */
  readonly byQueuePair = new Map<QueuePair, ManagedId>();
  readonly #services: GeneralServices;
  readonly #domains = new WeakMap<Context, ProtectionDomain>();
  readonly #ports = new Set<bigint>();
  readonly #random = new Uint32Array(RANDOM_WORDS);
  #randomLeft = 0;
  #cancelTimer: CancelTimer | undefined;
  #timerMicros = 0;
  /** True: the timer keeps the process alive. */
  #isTimerHeld = false;
  #isClosed = false;

  /** The device's manager, created at the first call. Throws RefusalError ENOMEM. */
  static of(context: Context): Manager {
    context.checkOpen();
    const known = managers.get(context.device);
    if (known) return known;
    // A context of its own: those that applications opened may end before others do.
    const manager = new Manager(context.openInner());
    managers.set(context.device, manager);
    return manager;
  }

  private constructor(readonly context: Context) {
    const { shared } = context.device;
    this.core = new CmCore({
      slot: shared?.slot ?? 0,
      ...this.#identity,
      ...(shared && {
        claim: (serviceId: bigint) => shared.takeService(serviceId),
        disclaim: (serviceId: bigint) => shared.giveBackService(serviceId),
        table: shared.members.connections,
      }),
      limits: { queuePairsMax: context.device.limits.queuePairsMax },
      pathMtus: pathMtusOf(context),
      random: () => this.random(),
      send: (mad, to) => this.#services.send(mad, to),
    });
    this.#services = new GeneralServices(context, (mad, source) => {
      this.core.receive(this.now, mad, source);
      this.arm();
    });
    context.siblings.observers.add({
      asyncEvent: (record) => this.#asyncEvent(record),
      peerGone: (peer) => {
        if (!peer) this.#moved();
        peerGone(this.core, this.now, peer);
        this.arm();
      },
      closing: () => this.#closing(),
    });
    if (shared) shared.members.adopt = () => this.#adopt();
  }

  get now(): number {
    return this.context.device.clock.now();
  }

  /** Identity of the device as peers see it. */
  get #identity() {
    const { device, local } = this.context;
    const pathMtuMax = this.context.queryPort().activeMtu;
    return { caGuid: caGuidOf(device.info, 0), gid: local.gid, pathMtuMax };
  }

  /** Is there a listener on the device? */
  get isListening(): boolean {
    return this.core.listeners.size > 0;
  }

  /** The default protection domain: one for each context. */
  pdOf(context: Context): ProtectionDomain {
    const known = this.#domains.get(context);
    if (known) return known;
    const pd = context.allocPd();
    this.#domains.set(context, pd);
    return pd;
  }

  get counters(): CmCounters & { readonly sendsDropped: number } {
    return { ...this.core.counters, sendsDropped: this.#services.sendsDropped };
  }

  /** 32 unpredictable bits. */
  random(): number {
    if (this.#randomLeft === 0) {
      fillRandom(new Uint8Array(this.#random.buffer), 0, RANDOM_WORDS);
      this.#randomLeft = RANDOM_WORDS;
    }
    return this.#random[--this.#randomLeft]!;
  }

  /** To be called after every input: the next deadline may be another. */
  arm(): void {
    const next = this.core.nextMicros;
    // The keep-alive timers of idle connections do not keep the process alive.
    const isWaiting = this.core.deadlines.size > this.core.watched.size;
    // A timer that fires too early looks again; most deadlines never come.
    const isSet = this.#timerMicros !== 0 && this.#timerMicros <= next;
    if (next === 0 || this.#isClosed) return;
    if (isSet && (this.#isTimerHeld || !isWaiting)) return;
    this.#cancelTimer?.();
    this.#timerMicros = next;
    this.#isTimerHeld = isWaiting;
    const fire = (): void => {
      this.#timerMicros = 0;
      this.#cancelTimer = undefined;
      this.core.advance(this.now);
      this.arm();
    };
    this.#cancelTimer = this.context.device.clock.at(next, fire, !isWaiting, isWaiting);
  }

  /** Takes a port of a port space; 0: any. Throws RefusalError EADDRINUSE. */
  takePort(portSpace: number, port: number): number {
    checkWhole('port', port, 0, 65535);
    for (let draw = 0; draw < PORT_DRAWS; draw++) {
      const span = 65536 - DYNAMIC_PORT_LEAST;
      const candidate = port === 0 ? DYNAMIC_PORT_LEAST + (this.random() % span) : port;
      const service = serviceIdOf(portSpace, candidate);
      if (!this.#ports.has(service)) {
        this.#ports.add(service);
        return candidate;
      }
      if (port !== 0) break;
    }
    const what =
      port === 0 ? 'no free port was found' : `port ${port} is taken; choose another, or 0`;
    throw new RefusalError('EADDRINUSE', `bindAddr: ${what}`);
  }

  releasePort(portSpace: number, port: number): void {
    this.#ports.delete(serviceIdOf(portSpace, port));
  }

  #moved(): void {
    this.core.moved(this.#identity);
    this.#services.forgetHandles();
  }

  /** Sends DREQs for the connections of dead processes of the device. */
  #adopt(): void {
    const { connections } = this.context.device.shared!.members;
    for (const [place, record] of connections.adopt()) {
      if (!adopt(this.core, this.now, place, record)) connections.forget(place);
    }
    this.arm();
  }

  #asyncEvent({ eventType, element }: AsyncEventRecord): void {
    if (eventType === AsyncEvent.PATH_MTU_ERR)
      this.core.pathMtus.tooLarge(this.now, element as QueuePair);
    if (eventType !== AsyncEvent.COMM_EST) return;
    // As messages: not in the middle of a verb.
    queueMicrotask(() => {
      if (!this.#isClosed) this.byQueuePair.get(element as QueuePair)?.communicationEstablished();
    });
  }

  async #closing(): Promise<void> {
    // Peers are notified if the link still works; their answers are not awaited.
    const said = this.context.failure ? 0 : disconnectAll(this.core, this.now);
    if (said > 0) await new Promise<void>(nextTurn);
    this.#isClosed = true;
    this.#cancelTimer?.();
    const { shared } = this.context.device;
    if (shared) shared.members.adopt = undefined;
    managers.delete(this.context.device);
    for (const id of [...this.ids]) id.deviceRemoval();
  }
}
