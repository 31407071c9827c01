/**
 * The node of this process at one local address: made when a socket wants it first, shared by all,
 * and ended some time after the last one. Keeps no process alive but while something is on its way.
 */
import { RealClock } from '../device/clock.js';
import { LinkError, VerbenaError } from '../errors/errors.js';
import { Endpoint, Gid } from '../link/endpoint.js';
import { faultLink } from '../link/faults/fault.js';
import { ROCE_PORT, type Link } from '../link/link.js';
import { createSocket } from '../link/plain-dgram.js';
import { UdpLink } from '../link/udp/udp.js';
import { AF_INET_OFFLOAD, SOCK_DGRAM } from '../rds/wire/constants.js';
import { publishNode } from '../rds/info-server.js';
import { RdsNode } from '../rds/node.js';
import { socket, type RdsSocket } from '../rds/socket/socket.js';
import type { Context } from '../verbs/context.js';
import { openDevice } from '../verbs/open-device.js';
import { isUnicast } from './addresses.js';
import { processEnvironment } from './settings.js';

/** After the last socket, for the next one. */
const IDLE_MILLIS = 1000;
/** How often it is looked whether everything is acknowledged, and for how long. */
const HOLD_MILLIS = 20;
const HOLD_MILLIS_MAX = 10_000;
/** Interval between two requests to a peer that had no node. */
const ABSENT_MILLIS = 5000;
/** Peers, and their ports, that are remembered. */
const REMEMBERED_MAX = 4096;

/** What happens with a datagram: it was taken, goes by UDP, or is to be tried again. */
export type Outcome = 'taken' | 'plain' | 'resolving' | 'EWOULDBLOCK' | 'ENOBUFS';

const localNodes = new Map<string, Promise<LocalNode | undefined>>();
const alive = new Set<LocalNode>();

/**
 * Sends peers the end of this process's nodes, so that no connection to them remains for the next
 * process at this address. Queued messages still leave. Signals that kill at once prevent it.
 */
function sayFarewell(): void {
  for (const localNode of alive) localNode.end();
}

/** An RDS node of this process at one local address, and what its sockets know of peers. */
export class LocalNode {
  readonly address: string;
  readonly #context: Context;
  readonly #node: RdsNode;
  #users = 0;
  #idle: NodeJS.Timeout | undefined;
  #isHeld = false;
  #heldUntil = 0;
  /** UDP ports of peers' devices, by the address and port that a datagram came from. */
  readonly #origins = new Map<string, number>();
  /** Until when peers, by address, are taken to have no node. */
  readonly #absent = new Map<string, number>();
  readonly #asked = new Set<string>();
  /** Called when a request shows that a peer has no node. */
  readonly waiting = new Set<() => void>();

  private constructor(address: string, context: Context) {
    this.address = address;
    this.#context = context;
    this.#node = RdsNode.of(context, {
      heartbeatMicros: processEnvironment().heartbeatMillis * 1000,
    });
    publishNode(this.#node);
    if (alive.size === 0) process.once('exit', sayFarewell);
    alive.add(this);
  }

  /** Opens or shares the node of an address for a socket; undefined if it has none. */
  static async acquire(address: string): Promise<LocalNode | undefined> {
    const key = Gid.parse(address).toString();
    let opening = localNodes.get(key);
    if (!opening) {
      opening = LocalNode.#open(key);
      localNodes.set(key, opening);
    }
    const localNode = await opening;
    if (!localNode) localNodes.delete(key);
    else if (localNode.#node.isClosed) return LocalNode.acquire(address);
    else localNode.#take();
    return localNode;
  }

  static async #open(address: string): Promise<LocalNode | undefined> {
    // If another process has the RoCE port, any port serves: peers learn it from the request.
    for (const port of [ROCE_PORT, 0]) {
      try {
        return new LocalNode(address, await openAt(address, port));
      } catch (error) {
        if (!(error instanceof VerbenaError)) throw error;
        if (!(error instanceof LinkError) || error.code !== 'EADDRINUSE') return undefined;
      }
    }
    return undefined;
  }

  /** An RDS socket at a port; undefined: another one has it, or this user may have none. */
  bind(port: number): RdsSocket | undefined {
    let made: RdsSocket | undefined;
    try {
      made = socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, this.#context);
      made.bind({ port });
      return made;
    } catch (error) {
      if (!(error instanceof VerbenaError)) throw error;
      made?.close();
      return undefined;
    }
  }

  release(): void {
    this.#users--;
    if (this.#users > 0) return;
    this.#idle = setTimeout(() => this.#idled(), IDLE_MILLIS);
    this.#idle.unref();
  }

  /** Sends by RDP if the peer has it. What it says is 'taken' was copied. */
  send(from: RdsSocket, address: string, port: number, iov: readonly Uint8Array[]): Outcome {
    const absentUntil = this.#absent.get(address);
    if (absentUntil !== undefined && absentUntil > performance.now()) return 'plain';
    const origin = `${address} ${port}`;
    const udpPort = this.#origins.get(origin) ?? ROCE_PORT;
    const path = this.#node.core.path(new Endpoint(Gid.parse(address), udpPort));
    // Linux does not send its bound ports.
    if (!path || (path.kind === 'linux' && !this.#origins.has(origin))) return 'plain';
    if (absentUntil === undefined && !path.kind && !this.#asked.has(address)) {
      if (!isUnicast(address)) {
        remember(this.#absent, address, Infinity);
        return 'plain';
      }
      if (udpPort === ROCE_PORT) this.#ask(address);
    }
    try {
      from.sendmsg({ name: { address, port, udpPort }, iov });
      this.#absent.delete(address);
      this.#hold();
      return 'taken';
    } catch (error) {
      const { code } = error as { code?: unknown };
      if (code === 'ENOBUFS') return code;
      if (code === 'EWOULDBLOCK') {
        if (path.state === 'ACTIVE') return code;
        // An earlier request failed: datagrams do not wait for this one.
        return absentUntil === undefined ? 'resolving' : 'plain';
      }
      // The node may be slow to answer: datagrams wait until `resolveMillis` is over.
      if (absentUntil === undefined && !path.kind) return 'resolving';
      this.#origins.delete(origin);
      if (path.state !== 'ACTIVE') this.absent(address);
      return 'plain';
    }
  }

  /** A datagram came by RDP: answers go the same way. */
  came(address: string, port: number, udpPort: number): void {
    remember(this.#origins, `${address} ${port}`, udpPort);
    this.#absent.delete(address);
  }

  /** The peer has no node. */
  absent(address: string): void {
    remember(this.#absent, address, performance.now() + ABSENT_MILLIS);
    for (const wake of [...this.waiting]) wake();
  }

  #take(): void {
    this.#users++;
    clearTimeout(this.#idle);
  }

  /**
   * Probes whether the peer's system rejects its port 4791: a connected socket gets that error much
   * sooner than a request to an absent node times out.
   */
  #ask(address: string): void {
    this.#asked.add(address);
    const question = createSocket(this.#context.local.gid.isIpv4 ? 'udp4' : 'udp6');
    const end = (): void => {
      if (!this.#asked.delete(address)) return;
      clearTimeout(timer);
      question.close();
    };
    const timer = setTimeout(end, ABSENT_MILLIS).unref();
    question.unref();
    question.on('error', () => {
      end();
      this.absent(address);
    });
    // connect(2) on a socket shared by cluster workers would affect all of them.
    question.bind({ port: 0, address: this.address, exclusive: true }, () => {
      question.connect(ROCE_PORT, address, () => question.send(new Uint8Array(0)));
    });
  }

  get #pending(): number {
    let pending = 0;
    for (const path of this.#node.core.paths) pending += path.pending;
    return pending;
  }

  /** The process stays while something is on its way. */
  #hold(): void {
    this.#heldUntil = performance.now() + HOLD_MILLIS_MAX;
    if (this.#isHeld) return;
    this.#isHeld = true;
    const look = (): void => {
      this.#isHeld = this.#pending > 0 && performance.now() < this.#heldUntil;
      if (this.#isHeld) setTimeout(look, HOLD_MILLIS);
    };
    setTimeout(look, HOLD_MILLIS);
  }

  #idled(): void {
    if (this.#users > 0) return;
    if (this.#isHeld) {
      this.#idle = setTimeout(() => this.#idled(), IDLE_MILLIS).unref();
      return;
    }
    this.end();
    localNodes.delete(this.address);
    void this.#context.close();
  }

  /** Ends all connections. */
  end(): void {
    alive.delete(this);
    if (alive.size === 0) process.removeListener('exit', sayFarewell);
    this.#node.close();
  }
}

function openAt(address: string, port: number): Promise<Context> {
  const { loss, seed } = processEnvironment();
  const makeSocket = (...words: Parameters<typeof createSocket>) => createSocket(...words).unref();
  let link: Link = new UdpLink({ address, port }, makeSocket as typeof createSocket);
  if (loss > 0) link = faultLink(link, { loss: loss / 100, seed });
  return openDevice({ link, clock: new RealClock({ keepsAlive: false }) });
}

/** The oldest goes when there are too many. */
function remember<Value>(map: Map<string, Value>, key: string, value: Value): void {
  if (map.size >= REMEMBERED_MAX && !map.has(key)) {
    const [oldest] = map.keys();
    map.delete(oldest!);
  }
  map.set(key, value);
}
