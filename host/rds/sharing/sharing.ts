/**
 * Elects the process of a shared device that owns its node: the holder of the lock, which is an
 * entry in the device's table of services and ends with its process. The other processes have a
 * channel to it; when it dies, one of them takes the lock.
 */
import { createConnection, createServer, type Server } from 'node:net';
import { Endpoint } from '../../link/endpoint.js';
import { ROCE_PORT } from '../../link/link.js';
import type { Context } from '../../verbs/context.js';
import { randomId } from '../../verbs/refuse.js';
import { AREA_BYTES, Area } from './area.js';
import type { RdsCore } from '../protocol/core.js';
import { NodeOwner } from './owner.js';
import type { SharedState } from './shared-state.js';
import { SocketIpcChannel, ipcChannelPair, type IpcChannel } from './ipc-channel.js';
import { OwnerProxy } from './owner-proxy.js';

/** How often a process without a channel to the owner looks for one, or for a free lock. */
const LOOK_MILLIS = 20;
/** How often the owner looks for dead processes. */
const SWEEP_MILLIS = 100;

export class Sharing {
  readonly #context: Context;
  readonly #sharedState: SharedState;
  /** Creates the node's connections on this process's device. */
  readonly #makeCore: () => RdsCore;
  #ownerProxy: OwnerProxy | undefined;
  #nodeOwner: NodeOwner | undefined;
  #server: Server | undefined;
  #channel: IpcChannel | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** `makeCore` creates the core that owns the connections, and listens. */
  constructor(context: Context, sharedState: SharedState, makeCore: () => RdsCore) {
    this.#context = context;
    this.#sharedState = sharedState;
    this.#makeCore = makeCore;
  }

  get isOwner(): boolean {
    return this.#nodeOwner !== undefined;
  }

  /** Makes this process the owner; it holds the lock. */
  lead(core: RdsCore): void {
    const nodeOwner = new NodeOwner(core, this.#sharedState, this.#context, this.#ownerProxy?.area);
    this.#nodeOwner = nodeOwner;
    nodeOwner.takeOver();
    if (this.#ownerProxy) {
      const [mine, its] = ipcChannelPair();
      nodeOwner.welcome(its);
      this.#ownerProxy.join(mine, true);
    }
    this.#serve(nodeOwner);
    this.#timer = setInterval(() => nodeOwner.sweep(), SWEEP_MILLIS).unref();
  }

  /** Makes this process a client of the owner. Throws RefusalError ENOMEM. */
  follow(core: RdsCore): OwnerProxy {
    const { shared, secret } = this.#sharedState;
    const area = new Area(this.#context.alloc(AREA_BYTES));
    this.#sharedState.publishArea(area.memory.byteOffset);
    this.#ownerProxy = new OwnerProxy(core, area, shared.slot, new Endpoint(secret, ROCE_PORT));
    this.#timer = setTimeout(this.#look).unref();
    return this.#ownerProxy;
  }

  /** Runs before the connections end: writes the state from which the next owner resumes. */
  close(): void {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#server?.close();
    this.#nodeOwner?.close();
    this.#ownerProxy?.close();
    this.#channel?.close();
    this.#sharedState.clearPorts(this.#sharedState.shared.slot);
  }

  /** Runs after the connections have ended. */
  closed(): void {
    if (this.#nodeOwner) this.#sharedState.giveBack();
    const { device } = this.#context;
    if (device.closed) return;
    this.#sharedState.leave(this.#context);
  }

  readonly #look = (): void => {
    clearTimeout(this.#timer);
    if (this.#isClosed || this.#nodeOwner || this.#context.device.closed) return;
    this.#timer = setTimeout(this.#look, LOOK_MILLIS).unref();
    if (this.#channel) return;
    this.#sharedState.shared.members.look();
    if (this.#sharedState.tryOwn()) {
      clearTimeout(this.#timer);
      return this.lead(this.#makeCore());
    }
    const slot = this.#sharedState.owner;
    if (slot !== undefined && this.#sharedState.isAlive(slot)) this.#call();
  };

  #call(): void {
    const path = this.#pathOf(this.#sharedState.socket);
    const channel = new SocketIpcChannel(createConnection(path).unref(), this.#context.device);
    this.#channel = channel;
    channel.onEnd = () => {
      if (this.#channel !== channel) return;
      this.#channel = undefined;
      this.#ownerProxy?.part();
      this.#look();
    };
    this.#ownerProxy?.join(channel);
  }

  /**
   * Accepts the other processes. Names in the abstract namespace have no owner, and every user sees
   * those that are in use: one that others could expect might be another user's already.
   */
  #serve(nodeOwner: NodeOwner): void {
    if (this.#isClosed) return;
    const server = createServer((socket) =>
      nodeOwner.welcome(new SocketIpcChannel(socket.unref(), this.#context.device)),
    );
    this.#server = server;
    server.on('error', () => {
      // One that listens goes on: it had no descriptor for a connection.
      if (!server.listening) setTimeout(() => this.#serve(nodeOwner), LOOK_MILLIS).unref();
    });
    const name = randomId();
    // A cluster primary would keep the listener, and its name, after the end of this process.
    server.listen({ path: this.#pathOf(name), exclusive: true }, () => {
      if (this.#isClosed) return;
      this.#sharedState.socket = name;
      this.#sharedState.owner = this.#sharedState.shared.slot;
    });
    server.unref();
  }

  /** In the abstract namespace: it ends with its process. */
  #pathOf(name: bigint): string {
    const { deviceId } = this.#sharedState.shared;
    return `\0verbena-rds-${deviceId.toString(16)}-${name.toString(16)}`;
  }
}
