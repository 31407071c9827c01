/**
 * The run loop in C (host/bridge/turns.c) is that of the sidecar's thread (Runner): the same inputs,
 * the same calls of the engine and the link in the same order. Messages between contexts are left
 * out: the Runner rests from its socket while they arrive.
 */
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { ArenaLayout, ContextLayout } from '#build/abi.js';
import type { Clock } from '../../../host/device/clock.js';
import { Runner } from '../../../host/device/progress/runner.js';
import type { EngineExports } from '../../../host/engine/load.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import { Endpoint, Gid } from '../../../host/link/endpoint.js';
import type { PacketBatch } from '../../../host/link/link.js';
import type { UdpBatchLink } from '../../../host/link/udp/udp-batch.js';
import { Random } from '../../simulation/random.js';
import { isBuilt } from '../../support/c-program.js';
import { root } from '../../support/paths.js';
import { Workspace } from '../../support/processes.js';

const test = suite('unit/bridge/turn-vectors');

const MEMORY_BYTES = 2 ** 20;
const SCENARIOS = 200;
const STEPS = 30;
/** Addresses in the memory of the Runner. */
const [CONTEXT, ARENA, SLOTS, SENDS, RECEIVES, DURABLES] = [
  4096, 8192, 16384, 32768, 65536, 131072,
];
/** enum kind of turns.c. */
const [POST, POLL, LATER] = [0, 1, 2];
const STEP_MICROS = 50;

interface Step {
  readonly kind: number;
  readonly now: number;
  readonly deadline: number;
  readonly rung: number;
  readonly packets: number;
  /** Batches that doorbells, packets and timers make due. */
  readonly due: readonly [number, number, number];
}

function textOf({ kind, now, deadline, rung, packets, due }: Step): string {
  return [kind, now, deadline, rung, due[0], packets, due[1], due[2]].join(' ');
}

/** The Runner on an engine whose answers come from the steps. */
class World {
  readonly #runner: Runner;
  #calls: string[] = [];
  #step: Step | undefined;
  #ofDoorbells = 0;
  #due = 0;

  constructor() {
    const memory = EngineMemory.create(MEMORY_BYTES, true);
    const put = (at: number, value: number): void => memory.view.setUint32(at, value, true);
    const { fields } = ContextLayout;
    put(CONTEXT + fields.sendBuffers[0], 1);
    put(CONTEXT + fields.sendDescriptors[0], SENDS);
    put(CONTEXT + fields.receiveDescriptors[0], RECEIVES);
    put(CONTEXT + fields.receivePackets[0], 64);
    put(CONTEXT + fields.counters[0], SLOTS);
    put(ARENA + ArenaLayout.fields.contextSlots[0], SLOTS);
    put(ARENA + ArenaLayout.fields.contextsMax[0], 1);
    const source = new Endpoint(Gid.parse('127.0.0.1'), 4791);
    const link = {
      setPeerSegments: () => undefined,
      send: (batch: PacketBatch) => {
        this.#calls.push(`S${batch.count}`);
        batch.release();
      },
      poll: () => {
        this.#calls.push('L');
        const { packets } = this.#step!;
        for (let i = 0; i < packets; i++) this.#runner.segments(RECEIVES, 64, 0, source);
        this.#runner.flush();
        return packets;
      },
    };
    this.#runner = new Runner(
      memory,
      this.#exports() as unknown as EngineExports,
      CONTEXT,
      link as unknown as UdpBatchLink,
      { now: () => this.#step!.now } as Clock,
      DURABLES,
      ARENA,
      { datagram: () => undefined },
    );
  }

  #exports(): Partial<Record<keyof EngineExports, (...values: number[]) => number | void>> {
    return {
      postDoorbells: (_context, now) => {
        this.#calls.push(`B${now}`);
        this.#due += this.#ofDoorbells;
        this.#ofDoorbells = 0;
        return this.#step!.rung;
      },
      receivePackets: (_context, count) => {
        this.#calls.push(`R${count}`);
        this.#due += this.#step!.due[1];
      },
      advance: () => {
        this.#calls.push('A');
        this.#due += this.#step!.due[2];
      },
      nextPackets: () => {
        this.#calls.push('N');
        return this.#due > 0 ? 1 + (this.#due-- % 7) : 0;
      },
      nextDeadline: () => this.#step!.deadline,
      nextDelayedAck: () => 0,
    };
  }

  make(step: Step): string {
    this.#step = step;
    this.#calls = [];
    [this.#ofDoorbells] = step.due;
    if (step.kind === POST) this.#runner.post();
    else if (step.kind === POLL || step.kind === LATER) this.#runner.turn(step.kind === LATER);
    else this.#runner.settle();
    const state = this.#runner.owes ? 'owes' : 'settled';
    return [step.kind, ...this.#calls, state].join(' ');
  }
}

function scenario(random: Random): Step[] {
  return Array.from({ length: STEPS }, (_, index) => {
    const now = (1 + index) * STEP_MICROS;
    const rung = random.below(2) * random.below(4);
    const packets = random.below(2) * (1 + random.below(5));
    return {
      kind: random.below(4),
      now,
      // Never, passed, or later.
      deadline: [0, 0, now - 1, now, now + 1][random.below(5)]!,
      rung,
      packets,
      due: [rung && random.below(3), packets && random.below(3), random.below(2)] as const,
    };
  });
}

test('the same doorbells, packets and timers lead to the same calls', () =>
  Workspace.use(async (space) => {
    if (!isBuilt) return;
    const program = space.path('turn-vectors');
    const folder = fileURLToPath(new URL('host/bridge/', root));
    const harness = fileURLToPath(new URL('test/unit/bridge/turn-vectors.c', root));
    const abi = fileURLToPath(new URL('build/bridge', root));
    const flags = ['-std=gnu11', '-O1', `-I${folder}`, `-I${abi}`];
    execFileSync('gcc', [...flags, harness, '-o', program]);
    for (let seed = 1; seed <= SCENARIOS; seed++) {
      const steps = scenario(new Random(seed));
      const world = new World();
      const wanted = steps.map((step) => world.make(step));
      const input = steps.map(textOf).join('\n');
      const made = execFileSync(program, { input, encoding: 'utf8' }).trim().split('\n');
      assert.equal(made, wanted, `seed ${seed}`);
    }
  }));

test.run();
