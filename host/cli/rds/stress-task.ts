/** One task of `rds-stress`: requests to all tasks of the other side, and answers to theirs. */
import * as rds from '../../rds/index.js';
import { RefusalError } from '../../errors/errors.js';
import { STRESS_BYTES_MIN } from '../base/limits.js';
import { nodeRefusal } from '../base/psk-file.js';

export interface StressPlan {
  readonly requestBytes: number;
  readonly ackBytes: number;
  /** Requests under way to each task of the other side. */
  readonly depth: number;
  /** Does this side ask? */
  readonly asks: boolean;
  /** Is every byte compared? */
  readonly verify: boolean;
}

/** Since the last call of `take`. */
export interface StressCounts {
  sent: number;
  received: number;
  bytes: number;
  /** In sendmsg, microseconds. */
  callMicros: number;
  answers: number;
  rttMicros: number;
}

const REQUEST = 1;
const ACK = 2;

export function noCounts(): StressCounts {
  return { sent: 0, received: 0, bytes: 0, callMicros: 0, answers: 0, rttMicros: 0 };
}

export class StressTask {
  counts = noCounts();
  /** An invalid message, or bytes that differ from those sent; the text names the sender. */
  trouble: RefusalError | undefined;
  readonly #socket: rds.RdsSocket;
  readonly #peers: readonly rds.RdsAddress[];
  readonly #plan: StressPlan;
  /** Messages to send as soon as there is room, in order for each peer. */
  readonly #queues = new Map<string, Uint8Array[]>();
  readonly #numbers = new Map<string, number>();
  readonly #room: Uint8Array;
  #isPlanned = false;

  constructor(socket: rds.RdsSocket, peers: readonly rds.RdsAddress[], plan: StressPlan) {
    this.#socket = socket;
    this.#peers = peers;
    this.#plan = plan;
    this.#room = new Uint8Array(Math.max(plan.requestBytes, plan.ackBytes));
    const wake = (): void => this.#wake();
    socket.listener = { readable: wake, writable: wake };
  }

  start(): void {
    if (!this.#plan.asks) return;
    for (const peer of this.#peers) {
      for (let index = 0; index < this.#plan.depth; index++) this.#ask(peer);
    }
    this.#wake();
  }

  takeCounts(): StressCounts {
    const { counts } = this;
    this.counts = noCounts();
    return counts;
  }

  #wake(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    setImmediate(() => {
      this.#isPlanned = false;
      if (this.trouble !== undefined) return;
      while (this.#socket.revents & rds.PollEvent.IN) this.#receive();
      for (const peer of this.#peers) this.#send(peer);
    });
  }

  #ask(peer: rds.RdsAddress): void {
    const key = `${peer.port}`;
    const number = this.#numbers.get(key) ?? 0;
    this.#numbers.set(key, (number + 1) >>> 0);
    const stamp = performance.now() * 1000;
    this.#queue(peer, build(REQUEST, number, stamp, this.#plan.requestBytes, this.#plan.verify));
  }

  #queue(peer: rds.RdsAddress, message: Uint8Array): void {
    const key = `${peer.port}`;
    const queue = this.#queues.get(key);
    if (queue) queue.push(message);
    else this.#queues.set(key, [message]);
  }

  #send(peer: rds.RdsAddress): void {
    const queue = this.#queues.get(`${peer.port}`) ?? [];
    for (let message = queue[0]; message; message = queue[0]) {
      const before = performance.now();
      try {
        this.#socket.sendmsg({ name: peer, iov: [message] });
      } catch (error) {
        const { code, message } = error as RefusalError;
        // It says when another try is worth it.
        if (code === 'EWOULDBLOCK' || code === 'ENOBUFS') return;
        const isDenied = code === 'EACCES';
        this.trouble = isDenied
          ? nodeRefusal(peer.address, error)
          : new RefusalError('EIO', message, { cause: error });
        return;
      }
      this.counts.callMicros += (performance.now() - before) * 1000;
      this.counts.sent++;
      this.counts.bytes += message.length;
      queue.shift();
    }
  }

  #receive(): void {
    const { name, length, flags } = this.#socket.recvmsg([this.#room]);
    const message = this.#room.subarray(0, length);
    const peer = this.#peers.find(({ port }) => port === name.port);
    const { requestBytes, ackBytes, verify, asks } = this.#plan;
    const expected = message[0] === REQUEST ? requestBytes : message[0] === ACK ? ackBytes : -1;
    const isWrong = length !== expected || flags !== 0 || (verify && !isWhole(message));
    if (!peer || isWrong) {
      const sentence =
        `the message from ${name.address} port ${name.port} differs from the one sent; ` +
        'start both sides with the same options';
      this.trouble = new RefusalError('EIO', sentence);
      return;
    }
    this.counts.received++;
    this.counts.bytes += length;
    const view = new DataView(message.buffer, message.byteOffset, length);
    const [number, stamp] = [view.getUint32(4), view.getFloat64(8)];
    if (message[0] === REQUEST) {
      this.#queue(peer, build(ACK, number, stamp, ackBytes, verify));
    } else if (asks) {
      this.counts.answers++;
      this.counts.rttMicros += performance.now() * 1000 - stamp;
      this.#ask(peer);
    }
  }
}

function build(kind: number, number: number, stamp: number, bytes: number, fill: boolean) {
  const message = new Uint8Array(bytes);
  const view = new DataView(message.buffer);
  message[0] = kind;
  view.setUint32(4, number);
  view.setFloat64(8, stamp);
  if (fill) {
    for (let at = STRESS_BYTES_MIN; at < bytes; at++) message[at] = pattern(number, at);
  }
  return message;
}

function isWhole(message: Uint8Array): boolean {
  const number = new DataView(message.buffer, message.byteOffset).getUint32(4);
  for (let at = STRESS_BYTES_MIN; at < message.length; at++) {
    if (message[at] !== pattern(number, at)) return false;
  }
  return true;
}

/** Other bytes for other messages, and in other places. */
function pattern(number: number, at: number): number {
  return (Math.imul(number + 1, 0x9e3779b1) >>> 24) ^ (at & 255) ^ (at >> 8);
}
