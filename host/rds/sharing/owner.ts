/**
 * The owner's view of the node's other processes: binds their ports in its core, sends their queued
 * messages, and stores received messages in their areas before it acknowledges them.
 */
import { RefusalError } from '../../errors/errors.js';
import type { Context } from '../../verbs/context.js';
import { AREA_BYTES, Area, LOCAL_CONNECTION, ReceiveState, SendState, senderHere } from './area.js';
import type { RdsCore } from '../protocol/core.js';
import { RemoteProcess } from './remote-process.js';
import type { SharedState } from './shared-state.js';
import { RecordKind, type IpcChannel, type IpcRecord } from './ipc-channel.js';

export class NodeOwner {
  readonly core: RdsCore;
  readonly #sharedState: SharedState;
  readonly #context: Context;
  /** This process's own area, if it has one. */
  readonly #own: Area | undefined;
  readonly #remoteProcesses = new Map<number, RemoteProcess>();
  readonly #channels = new Set<IpcChannel>();

  constructor(core: RdsCore, sharedState: SharedState, context: Context, own: Area | undefined) {
    this.core = core;
    this.#sharedState = sharedState;
    this.#context = context;
    this.#own = own;
    sharedState.onSought = (slot, port) => {
      const address = this.#remoteProcesses.has(slot) ? undefined : sharedState.areas().get(slot);
      const remoteProcess =
        address === undefined ? this.#remoteProcesses.get(slot) : this.#enter(slot, address);
      remoteProcess?.bind(port);
    };
  }

  get now(): number {
    return this.#context.device.clock.now();
  }

  /** Resumes from the state that the former owner of the node left. */
  takeOver(): void {
    const { now, core } = this;
    for (const { peer, home } of this.#sharedState.paths()) {
      if (home < core.addresses.length) core.path(peer, home);
    }
    for (const [slot, address] of this.#sharedState.areas()) this.#enter(slot, address);
    const remoteProcesses = [...this.#remoteProcesses.values()];
    for (const remoteProcess of remoteProcesses) this.#mend(remoteProcess);
    const restored = remoteProcesses.flatMap((remoteProcess) => remoteProcess.restore());
    // Numbers order the messages of a connection; messages of a socket are ordered by `order`.
    for (const { path, connectionIndex, message } of restored.sort(
      (one, other) => one.message.sequence - other.message.sequence,
    )) {
      path.restore(connectionIndex, message);
    }
    for (const { path, connectionIndex, message } of restored.sort(
      (one, other) => one.order - other.order,
    )) {
      path.restored(connectionIndex, message);
    }
    for (const path of core.paths) path.resume(now);
    for (const remoteProcess of remoteProcesses) remoteProcess.takeQueued();
  }

  /** Accepts another process. */
  welcome(channel: IpcChannel): void {
    this.#channels.add(channel);
    channel.onEnd = () => this.#channels.delete(channel);
    channel.onRecord = (record) => {
      const remoteProcess = record.kind === RecordKind.HELLO ? this.#greet(record) : undefined;
      if (remoteProcess) remoteProcess.listen(channel);
      else channel.close();
    };
  }

  /** Detaches processes that have died. */
  sweep(): void {
    for (const [slot, remoteProcess] of this.#remoteProcesses) {
      if (remoteProcess.area !== this.#own && !this.#sharedState.isAlive(slot))
        this.#remove(slot, remoteProcess);
    }
  }

  /** Hands the node over to another process without losing messages in flight. */
  close(): void {
    for (const remoteProcess of this.#remoteProcesses.values()) remoteProcess.end();
    for (const channel of this.#channels) channel.close();
    this.#remoteProcesses.clear();
  }

  #greet({ index: address, port: slot, peer }: IpcRecord): RemoteProcess | undefined {
    if (!peer.gid.equals(this.#sharedState.secret)) return undefined;
    const known = this.#remoteProcesses.get(slot);
    if (known?.area.memory.byteOffset === address) return known;
    if (known) this.#remove(slot, known);
    return this.#enter(slot, address);
  }

  /** Undefined if the address holds no area. */
  #enter(slot: number, address: number): RemoteProcess | undefined {
    let area = this.#own;
    if (area?.memory.byteOffset !== address) {
      try {
        area = new Area(this.#context.attach(address, AREA_BYTES));
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        return undefined;
      }
    }
    const remoteProcess = new RemoteProcess(this, slot, area);
    this.#remoteProcesses.set(slot, remoteProcess);
    for (const port of this.#sharedState.portsOf(slot)) remoteProcess.bind(port);
    return remoteProcess;
  }

  /** The former owner may have died between two stores: an entry in an area counts as received. */
  #mend({ area }: RemoteProcess): void {
    for (const [, { connectionIndex, sequence, peer }] of area.receives.inState(
      ReceiveState.FULL,
    )) {
      if (connectionIndex !== LOCAL_CONNECTION) {
        this.core.pathTo(peer)?.record?.connection(connectionIndex).received(sequence);
        continue;
      }
      const [slot, order] = senderHere(sequence);
      const sends = this.#remoteProcesses.get(slot)?.area.sends;
      for (const [index, entry] of sends?.inState(SendState.QUEUED) ?? []) {
        if (entry.order === order) sends?.setState(index, SendState.DONE);
      }
    }
  }

  #remove(slot: number, remoteProcess: RemoteProcess): void {
    remoteProcess.end();
    for (const { port } of remoteProcess.ports.values()) this.core.unbind(this.now, port);
    if (!this.#sharedState.isAlive(slot)) this.#sharedState.clearPorts(slot);
    this.#remoteProcesses.delete(slot);
    if (remoteProcess.area !== this.#own) this.#context.free(remoteProcess.area.memory);
  }
}
