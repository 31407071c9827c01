/**
 * Distributes received packets to the processes of a device. They share one UDP port
 * (SO_REUSEPORT), and a program in the kernel selects the socket by the upper byte of the queue
 * pair number, which is the slot of the process that created the queue pair.
 *
 * The kernel keeps the sockets of a group in an array: a new socket is last, and the last one
 * replaces a closed one. The arena keeps the same array of slots. A process that attaches, detaches
 * or detects a death updates it and gives the kernel a new program, under the lock for attaching
 * and detaching. If the array is wrong, packets reach the wrong process, which relays them
 * (packet-inbox.ts): steering affects speed only.
 */
import { SteeringLayout } from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import {
  JUMP_IF_EQUAL,
  LOAD_BYTE,
  RETURN,
  bpfProgram,
  type Instruction,
} from '../../link/udp/bpf.js';
import { BTH_SLOT_BYTE } from '../../link/udp/message-header.js';

/** The program that finds the socket of each slot: `order[i]` is the slot of the kernel's socket i. */
export function steeringProgram(order: readonly number[]): Uint8Array {
  return bpfProgram([
    [LOAD_BYTE, BTH_SLOT_BYTE],
    ...order.flatMap((slot, index): Instruction[] => [
      [JUMP_IF_EQUAL, slot, 0, 1],
      [RETURN, index],
    ]),
    // No slot, or queue pair 1: the process that receives the packet finds the owner.
    [RETURN, 0],
  ]);
}

/** The order when the sockets of these slots have been closed, one after the other. */
export function withoutSlots(order: readonly number[], gone: readonly number[]): number[] {
  const left = [...order];
  for (const slot of gone) {
    const index = left.indexOf(slot);
    if (index < 0) continue;
    const last = left.pop()!;
    if (index < left.length) left[index] = last;
  }
  return left;
}

/** The array in the arena. */
export class SteeringTable {
  readonly #words: Uint32Array;
  readonly #at: number;
  readonly #slotsMax: number;

  constructor(memory: EngineMemory, address: number, slotsMax: number) {
    this.#words = memory.words;
    this.#at = address >>> 2;
    this.#slotsMax = slotsMax;
  }

  get version(): number {
    return Atomics.load(this.#words, this.#field('version'));
  }

  get order(): number[] {
    const count = Math.min(this.#words[this.#field('count')]!, this.#slotsMax);
    const first = this.#at + (SteeringLayout.size >>> 2);
    return [...this.#words.subarray(first, first + count)];
  }

  set order(order: readonly number[]) {
    this.#words.set(order, this.#at + (SteeringLayout.size >>> 2));
    this.#words[this.#field('count')] = order.length;
    Atomics.add(this.#words, this.#field('version'), 1);
  }

  #field(name: keyof typeof SteeringLayout.fields): number {
    return this.#at + (SteeringLayout.fields[name][0] >>> 2);
  }
}
