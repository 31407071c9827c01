/** One-way traffic between two processes, and its cost to each of them. */
import { Stopwatch, type Figures } from './harness.js';
import type { Partner } from './partner.js';

/** Of the measured seconds, without the warm-up. */
export interface Flow {
  readonly seconds: number;
  readonly messages: number;
  /** Those that carry data. */
  readonly packets: number;
  readonly bytes: number;
  /** Processor seconds, user and system: of the process that asks, and of its partner. */
  readonly initiatorCpuSeconds: number;
  readonly targetCpuSeconds: number;
  /** Our stack: packets that were sent again. A pump: bytes that were never acknowledged. */
  readonly sentAgain?: number;
  readonly lostBytes?: number;
  /** UDP: what the kernel says of SO_RCVBUF. */
  readonly receiveBufferBytes?: number;
}

/** Reads the clock and the processor time of both processes. */
export class FlowWatch {
  readonly #watch = new Stopwatch();
  readonly #partner: Partner<unknown>;
  readonly #before: number;

  constructor(partner: Partner<unknown>) {
    this.#partner = partner;
    this.#before = partner.cpuSeconds();
  }

  read(): Pick<Flow, 'seconds' | 'initiatorCpuSeconds' | 'targetCpuSeconds'> {
    const seconds = this.#watch.seconds();
    const initiatorCpuSeconds = this.#watch.cpuSeconds();
    return {
      seconds,
      initiatorCpuSeconds,
      targetCpuSeconds: this.#partner.cpuSeconds() - this.#before,
    };
  }
}

export function flowFigures(name: string, flow: Flow): Figures {
  const { seconds, messages, packets, bytes, initiatorCpuSeconds, targetCpuSeconds } = flow;
  const cpu = initiatorCpuSeconds + targetCpuSeconds;
  const figures: Figures = {
    [`${name}_gbps`]: bytes / seconds / 1e9,
    [`${name}_mps`]: messages / seconds / 1e6,
    [`${name}_cpu_s_per_gb`]: cpu / (bytes / 1e9),
    [`${name}_cpu_s_per_million`]: cpu / (messages / 1e6),
    [`${name}_initiator_cpu_ns_per_packet`]: (initiatorCpuSeconds * 1e9) / packets,
    [`${name}_target_cpu_ns_per_packet`]: (targetCpuSeconds * 1e9) / packets,
  };
  const { receiveBufferBytes } = flow;
  if (receiveBufferBytes !== undefined)
    figures[`${name}_receive_buffer_bytes`] = receiveBufferBytes;
  if (flow.sentAgain !== undefined) figures[`${name}_packets_sent_again`] = flow.sentAgain;
  if (flow.lostBytes !== undefined) figures[`${name}_lost_bytes`] = flow.lostBytes;
  return figures;
}
