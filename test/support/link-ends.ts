/** Links that move many packets per system call, with memory and what came in it. */
import * as assert from 'uvu/assert';
import type { Endpoint } from '../../host/link/endpoint.js';
import { UdpBatchLink } from '../../host/link/udp/udp-batch.js';
import { pattern, type TestPacket } from './batch.js';
import { TestMemory } from './polled-link.js';
import { RecordingReceiver } from './receiver.js';

/** A run as it came; segment size 0: a packet by itself. */
export interface Run {
  length: number;
  segmentSize: number;
}

export class RunReceiver extends RecordingReceiver {
  readonly runs: Run[] = [];
  readonly #memory: TestMemory;

  constructor(memory: TestMemory) {
    super();
    this.#memory = memory;
  }

  segments(address: number, length: number, segmentSize: number, source: Endpoint): void {
    this.runs.push({ length, segmentSize });
    const step = segmentSize || length;
    for (let at = 0; at < length; at += step) {
      const size = Math.min(step, length - at);
      this.packet(new Uint8Array(this.#memory.buffer, address + at, size), source);
    }
  }
}

export interface LinkEnd {
  link: UdpBatchLink;
  receiver: RunReceiver;
  memory: TestMemory;
  local: Endpoint;
}

/** Opens links, and closes them after the test. */
export class LinkEnds {
  #links: { close(): Promise<void> }[] = [];

  add<Link extends { close(): Promise<void> }>(link: Link): Link {
    this.#links.push(link);
    return link;
  }

  async open(address = '127.0.0.1', options = {}): Promise<LinkEnd> {
    const link = this.add(new UdpBatchLink({ address, port: 0, ...options }));
    const memory = new TestMemory();
    const receiver = new RunReceiver(memory);
    const { local } = await link.open(receiver, memory);
    return { link, receiver, memory, local };
  }

  async close(): Promise<void> {
    for (const link of this.#links) await link.close();
    this.#links = [];
  }
}

/** Polls until `count` packets are there, and no more. */
export function take({ link, receiver }: LinkEnd, count: number): Uint8Array[] {
  for (let turn = 0; turn < 100 && receiver.received.length < count; turn++) {
    link.wait(20_000);
    link.poll();
  }
  assert.is(link.poll(), 0, 'more than expected');
  return receiver.bytes;
}

export function packets(to: Endpoint, lengths: readonly number[]): TestPacket[] {
  return lengths.map((length, index) => ({ bytes: pattern(length, index), to }));
}

export function repeat(length: number, count: number): number[] {
  return new Array<number>(count).fill(length);
}
