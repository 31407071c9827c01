/**
 * `node --require`: what a process of a mutant's tests loads first, and each of its threads
 * (threads skip `--import`, so this is CommonJS). The modules in build/ are replaced by the guarded ones of
 * schemata.ts, and all instances of a thread share a global, the number of the mutant. The environment names both, so that
 * child processes have the same mutant.
 */
import fs = require('node:fs');
import modulesOfNode = require('node:module');
import path = require('node:path');
import threads = require('node:worker_threads');

/** schemata.ts has the same; loading it here would load the compiler. */
const TABLE = 1088;
const TABLE_SIZE = 7104;
const PAGE = 65536;

/** The number of the mutant, for all instances of this thread. */
const active = new WebAssembly.Global(
  { value: 'i32', mutable: true },
  Number(process.env['VERBENA_MUTANT'] ?? 0),
);

/** Other threads and processes that begin from here on have this mutant as well. */
function setActive(mutant: number): void {
  active.value = mutant;
  process.env['VERBENA_MUTANT'] = String(mutant);
}

const recording = process.env['VERBENA_MUTANT_RECORD'] === '1' ? 1 : 0;
/** The folder of the guarded modules. */
const guardedBuild = process.env['VERBENA_MUTANT_BUILD']!;
const build = path.join(__dirname, '../..');

/** Memories of engines: all that may still live, and those of the case that runs. */
let known: WeakRef<WebAssembly.Memory>[] = [];
let held: WebAssembly.Memory[] = [];

/** The mutants whose guards were evaluated since the last call. */
function takeReached(): number[] {
  const ids = new Set<number>();
  for (const reference of known) {
    const memory = reference.deref();
    if (!memory) continue;
    const table = new Uint8Array(memory.buffer, TABLE, TABLE_SIZE);
    table.forEach((byte, at) => {
      for (let bit = 0; byte >> bit; bit++) if ((byte >> bit) & 1) ids.add(at * 8 + bit);
    });
    table.fill(0);
  }
  if (isRoot && folder) {
    for (const name of fs.readdirSync(folder).filter((each) => !each.endsWith('.new'))) {
      const file = path.join(folder, name);
      for (const id of JSON.parse(fs.readFileSync(file, 'utf8')) as number[]) ids.add(id);
      fs.rmSync(file);
    }
  }
  known = known.filter((reference) => reference.deref());
  held = [];
  return [...ids];
}

/** Child processes leave what they reached in this folder when they end; their parent reads it. */
const folder = process.env['VERBENA_MUTANT_REACHED'];
const isRoot = path.basename(process.argv[1] ?? '') === 'process.js';
if (recording && folder && !isRoot && threads.isMainThread) {
  process.on('exit', () => {
    const file = path.join(folder, String(process.pid));
    fs.writeFileSync(`${file}.new`, JSON.stringify(takeReached()));
    fs.renameSync(`${file}.new`, file);
  });
}

function watch(memory: unknown): void {
  if (!recording || !(memory instanceof WebAssembly.Memory)) return;
  if (!known.some((reference) => reference.deref() === memory)) known.push(new WeakRef(memory));
  held.push(memory);
}

const modules = fs
  .readdirSync(build)
  .filter((name) => name.endsWith('.wasm') && fs.existsSync(path.join(guardedBuild, name)))
  .map((name) => ({ name, original: fs.readFileSync(path.join(build, name)) }));

type Bytes = ArrayBuffer | NodeJS.ArrayBufferView<ArrayBuffer>;

/** The guarded module in place of one of build/; other bytes as they are. */
function replaced(bytes: Bytes): Bytes {
  const view = ArrayBuffer.isView(bytes)
    ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    : Buffer.from(bytes);
  const found = modules.find(({ original }) => original.equals(view));
  return found ? fs.readFileSync(path.join(guardedBuild, found.name)) : bytes;
}

WebAssembly.Module = new Proxy(WebAssembly.Module, {
  construct: (target, [bytes]: [Bytes]) => new target(replaced(bytes)),
});
WebAssembly.Instance = new Proxy(WebAssembly.Instance, {
  construct(target, [module, given]: [WebAssembly.Module, WebAssembly.Imports | undefined]) {
    const isGuarded = WebAssembly.Module.imports(module).some((each) => each.module === 'mutants');
    if (!isGuarded) return new target(module, given);
    const memory = given?.['env']?.['memory'];
    // The exhaustive search has its tables where the guards record.
    const isSmall = memory instanceof WebAssembly.Memory && memory.buffer.byteLength <= PAGE;
    const mutants = { active, recording: isSmall ? 0 : recording };
    const instance = new target(module, { ...given, mutants });
    if (!isSmall) watch(memory ?? instance.exports['memory']);
    return instance;
  },
});

// Threads of the host begin without options of the command line.
threads.Worker = new Proxy(threads.Worker, {
  construct: (target, [file, options]: ConstructorParameters<typeof threads.Worker>) =>
    new target(file, { ...options, execArgv: ['--require', __filename] }),
});
modulesOfNode.syncBuiltinESMExports();

export = { setActive, takeReached };
