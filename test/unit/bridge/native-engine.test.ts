/**
 * The engine in C is the engine in WebAssembly: runs of the simulation make the same calls with the
 * same results, the same packets and the same memory, byte for byte.
 */
import { crc32 } from 'node:zlib';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { NativeEngine, isTranslated, type Call } from '../../support/native-engine.js';
import { sample } from '../../support/sample.js';
import { Workspace } from '../../support/processes.js';
import { optionsOf } from '../../simulation/options.js';
import { simulate, type Outcome } from '../../simulation/world.js';

const test = suite('unit/bridge/native-engine');
/** The whole memory is compared after this number of calls. */
const CALLS_BETWEEN = 4000;

type Exports = Record<string, Call>;
type Make = (bytes: Uint8Array) => Exports;

/** Checksum of a run's calls: names, arguments, results and memory. */
class Recorder {
  sum = 0;
  calls = 0;
  looks = 0;

  add(text: string): void {
    this.sum = crc32(text, this.sum);
  }

  wrap(exports: Exports, bytes: Uint8Array): Exports {
    const wrapped = Object.entries(exports).map(([name, call]) => {
      const recorded: Call = (...values) => {
        const result = call(...values);
        this.add(`${name} ${values.join(' ')} = ${result}`);
        if (++this.calls % CALLS_BETWEEN === 0) this.look(bytes);
        return result;
      };
      return [name, recorded] as const;
    });
    return Object.fromEntries(wrapped);
  }

  look(bytes: Uint8Array): void {
    this.looks++;
    this.sum = crc32(bytes, this.sum);
  }
}

/** Runs `work` with `make` in place of the instance of each engine. */
async function withExports<T>(make: Make | undefined, recorder: Recorder, work: () => Promise<T>) {
  const { Instance } = WebAssembly;
  const memories = new Set<Uint8Array>();
  WebAssembly.Instance = class {
    readonly exports: Exports;
    constructor(module: WebAssembly.Module, imports: { env: { memory: WebAssembly.Memory } }) {
      const bytes = new Uint8Array(imports.env.memory.buffer);
      memories.add(bytes);
      const real = new Instance(module, imports as never).exports as unknown as Exports;
      this.exports = recorder.wrap(make ? make(bytes) : real, bytes);
    }
  } as never;
  try {
    const result = await work();
    for (const bytes of memories) recorder.look(bytes);
    return result;
  } finally {
    WebAssembly.Instance = Instance;
  }
}

async function runOf(seed: number, make?: Make): Promise<{ outcome: Outcome; recorder: Recorder }> {
  const recorder = new Recorder();
  const outcome = await withExports(make, recorder, () => simulate(optionsOf(seed)));
  return { outcome, recorder };
}

if (isTranslated) {
  test('runs of the simulation are the same in C, memory included', async () => {
    await Workspace.use(async (space) => {
      const native = new NativeEngine(space.path('engine.so'));
      for (let seed = 1; seed <= sample(6, 60); seed++) {
        const wasm = await runOf(seed);
        const c = await runOf(seed, (bytes) => native.exportsOn(bytes));
        assert.equal(c.outcome, wasm.outcome, `seed ${seed}`);
        assert.ok(wasm.recorder.calls > 100 && wasm.recorder.looks > 0);
        assert.equal({ ...c.recorder }, { ...wasm.recorder }, `seed ${seed}`);
      }
    });
  });
}

test.run();
