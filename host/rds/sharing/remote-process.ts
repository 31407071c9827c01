/** The owner's state of another process of the node. */
import { RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';
import { LOCAL_CONNECTION, ReceiveState, SendState, sequenceHere, type Area } from './area.js';
import type { RdsCore } from '../protocol/core.js';
import type { Path } from '../protocol/path.js';
import { CONNECTIONS_PER_PATH } from '../wire/constants.js';
import { RecordKind, Verdict, type IpcChannel, type IpcRecord } from './ipc-channel.js';
import { OutgoingMessage } from '../protocol/message.js';
import { Port, type PortUser } from '../protocol/port.js';

const ORDER_MASK = 0xffff;
/** Fill level of an area above which its readers count as slow. */
const CROWDED = 0.5;
const VERDICTS = { go: Verdict.GO, EFAULT: Verdict.FAULT, EACCES: Verdict.DENIED } as const;

interface Ask {
  readonly sender: ProcessPort;
  readonly peer: Endpoint;
  readonly peerPort: number;
}

/** The owner of the node, as far as its remote processes need it. */
interface NodeOwner {
  readonly core: RdsCore;
  readonly now: number;
  /** Removes dead processes. */
  sweep(): void;
}

/** A message that has a sequence number already. */
export interface Restored {
  readonly path: Path;
  readonly connectionIndex: number;
  readonly message: OutgoingMessage;
  readonly order: number;
}

export class RemoteProcess {
  /** Ports that the process has bound, or still sends from. */
  readonly ports = new Map<number, ProcessPort>();
  /** Messages in flight, by entry. */
  readonly #sending = new Map<OutgoingMessage, number>();
  /** Entries that were read and have not ended. */
  readonly #known = new Set<number>();
  /** Entries that cannot be sent yet, by destination. */
  readonly #waiting = new Map<string, number[]>();
  readonly #asks = new Map<string, Ask>();
  readonly #arrived = new Map<number, ProcessPort>();
  #channel: IpcChannel | undefined;
  #current = -1;
  #isEnded = false;

  constructor(
    readonly nodeOwner: NodeOwner,
    readonly slot: number,
    readonly area: Area,
  ) {
    area.receives.own();
  }

  bind(number: number): void {
    const { core, now } = this.nodeOwner;
    if (number === 0) return;
    if (core.ports.has(number)) {
      if (this.ports.get(number)?.isBound) return;
      // The port may belong to a dead process.
      this.nodeOwner.sweep();
      if (core.ports.has(number)) return;
    }
    const user = new ProcessPort(this);
    user.port = core.bind(now, number, user);
    this.ports.set(number, user);
  }

  /** Restores entries that were received or numbered; returns the numbered ones. */
  restore(): Restored[] {
    for (const [index, { port }] of this.area.receives.inState(ReceiveState.FULL)) {
      this.#arrived.set(index, this.#sender(port));
      this.#sender(port).backlog++;
    }
    const restored: Restored[] = [];
    const { core } = this.nodeOwner;
    for (const [index, entry] of this.area.sends.inState(SendState.NUMBERED)) {
      const path =
        entry.connectionIndex < CONNECTIONS_PER_PATH ? core.pathTo(entry.peer) : undefined;
      const { length } = entry.bytes;
      const buffer =
        path &&
        core.transport.allocate(length, path.connection(entry.connectionIndex).fragmentBytes, 0);
      if (!path || !buffer) {
        this.#end(index, SendState.LOST);
        continue;
      }
      buffer.payload.set(entry.bytes);
      const { port } = this.#sender(entry.port);
      port.sent(length);
      const ports = { source: entry.port, destination: entry.peerPort };
      const message = new OutgoingMessage(port, ports, buffer);
      message.sequence = entry.sequence;
      message.extensions = entry.after ? { after: entry.after } : {};
      this.#known.add(index);
      this.#sending.set(message, index);
      restored.push({ path, connectionIndex: entry.connectionIndex, message, order: entry.order });
    }
    return restored;
  }

  takeQueued(): void {
    for (const [index] of this.area.sends.inState(SendState.QUEUED)) this.#take(index);
  }

  /** Attaches the channel of the process. */
  listen(channel: IpcChannel): void {
    this.#channel?.close();
    this.#channel = channel;
    channel.onRecord = (record) => this.#hear(record);
    channel.attach?.(this.area.fromOwner, this.area.toOwner);
    for (const index of [...this.#arrived.keys()]) {
      if (this.area.receives.state(index) === ReceiveState.FREE) this.#read(index);
    }
    channel.send(RecordKind.READY);
    for (const [index, { order }] of this.area.receives.inState(ReceiveState.FULL)) {
      channel.send(RecordKind.ARRIVED, { index, port: order & ORDER_MASK });
    }
  }

  end(): void {
    this.#isEnded = true;
    this.#channel?.close();
    this.#channel = undefined;
  }

  /** Retries sends of `port` that were refused. */
  retry(port: ProcessPort): void {
    if (this.#isEnded) return;
    for (const key of [...this.#waiting.keys()]) this.#pump(key);
    for (const [key, ask] of [...this.#asks]) if (ask.sender === port) this.#judge(key, ask);
  }

  /** Copies messages of a port into the area while it has room. */
  deliver(user: ProcessPort): void {
    if (this.#isEnded) return;
    const { receives } = this.area;
    const { now } = this.nodeOwner;
    const { port } = user;
    for (let message = port.peek(); message; message = port.peek()) {
      const { header, from, connectionIndex } = message;
      const fresh = {
        port: port.number,
        peer: from,
        peerPort: header.sourcePort,
        sequence: header.sequence,
        connectionIndex: connectionIndex ?? LOCAL_CONNECTION,
      };
      const index = receives.put(fresh, message.pieces(), message.length);
      if (index === undefined) return;
      port.take();
      receives.setState(index, ReceiveState.FULL);
      message.kept(now);
      this.#arrived.set(index, user);
      user.backlog++;
      port.giveBack(message);
      const order = receives.orderOf(index);
      this.#channel?.send(RecordKind.ARRIVED, { index, port: order & ORDER_MASK });
    }
  }

  /** A message has its number and is about to be sent. */
  numbered(message: OutgoingMessage, connectionIndex: number): void {
    if (this.#current < 0) return;
    const { sends } = this.area;
    sends.number(this.#current, connectionIndex, message.sequence, message.extensions.after);
    sends.setState(this.#current, SendState.NUMBERED);
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    const index = this.#sending.get(message);
    if (index === undefined || this.#isEnded) return;
    this.#sending.delete(message);
    this.#end(index, isLost ? SendState.LOST : SendState.DONE);
  }

  #hear({ kind, index, port, peer, peerPort }: IpcRecord): void {
    switch (kind) {
      case RecordKind.BOUND:
        return this.bind(port);
      case RecordKind.UNBOUND: {
        const user = this.ports.get(port);
        if (user?.isBound) this.nodeOwner.core.unbind(this.nodeOwner.now, user.port);
        return;
      }
      case RecordKind.QUEUED:
        if ((this.area.sends.orderOf(index) & ORDER_MASK) === port) this.#take(index);
        return;
      case RecordKind.READ:
        if (this.area.receives.state(index) === ReceiveState.FREE) this.#read(index);
        return;
      case RecordKind.ASK: {
        const ask = { sender: this.#sender(port), peer, peerPort };
        return this.#judge(`${peer} ${peerPort}`, ask);
      }
      default:
        this.#channel?.close();
    }
  }

  #take(index: number): void {
    const { sends } = this.area;
    if (this.#known.has(index) || sends.state(index) !== SendState.QUEUED) return;
    const entry = sends.read(index);
    if (!entry) return;
    this.#known.add(index);
    const key = `${entry.peer} ${entry.peerPort}`;
    const waiting = this.#waiting.get(key);
    if (waiting) waiting.push(index);
    else {
      this.#waiting.set(key, [index]);
      this.#pump(key);
    }
  }

  #pump(key: string): void {
    const waiting = this.#waiting.get(key) ?? [];
    while (waiting.length > 0) {
      if (!this.#give(waiting[0]!)) return;
      waiting.shift();
    }
    this.#waiting.delete(key);
  }

  /** Sends an entry; returns false if it must wait. */
  #give(index: number): boolean {
    const entry = this.area.sends.read(index);
    if (!entry) {
      this.#end(index, SendState.LOST);
      return true;
    }
    const { core, now } = this.nodeOwner;
    const { port } = this.#sender(entry.port);
    this.#current = index;
    try {
      const sent = core.send(now, port, entry.peer, entry.peerPort, [entry.bytes], {
        sequenceHere: sequenceHere(this.slot, entry.order),
        kept: () => this.#end(index, SendState.DONE),
      });
      if (sent) this.#sending.set(sent, index);
      return true;
    } catch (error) {
      if (!(error instanceof RefusalError)) throw error;
      if (error.code === 'EWOULDBLOCK' || error.code === 'ENOBUFS') return false;
      this.#end(index, SendState.LOST);
      const verdict = error.code === 'EACCES' ? Verdict.DENIED : Verdict.FAULT;
      this.#tell(entry.peer, entry.peerPort, verdict);
      return true;
    } finally {
      this.#current = -1;
    }
  }

  #judge(key: string, ask: Ask): void {
    const { core, now } = this.nodeOwner;
    const judgement = core.judge(now, ask.sender.port, ask.peer, ask.peerPort);
    if (judgement === 'EWOULDBLOCK') {
      this.#asks.set(key, ask);
      return;
    }
    this.#asks.delete(key);
    if (judgement !== 'go') core.pathTo(ask.peer)?.lossReported(ask.sender.port);
    this.#tell(ask.peer, ask.peerPort, VERDICTS[judgement]);
  }

  #tell(peer: Endpoint, peerPort: number, verdict: Verdict): void {
    this.#channel?.send(RecordKind.VERDICT, { peer, peerPort, index: verdict });
  }

  #end(index: number, state: SendState): void {
    this.#known.delete(index);
    if (this.#isEnded) return;
    this.area.sends.setState(index, state);
    this.#channel?.send(RecordKind.SENT, { index });
  }

  #read(index: number): void {
    const user = this.#arrived.get(index);
    if (!user) return;
    this.#arrived.delete(index);
    this.area.receives.giveBack(index);
    user.backlog--;
    for (const one of this.ports.values()) {
      this.deliver(one);
      one.port.recheck();
    }
  }

  /** The port that the process sends from, bound or not. */
  #sender(number: number): ProcessPort {
    let user = this.ports.get(number);
    if (!user) {
      user = new ProcessPort(this);
      user.port = new Port(this.nodeOwner.core, number, user);
      this.ports.set(number, user);
    }
    return user;
  }
}

/** A port of a remote process in the core. */
export class ProcessPort implements PortUser {
  readonly #remoteProcess: RemoteProcess;
  port!: Port;
  /** Messages that the process has not read. */
  backlog = 0;
  readonly keeps = true;

  constructor(remoteProcess: RemoteProcess) {
    this.#remoteProcess = remoteProcess;
  }

  get isBound(): boolean {
    return this.#remoteProcess.nodeOwner.core.ports.get(this.port.number) === this.port;
  }

  get isCrowded(): boolean {
    return this.backlog > 0 && this.#remoteProcess.area.receives.crowd > CROWDED;
  }

  readable(): void {
    this.#remoteProcess.deliver(this);
  }

  writable(): void {
    this.#remoteProcess.retry(this);
  }

  numbered(message: OutgoingMessage, connectionIndex: number): void {
    this.#remoteProcess.numbered(message, connectionIndex);
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    this.#remoteProcess.released(message, isLost);
  }
}
