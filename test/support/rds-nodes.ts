/** Nodes of reliable datagrams in virtual time, without devices; sockets that record messages. */
import { RefusalError } from '../../host/errors/errors.js';
import { Endpoint } from '../../host/link/endpoint.js';
import { RdsCore, type CoreOptions } from '../../host/rds/protocol/core.js';
import type { OutgoingMessage } from '../../host/rds/protocol/message.js';
import type { Port, PortUser } from '../../host/rds/protocol/port.js';
import { EventQueue } from '../simulation/queue.js';
import { Random } from '../simulation/random.js';
import { RdsNetwork, SimulatedTransport, type Turn } from '../simulation/rds-transport.js';

const START_MICROS = 1_000_000_000;

export class RdsNodes {
  readonly queue = new EventQueue(START_MICROS);
  readonly network = new RdsNetwork(this.queue, new Random(7));
  #lives = 0;

  get now(): number {
    return this.queue.now;
  }

  /** Starts node `index`, with `devices` devices. */
  start(
    index: number,
    { devices = 1, ...options }: { readonly devices?: number } & Partial<CoreOptions> = {},
  ): SimulatedTransport {
    const transport = new SimulatedTransport(this.network, index, 4000);
    this.network.transports[index] = transport;
    transport.core = new RdsCore(transport, {
      local: address(index),
      incarnation: ++this.#lives,
      firstSequence: this.queue.now,
      ...options,
    });
    for (let rail = 1; rail < devices; rail++) {
      transport.call(({ now, core }) => core.addAddress(now, address(index, rail)));
    }
    return transport;
  }

  /** Time passes. */
  run(micros: number): void {
    const end = this.queue.now + micros;
    let isOver = false;
    this.queue.plan(end, () => {
      isOver = true;
    });
    while (!isOver && this.queue.take()) void this.queue.task(this.queue.argument)();
  }

  bind(transport: SimulatedTransport, number: number): TestSocket {
    return new TestSocket(this, transport, number);
  }
}

/** Of a node, on one of its devices. */
export function address(index: number, rail = 0): Endpoint {
  return Endpoint.parse(`10.${rail}.0.${index + 1}`, 4791);
}

export class TestSocket implements PortUser {
  readonly transport: SimulatedTransport;
  readonly port: Port;
  /** First bytes of what was read. */
  readonly read: number[] = [];
  isAsleep = false;
  writables = 0;
  readonly lost: OutgoingMessage[] = [];
  readonly accessedKeys: number[] = [];
  readonly #nodes: RdsNodes;
  /** Text of the last refusal. */
  refusal = '';

  constructor(nodes: RdsNodes, transport: SimulatedTransport, number: number) {
    this.#nodes = nodes;
    this.transport = transport;
    this.port = transport.core.bind(nodes.now, number, this);
    this.#call(() => {});
  }

  /** 'OK', or the code of the refusal. */
  send(to: Endpoint, port: number, first: number, length = 1): string {
    let code = 'OK';
    this.#call(({ now, core }) => {
      try {
        core.send(now, this.port, to, port, [new Uint8Array(length).fill(first)]);
      } catch (error) {
        if (!(error instanceof RefusalError)) throw error;
        ({ code, message: this.refusal } = error);
      }
    });
    return code;
  }

  /** Tries until it is taken, in at most `micros`; returns the last code. */
  sendSoon(to: Endpoint, port: number, first: number, length = 1, micros = 10_000_000): string {
    const end = this.#nodes.now + micros;
    for (;;) {
      const code = this.send(to, port, first, length);
      if (code === 'OK' || code === 'EFAULT' || this.#nodes.now > end) return code;
      this.#nodes.run(1000);
    }
  }

  cancel(to: Endpoint, port: number): number {
    let count = 0;
    this.#call(({ now, core }) => (count = core.cancel(now, this.port, to, port)));
    return count;
  }

  close(): void {
    this.#call(({ now, core }) => core.unbind(now, this.port));
  }

  /** Reads at most `most` messages. */
  take(most = Infinity): number[] {
    const from = this.read.length;
    for (let left = most; left > 0 && this.port.pending > 0; left--) {
      this.#call(({ now, core }) => {
        this.read.push(this.port.peek()!.bytes()[0] ?? -1);
        core.read(now, this.port);
      });
    }
    return this.read.slice(from);
  }

  readable(): void {
    if (this.isAsleep) return;
    this.#nodes.queue.plan(this.#nodes.now, () => {
      this.take();
    });
  }

  writable(): void {
    this.writables++;
  }

  released(message: OutgoingMessage, isLost: boolean): void {
    if (isLost) this.lost.push(message);
  }

  accessed(rkey: number): void {
    this.accessedKeys.push(rkey);
  }

  #call(use: (turn: Turn) => void): void {
    this.transport.call(use);
  }
}

/** Two nodes, and a socket on each. */
export function twoNodes(
  options: { readonly devices?: number } & Pick<
    Partial<CoreOptions>,
    'parameters' | 'outageMicros'
  > = {},
): { nodes: RdsNodes; here: TestSocket; there: TestSocket } {
  const nodes = new RdsNodes();
  const [one, other] = [nodes.start(0, options), nodes.start(1, options)];
  return { nodes, here: nodes.bind(one, 4000), there: nodes.bind(other, 4000) };
}
