/**
 * Connection managers without devices: cores, a network with scripted faults for each datagram,
 * and time that jumps from deadline to deadline. Everything is a pure function of the calls made.
 */
import { buildIpCm, serviceIdOf } from '../../host/cm/address.js';
import type { AuthRule } from '../../host/cm/auth-option.js';
import type {
  Connection,
  ConnectionEvent,
  ConnectionOwner,
  Listener,
  Request,
} from '../../host/cm/connection.js';
import { CmCore } from '../../host/cm/core.js';
import { PathMtus } from '../../host/cm/path-mtus.js';
import { PortSpace } from '../../host/cm/enums.js';
import type { CmLimits } from '../../host/cm/limits.js';
import { MAD_BYTES, parseMad, type FieldsOf, type MessageName } from '../../host/cm/mad.js';
import { Endpoint } from '../../host/link/endpoint.js';
import { Random } from '../simulation/random.js';

/** Every message of the connection manager. */
export const MESSAGE_NAMES: readonly MessageName[] = [
  'REQ',
  'MRA',
  'REJ',
  'REP',
  'RTU',
  'DREQ',
  'DREP',
  'SIDR_REQ',
  'SIDR_REP',
  'LAP',
  'APR',
];

export type Fate = 'pass' | 'drop' | 'double' | 'late';

/** CA GUID of a Verbena device at UDP port 4791. */
export const OWN_KIND = (0x56455242n << 32n) | (4791n << 16n) | 0x1200n;

const FLIGHT_MICROS = 100;
/** Long enough to be overtaken by everything that is sent before the next timeout. */
const LATE_MICROS = 1_500_000;
/** 4.096 us * 2^18: about a second. */
const RESPONSE_TIMEOUT = 18;

interface Flight {
  readonly micros: number;
  readonly order: number;
  readonly mad: Uint8Array;
  readonly from: Endpoint;
  readonly to: Endpoint;
}

/** One end of a connection, as an application would hold it. */
export class End implements ConnectionOwner {
  readonly events: string[] = [];
  connection: Connection | undefined;
  reason = 0;
  privateData = new Uint8Array(0) as Uint8Array;
  readonly #node: Node;

  constructor(node: Node) {
    this.#node = node;
  }

  connectionEvent(event: ConnectionEvent): void {
    this.events.push(event.kind);
    if (event.kind === 'reply') {
      this.privateData = event.reply.privateData;
      this.#node.replied(this);
    }
    if (event.kind === 'rejected') {
      this.reason = event.reason;
      this.privateData = event.privateData;
    }
    if (event.kind === 'disconnected') this.privateData = event.privateData;
    if (event.kind === 'resolved') this.privateData = event.reply.privateData;
  }

  /** All but what says that an old number is free again. */
  get story(): string {
    return this.events.filter((kind) => kind !== 'timewaitExit').join(' ');
  }
}

export class Node {
  readonly core: CmCore;
  readonly endpoint: Endpoint;
  readonly world: CmWorld;
  /** Requests at its listeners, each with the end that was made for it. */
  readonly requests: { readonly request: Request; readonly end: End }[] = [];
  /** Handler of a request. Default: accept it. */
  onRequest: (request: Request, end: End) => void = (request) => this.accept(request.connection);
  /** Handler of a reply. Default: be ready. */
  onReply: (end: End) => void = (end) => this.core.ready(end.connection!);
  /** Of its listeners and its connections. Default: none. */
  auth: AuthRule | undefined;
  readonly #random: Random;

  constructor(world: CmWorld, index: number, limits: Partial<CmLimits>, isOwnKind: boolean) {
    this.world = world;
    this.endpoint = Endpoint.parse(`10.0.0.${index + 1}`, 4791);
    this.#random = new Random(index + 1);
    this.core = new CmCore({
      slot: 0,
      caGuid: isOwnKind ? OWN_KIND : 0x0200_0000_0000_0000n + BigInt(index),
      gid: this.endpoint.gid,
      pathMtus: new PathMtus(),
      random: () => this.#random.u32(),
      send: (mad, to) => world.carry(mad, this.endpoint, to),
      limits,
    });
  }

  get now(): number {
    return this.world.now;
  }

  replied(end: End): void {
    this.onReply(end);
  }

  listen(port = 7, backlog = 16, portSpace: number = PortSpace.TCP): Listener {
    const rule = (): AuthRule | undefined => this.auth;
    return this.core.listen(serviceIdOf(portSpace, port), backlog, {
      get authRule() {
        return rule();
      },
      request: (request) => {
        const end = new End(this);
        end.connection = request.connection;
        request.connection.owner = end;
        this.requests.push({ request, end });
        this.onRequest(request, end);
      },
    });
  }

  connect(peer: Node, fields: Partial<FieldsOf<'REQ'>> = {}): End {
    const end = new End(this);
    const header = buildIpCm({
      source: this.endpoint.gid,
      target: peer.endpoint.gid,
      sourcePort: 50000,
    });
    const privateData = new Uint8Array(92);
    privateData.set(header);
    const asked = {
      ...requestFields(serviceIdOf(PortSpace.TCP, 7), this.core.caGuid),
      localQpn: this.#random.u32() & 0xffff,
      privateData,
      ...fields,
    } as FieldsOf<'REQ'>;
    end.connection = this.core.connect(this.now, peer.endpoint, end, asked, this.auth);
    return end;
  }

  resolve(peer: Node): End {
    const end = new End(this);
    const source = this.endpoint.gid;
    const privateData = buildIpCm({ source, target: peer.endpoint.gid, sourcePort: 50000 });
    const serviceId = serviceIdOf(PortSpace.UDP, 7);
    const fields = { pkey: 0xffff, serviceId, privateData };
    end.connection = this.core.resolveService(this.now, peer.endpoint, end, fields, {
      cmResponseTimeout: RESPONSE_TIMEOUT,
      maxCmRetries: 15,
    });
    return end;
  }

  accept(connection: Connection, privateData: Uint8Array = new Uint8Array(0)): void {
    this.core.accept(this.now, connection, {
      ...replyFields(this.core.caGuid),
      localQpn: this.#random.u32() & 0xffff,
      privateData,
    });
  }
}

function requestFields(serviceId: bigint, localCaGuid: bigint): Partial<FieldsOf<'REQ'>> {
  return {
    serviceId,
    localCaGuid,
    remoteCmResponseTimeout: RESPONSE_TIMEOUT,
    localCmResponseTimeout: RESPONSE_TIMEOUT,
    maxCmRetries: 15,
    pathMtu: 3,
    pkey: 0xffff,
    primaryLocalAckTimeout: 17,
  };
}

function replyFields(
  localCaGuid: bigint,
): Omit<FieldsOf<'REP'>, 'localCommId' | 'remoteCommId' | 'localQpn' | 'privateData'> {
  return {
    localCaGuid,
    localQkey: 0,
    localEecn: 0,
    startingPsn: 0,
    responderResources: 1,
    initiatorDepth: 1,
    targetAckDelay: 15,
    failoverAccepted: 0,
    flowControl: 0,
    rnrRetryCount: 7,
    srq: 0,
  };
}

export class CmWorld {
  readonly nodes: Node[] = [];
  /** Names of the messages that were sent, in order. */
  readonly sent: MessageName[] = [];
  /** Fate of the nth datagram. Default: it passes. */
  fate: (index: number, name: MessageName, mad: Uint8Array) => Fate = () => 'pass';
  now = 1_000_000;
  #order = 0;
  #flights: Flight[] = [];

  constructor(count = 2, limits: Partial<CmLimits> = {}, isOwnKind = false) {
    for (let index = 0; index < count; index++) {
      this.nodes.push(new Node(this, index, limits, isOwnKind));
    }
  }

  get a(): Node {
    return this.nodes[0]!;
  }

  get b(): Node {
    return this.nodes[1]!;
  }

  carry(mad: Uint8Array, from: Endpoint, to: Endpoint): void {
    const message = parseMad(mad.subarray(0, MAD_BYTES));
    if (typeof message === 'string') throw new Error(`a core sent no message: ${message}`);
    const index = this.sent.push(message.name) - 1;
    const fate = this.fate(index, message.name, mad);
    if (fate === 'drop') return;
    this.#fly(mad, from, to, FLIGHT_MICROS * (fate === 'late' ? 0 : 1) + this.#delay(fate));
    if (fate === 'double') this.#fly(mad, from, to, FLIGHT_MICROS + 1);
  }

  /** A forged datagram. */
  forge(mad: Uint8Array, from: Endpoint, to: Endpoint): void {
    this.#fly(mad, from, to, FLIGHT_MICROS);
  }

  /** Runs until nothing flies and nothing is due, or `done`, at most `seconds` of this world. */
  run(done: () => boolean = () => false, seconds = 4000): void {
    const end = this.now + seconds * 1e6;
    while (!done()) {
      const flight = this.#nextFlight();
      const node = this.#nextDue();
      const flightMicros = flight?.micros ?? Infinity;
      const dueMicros = node?.core.nextMicros ?? Infinity;
      const next = Math.min(flightMicros, dueMicros);
      if (next === Infinity) return;
      if (next > end) throw new Error(`not at rest after ${seconds} s`);
      this.now = Math.max(this.now, next);
      if (flight && flightMicros <= dueMicros) this.#land(flight);
      else node!.core.advance(this.now);
    }
  }

  /** Lets time pass, with all that happens in it. */
  sleep(seconds: number): void {
    const end = this.now + seconds * 1e6;
    const isLater = (): boolean => {
      const flight = this.#nextFlight()?.micros ?? Infinity;
      const due = this.#nextDue()?.core.nextMicros ?? Infinity;
      return Math.min(flight, due) > end;
    };
    this.run(isLater);
    this.now = end;
  }

  /** Delivers what flies and lets no deadline come. */
  settle(): void {
    for (let flight = this.#nextFlight(); flight; flight = this.#nextFlight()) {
      this.now = Math.max(this.now, flight.micros);
      this.#land(flight);
    }
  }

  /** Whatever is left in the books of any core, after everything is over. */
  leaks(): string[] {
    return this.nodes.flatMap(({ core }, index) =>
      Object.entries(core.books)
        .filter(([, count]) => count !== 0)
        .map(([name, count]) => `node ${index}: ${name} ${count}`),
    );
  }

  #delay(fate: Fate): number {
    return fate === 'late' ? LATE_MICROS : 0;
  }

  #fly(mad: Uint8Array, from: Endpoint, to: Endpoint, micros: number): void {
    const flight = { micros: this.now + micros, order: this.#order++, mad: mad.slice(), from, to };
    this.#flights.push(flight);
  }

  #land(flight: Flight): void {
    this.#flights = this.#flights.filter((other) => other !== flight);
    const node = this.nodes.find(({ endpoint }) => endpoint.equals(flight.to));
    node?.core.receive(this.now, flight.mad, flight.from);
  }

  #nextFlight(): Flight | undefined {
    let first: Flight | undefined;
    for (const flight of this.#flights) {
      const isEarlier =
        !first ||
        flight.micros < first.micros ||
        (flight.micros === first.micros && flight.order < first.order);
      if (isEarlier) first = flight;
    }
    return first;
  }

  #nextDue(): Node | undefined {
    return this.nodes
      .filter(({ core }) => core.nextMicros !== 0)
      .sort((x, y) => x.core.nextMicros - y.core.nextMicros)[0];
  }
}
