/**
 * Compiles the library of `verbena run` where a C compiler and the headers of rdma-core are; says
 * what is missing elsewhere. A library that is newer than its sources is left alone.
 */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeHeader } from './header.mjs';
import { translate } from './wasm-to-c.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

const SOURCES = 'host/bridge';
const FOLDER = 'build/bridge';
const LIBRARY = `${FOLDER}/libverbena-bridge.so`;
const COMPILER = process.env.CC ?? 'gcc';
// Verbs have the parameters that verbs.h gives them, used or not.
const FLAGS = ['-std=gnu11', '-O2', '-g', '-fPIC', '-fvisibility=hidden'].concat([
  // Entries of a ring are records of several kinds, which are written one over the other.
  '-fno-strict-aliasing',
  '-Wall',
  '-Wextra',
  '-Werror',
  '-Wno-unused-parameter',
  '-Wl,-z,defs',
  '-Wl,-z,relro',
  // Its handler of SIGSEGV stays set when a process of Node refers to it no more.
  '-Wl,-z,nodelete',
]);
const HEADERS = ['/usr/include/infiniband/verbs.h', '/usr/include/rdma/rdma_cma.h'];
/** Libraries that programs may open by name (lookup.c). */
const REPLACED = ['ibverbs', 'rdmacm'];
const VERSIONS = `${FOLDER}/versions.map`;
const TEXT = { encoding: 'utf8' };
const PACKAGES = 'gcc libc6-dev libibverbs-dev librdmacm-dev';

const ENGINE = 'build/engine.shared.wasm';
const ENGINE_OBJECT = `${FOLDER}/engine.o`;
/** Its functions are visible in the object, for tests, and hidden in the library. */
const ENGINE_ARCHIVE = `${FOLDER}/libengine.a`;
// As WebAssembly computes: no fused multiply and add, no errno of a root. Parameters and results
// may be unused.
const ENGINE_FLAGS = ['-std=gnu11', '-O2', '-fPIC', '-mssse3', '-ffp-contract=off'].concat([
  '-fno-math-errno',
  '-Wall',
  '-Wextra',
  '-Werror',
  '-Wno-unused-parameter',
  '-Wno-unused-variable',
]);

/** Names of the C files and headers, and of what writes the header. */
function sources() {
  const own = readdirSync(SOURCES).filter((name) => /\.(c|h|mjs)$/.test(name));
  return [...own.map((name) => `${SOURCES}/${name}`), 'build/abi.js', ENGINE];
}

function isNewer(made, files) {
  if (!existsSync(made)) return false;
  const { mtimeMs } = statSync(made);
  return files.every((file) => statSync(file).mtimeMs <= mtimeMs);
}

const isFresh = () => isNewer(LIBRARY, [...sources(), 'build/host/bridge/operations.js']);

/** Why the library cannot be compiled here; undefined: it can. */
function missing() {
  const { platform, arch } = process;
  if (platform !== 'linux' || arch !== 'x64') return `it is for linux-x64, not ${platform}-${arch}`;
  if (spawnSync(COMPILER, ['--version']).status !== 0) return `no ${COMPILER}`;
  const header = HEADERS.find((name) => !existsSync(name));
  return header && `no ${header}`;
}

function runOrEnd(command, words) {
  const { status } = spawnSync(command, words, { stdio: 'inherit' });
  if (status !== 0) process.exit(1);
}

/** The engine as C, compiled: some seconds, so only if its text has changed. */
function compileEngine() {
  const runtime = readdirSync(SOURCES).filter((name) => name.startsWith('wasm-'));
  const inputs = [ENGINE, ...runtime.map((name) => `${SOURCES}/${name}`)];
  if (isNewer(ENGINE_ARCHIVE, inputs)) return;
  const shape = { prefix: 'engine_', runtime: 'wasm-runtime.h', origin: ENGINE };
  const { source, header, exports } = translate(readFileSync(ENGINE), shape);
  writeFileSync(`${FOLDER}/engine.c`, source);
  writeFileSync(`${FOLDER}/engine.h`, header);
  writeFileSync(`${FOLDER}/engine.json`, JSON.stringify(exports));
  const words = [...ENGINE_FLAGS, `-I${SOURCES}`, '-c', `${FOLDER}/engine.c`];
  runOrEnd(COMPILER, [...words, '-o', ENGINE_OBJECT]);
  rmSync(ENGINE_ARCHIVE, { force: true });
  runOrEnd('ar', ['rcs', ENGINE_ARCHIVE, ENGINE_OBJECT]);
}

/** Links `library` from `words`; a library that is in use is replaced, not changed. */
function link(library, words) {
  const made = `${library}.${process.pid}`;
  const name = `-Wl,-soname,${basename(library)}`;
  const { status } = spawnSync(COMPILER, ['-shared', name, '-o', made, ...words], {
    stdio: 'inherit',
  });
  if (status !== 0) {
    rmSync(made, { force: true });
    process.exit(1);
  }
  renameSync(made, library);
}

/**
 * Versions of the functions that a library of rdma-core exports, by name: `dlvsym` finds those of
 * ours by them. Private versions change with the release, and versions that are not the default
 * are interfaces of former times.
 */
function versionsOf(library) {
  const { stdout } = spawnSync(COMPILER, [`-print-file-name=lib${library}.so`], TEXT);
  const names = spawnSync('nm', ['-D', '--defined-only', stdout.trim()], TEXT).stdout ?? '';
  return [...names.matchAll(/ T (\S+)@@(\S+)$/gm)]
    .filter(([, , version]) => !version.includes('PRIVATE'))
    .map(([, name, version]) => [name, version]);
}

/** Gives functions of `file` versions; names that it does not have are ignored. */
function writeVersions(file) {
  const byVersion = new Map();
  for (const [name, version] of REPLACED.flatMap(versionsOf)) {
    byVersion.set(version, [...(byVersion.get(version) ?? []), name]);
  }
  const blocks = [...byVersion].map(([version, names]) => `${version} { ${names.join('; ')}; };\n`);
  writeFileSync(file, blocks.join(''));
}

function compile() {
  mkdirSync(FOLDER, { recursive: true });
  writeHeader(FOLDER);
  compileEngine();
  writeVersions(VERSIONS);
  const files = readdirSync(SOURCES).filter((name) => name.endsWith('.c'));
  const words = [
    ...FLAGS,
    `-I${FOLDER}`,
    `-I${SOURCES}`,
    ...files.map((name) => `${SOURCES}/${name}`),
  ];
  const versions = `-Wl,--version-script=${VERSIONS}`;
  const libraries = [ENGINE_ARCHIVE, '-Wl,--exclude-libs,ALL', '-lpthread', '-ldl'];
  link(LIBRARY, [...words, versions, ...libraries]);
  for (const name of REPLACED) {
    const needs = ['-l:libverbena-bridge.so', `-l${name}`];
    const search = ['-Wl,-rpath,$ORIGIN', `-L${FOLDER}`, '-Wl,--no-as-needed'];
    link(`${FOLDER}/libverbena-${name}.so`, [...search, ...needs]);
  }
}

if (!isFresh()) {
  const reason = missing();
  if (reason === undefined) compile();
  else {
    rmSync(LIBRARY, { force: true });
    console.log(`verbena run is not built: ${reason}; apt-get install ${PACKAGES}`);
  }
}
