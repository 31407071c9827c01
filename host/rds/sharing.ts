/**
 * Which process of a shared device carries its node: whoever has the lock (an entry in the
 * device's table of services, which ends with its process). The others have a line to it; when it
 * is gone one of them goes on.
 */
import { createConnection, createServer, type Server } from 'node:net';
import { Endpoint } from '../link/endpoint.js';
import { ROCE_PORT } from '../link/link.js';
import type { Context } from '../verbs/context.js';
import { AREA_BYTES, Area } from './area.js';
import type { RdsCore } from './core.js';
import { Exchange } from './exchange.js';
import type { Ledger } from './ledger.js';
import { SocketLine, linePair, type Line } from './line.js';
import { Relay } from './relay.js';

/** How often a process that nobody carries for looks whether it may, or somebody does. */
const LOOK_MILLIS = 20;
/** How often whoever carries looks who is dead. */
const SWEEP_MILLIS = 100;

export class Sharing {
  readonly #context: Context;
  readonly #ledger: Ledger;
  /** The node's connections, on this process's device. */
  readonly #carry: () => RdsCore;
  #relay: Relay | undefined;
  #exchange: Exchange | undefined;
  #server: Server | undefined;
  #line: Line | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `carry` makes the core that has the connections, and listens. */
  constructor(context: Context, ledger: Ledger, carry: () => RdsCore) {
    this.#context = context;
    this.#ledger = ledger;
    this.#carry = carry;
  }

  get carries(): boolean {
    return this.#exchange !== undefined;
  }

  /** This process carries the node; its lock was taken. */
  lead(core: RdsCore): void {
    const exchange = new Exchange(core, this.#ledger, this.#context, this.#relay?.area);
    this.#exchange = exchange;
    exchange.takeOver();
    if (this.#relay) {
      const [mine, its] = linePair();
      exchange.welcome(its);
      this.#relay.join(mine, true);
    }
    const { slot } = this.#ledger.shared;
    const server = createServer((socket) => exchange.welcome(new SocketLine(socket.unref())));
    this.#server = server;
    server.on('error', () => {});
    // A cluster primary would keep the listener, and its name, after the end of this process.
    server.listen({ path: this.#nameOf(slot), exclusive: true }, () => {
      if (!this.#isClosed) this.#ledger.carrier = slot;
    });
    server.unref();
    this.#timer = setInterval(() => exchange.sweep(), SWEEP_MILLIS).unref();
  }

  /** Another process does. Throws RefusalError ENOMEM. */
  follow(core: RdsCore): Relay {
    const { shared, secret } = this.#ledger;
    const area = new Area(this.#context.alloc(AREA_BYTES));
    this.#ledger.publishArea(area.memory.byteOffset);
    this.#relay = new Relay(core, area, shared.slot, new Endpoint(secret, ROCE_PORT));
    this.#timer = setTimeout(this.#look).unref();
    return this.#relay;
  }

  /** Before the connections end: whoever goes on knows what is under way. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#server?.close();
    this.#exchange?.close();
    this.#relay?.close();
    this.#line?.close();
    this.#ledger.clearPorts(this.#ledger.shared.slot);
  }

  /** After they have. */
  closed(): void {
    if (this.#exchange) this.#ledger.giveBack();
    const { device } = this.#context;
    if (device.closed) return;
    this.#ledger.leave(this.#context);
  }

  readonly #look = (): void => {
    clearTimeout(this.#timer);
    if (this.#isClosed || this.#exchange || this.#context.device.closed) return;
    this.#timer = setTimeout(this.#look, LOOK_MILLIS).unref();
    if (this.#line) return;
    this.#ledger.shared.members.look();
    if (this.#ledger.tryCarry()) {
      clearTimeout(this.#timer);
      return this.lead(this.#carry());
    }
    const slot = this.#ledger.carrier;
    if (slot !== undefined && this.#ledger.isAlive(slot)) this.#call(slot);
  };

  #call(slot: number): void {
    const line = new SocketLine(createConnection(this.#nameOf(slot)).unref());
    this.#line = line;
    line.onEnd = () => {
      if (this.#line !== line) return;
      this.#line = undefined;
      this.#relay?.part();
      this.#look();
    };
    this.#relay?.join(line);
  }

  /** In the abstract namespace: nothing of it is left when its process ends. */
  #nameOf(slot: number): string {
    const { shared } = this.#ledger;
    return `\0verbena-rds-${shared.deviceId.toString(16)}-${slot}`;
  }
}
