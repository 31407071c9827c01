/** The devices of a node as one transport: the route of a connection selects the device. */
import type { Endpoint } from '../../link/endpoint.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import type {
  Transport,
  TransportConnection,
  TransportOwner,
  Route,
  SendBuffer,
} from '../protocol/transport.js';
import type { RdsCore } from '../protocol/core.js';
import { homeTowards } from '../protocol/routes.js';
import type { LocalRegion } from './local-regions.js';
import type { VerbsTransport } from './verbs-transport.js';

export class MultiDeviceTransport implements Transport {
  /** By the index in routes; the first is the node's own. */
  readonly all: VerbsTransport[];
  /** Regions that sockets expose to peers; closed before the devices. */
  readonly memories = new Set<{ close(): void }>();

  constructor(first: VerbsTransport) {
    this.all = [first];
  }

  get first(): VerbsTransport {
    return this.all[0]!;
  }

  get receiveBytesMax(): number {
    return this.#sum((transport) => transport.receiveBytesMax);
  }

  /** Bytes of memory for receives. */
  get receiveBytes(): number {
    return this.#sum((transport) => transport.receiveBytes);
  }

  /** Receives that wait for messages. */
  get receivesPosted(): number {
    return this.#sum((transport) => transport.receivesPosted);
  }

  /** Receives that hold unread messages. */
  get receivesTaken(): number {
    return this.#sum((transport) => transport.receivesTaken);
  }

  /** Send buffers in use. */
  get buffersUsed(): number {
    return this.#sum((transport) => transport.sends.used);
  }

  get addresses(): Endpoint[] {
    return this.all.map(({ context }) => context.local);
  }

  connect(
    { from, to }: Route,
    connectionIndex: number,
    privateData: Uint8Array,
    owner: TransportOwner,
  ): TransportConnection {
    const transport = this.all[from]!;
    if (transport.isHere) return transport.connect(to, connectionIndex, privateData, owner);
    const closed = new ClosedConnection();
    queueMicrotask(() => {
      if (!closed.isClosed) owner.down(this.first.now, closed, true);
      this.first.onInput();
    });
    return closed;
  }

  /**
   * Links with connections of their own know their peers; other links match addresses, of which the
   * machine may have lost some.
   */
  homeOf(peer: Endpoint): number | undefined {
    const index = this.all.findIndex(({ isClosed, context }) => {
      return !isClosed && context.device.link?.peers?.some(({ gid }) => gid.equals(peer.gid));
    });
    if (index >= 0) return index;
    const away = this.all.flatMap(({ isHere }, at) => (isHere ? [] : [at]));
    if (away.length === 0 || away.length === this.all.length) return undefined;
    const reserves = this.all.flatMap(({ core }, at) => (core.isReserve(at) ? [at] : []));
    return homeTowards(this.addresses, peer, new Set([...away, ...reserves]));
  }

  denialOf(peer: Endpoint): string | undefined {
    for (const { denials } of this.all) {
      const sentence = denials.of(peer);
      if (sentence !== undefined) return sentence;
    }
    return undefined;
  }

  allocate(
    length: number,
    fragmentBytes: number,
    from: number,
    isUrgent = false,
  ): SendBuffer | undefined {
    const transport = this.all[from]!;
    return (transport.isClosed ? this.first : transport).sends.take(
      length,
      fragmentBytes,
      isUrgent,
    );
  }

  /** As `SendPool.wrap`, for memory of that device. */
  wrap(memory: Uint8Array, fragmentBytes: number, from: number): SendBuffer | undefined {
    const { sends, regions } = this.all[from]!;
    return sends.wrap(memory, fragmentBytes, regions);
  }

  /** Registers memory of that device. Throws MisuseError; RefusalError ENOMEM. */
  region(memory: Uint8Array, access: number, from: number): MemoryRegion {
    return this.all[from]!.pd.regMr(memory, access);
  }

  /** Registers an allocation once, for the node's own use. Throws as `region`. */
  hold(memory: Uint8Array, from: number): LocalRegion {
    return this.all[from]!.regions.hold(memory);
  }

  random(): number {
    return this.first.random();
  }

  close(): void {
    for (const memory of [...this.memories]) memory.close();
    for (const transport of this.all) transport.close();
  }

  /** Connections of a closing device fail over to another device. */
  leave(transport: VerbsTransport, core: RdsCore): void {
    if (transport.isClosed || transport === this.first) return;
    for (const connection of [...transport.byQueuePair.values()]) {
      connection.owner.down(transport.now, connection, false);
    }
    transport.close();
    core.advance(this.first.now);
  }

  #sum(of: (transport: VerbsTransport) => number): number {
    return this.all.reduce((sum, transport) => sum + of(transport), 0);
  }
}

/** A connection of a device that is closed, or whose address is gone: it is never established. */
class ClosedConnection implements TransportConnection {
  readonly room = 0;
  marksHeaders = false;
  isClosed = false;

  hold(): boolean {
    return false;
  }

  post(): void {}

  postCopy(): void {}

  close(): void {
    this.isClosed = true;
  }
}
