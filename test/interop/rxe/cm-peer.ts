/** Our half of connections with programs of librdmacm: messages, and where they lie. */
import type { AnyRequest } from '../../support/any-request.js';
import assert from 'node:assert/strict';
import {
  AccessFlag,
  SendFlag,
  WcStatus,
  WcStatusName,
  WrOpcode,
  type CompletionQueue,
  type MemoryRegion,
  type QueuePair,
  type Sge,
  type WorkCompletion,
} from '../../../host/index.js';
import { NETWORK_MTU, type Guest } from './guest.js';
import type { Lab } from './lab.js';

const WAIT_MILLIS = 30_000;

/** Waits until a program in the guest listens: the connection manager has no place in /proc/net. */
export async function cmListening(guest: Guest, port: number, seconds = 20): Promise<void> {
  const found = `rdma resource show cm_id | grep -q 'LISTEN.*:${port} '`;
  await guest.run(`until ${found}; do sleep 0.05; done`, seconds);
}

/** While `use` runs the ends of the wire have these MTUs, and devices the path MTU that fits. */
export async function withMtu(
  lab: Lab,
  { ours, theirs }: { readonly ours: number; readonly theirs: number },
  use: () => Promise<void>,
): Promise<void> {
  const set = async (bridge: number, guest: number): Promise<void> => {
    await lab.run('ip', ['link', 'set', 'br0', 'mtu', `${bridge}`]);
    await lab.guest.run(`ip link set eth0 mtu ${guest}`);
  };
  await set(ours, theirs);
  try {
    await use();
  } finally {
    await set(NETWORK_MTU, NETWORK_MTU);
  }
}

/** Rejects when it takes too long, and says what did. */
export async function inTime<T>(what: string, promise: Promise<T>, millis = WAIT_MILLIS) {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${millis} ms`)), millis);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for `count` completions, all of them successful. */
export async function complete(
  what: string,
  queue: CompletionQueue,
  count: number,
): Promise<WorkCompletion[]> {
  const all: WorkCompletion[] = [];
  while (all.length < count) {
    const some = await inTime(what, queue.wait(count - all.length));
    if (some.length === 0) throw new Error(`${what}: the device was closed`);
    for (const { status } of some) {
      if (status !== WcStatus.SUCCESS) throw new Error(`${what}: ${WcStatusName[status]}`);
    }
    all.push(...some);
  }
  return all;
}

/** The memory of a queue pair's messages: some to receive into, one to send. */
export class Mailbox {
  readonly qp: QueuePair;
  readonly count: number;
  readonly bytes: number;
  readonly #memory: Uint8Array;
  readonly #mr: MemoryRegion;
  readonly #bytesReceived: number;

  /** Posts its receives. `headBytes`: what lies before each message, a routing header. */
  constructor(qp: QueuePair, count: number, bytes: number, headBytes = 0) {
    this.qp = qp;
    this.count = count;
    this.bytes = bytes;
    this.#bytesReceived = headBytes + bytes;
    this.#memory = qp.pd.context.alloc(count * this.#bytesReceived + bytes);
    this.#mr = qp.pd.regMr(this.#memory, AccessFlag.LOCAL_WRITE);
    for (let index = 0; index < count; index++) {
      const sgList = [this.#sge(index * this.#bytesReceived, this.#bytesReceived)];
      qp.postRecv({ sgList, wrId: index });
    }
  }

  /** Received bytes of that index, with the headers before them. */
  received(index: number): Uint8Array {
    const at = index * this.#bytesReceived;
    return this.#memory.subarray(at, at + this.#bytesReceived);
  }

  /** Waits for a message in each of its places; each has its full length. */
  async receive(): Promise<WorkCompletion[]> {
    const completions = await complete('receive', this.qp.recvCq, this.count);
    for (const { byteLen } of completions) assert.equal(byteLen, this.#bytesReceived);
    return completions;
  }

  /** Sends a message `count` times, and waits for the completions. */
  async send(message: Uint8Array, count = 1, how: Partial<AnyRequest> = {}): Promise<void> {
    const at = this.count * this.#bytesReceived;
    this.#memory.set(message, at);
    const sgList = [this.#sge(at, message.length)];
    for (let index = 0; index < count; index++) {
      const sendFlags = SendFlag.SIGNALED;
      this.qp.postSend({ opcode: WrOpcode.SEND, sgList, sendFlags, ...how });
    }
    await complete('send', this.qp.sendCq, count);
  }

  close(): void {
    this.#mr.dereg();
    this.qp.pd.context.free(this.#memory);
  }

  #sge(at: number, length: number): Sge {
    return { addr: this.#mr.addr + BigInt(at), length, lkey: this.#mr.lkey };
  }
}
