/**
 * Compiles the library of `verbena run` where a C compiler and the headers of rdma-core are; says
 * what is missing elsewhere. A library that is newer than its sources is left alone.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { writeHeader } from './header.mjs';

process.chdir(fileURLToPath(new URL('../../', import.meta.url)));

const SOURCES = 'host/bridge';
const FOLDER = 'build/bridge';
const LIBRARY = `${FOLDER}/libverbena-bridge.so`;
const COMPILER = process.env.CC ?? 'gcc';
// Verbs have the parameters that verbs.h gives them, used or not.
const FLAGS = ['-std=gnu11', '-O2', '-g', '-fPIC', '-shared', '-fvisibility=hidden'].concat([
  '-Wall',
  '-Wextra',
  '-Werror',
  '-Wno-unused-parameter',
  '-Wl,-z,defs',
  '-Wl,-z,relro',
]);
const HEADERS = ['/usr/include/infiniband/verbs.h', '/usr/include/rdma/rdma_cma.h'];
const PACKAGES = 'gcc libc6-dev libibverbs-dev librdmacm-dev';

/** Names of the C files and headers, and of what writes the header. */
function sources() {
  const own = readdirSync(SOURCES).filter((name) => /\.(c|h|mjs)$/.test(name));
  return [...own.map((name) => `${SOURCES}/${name}`), 'build/abi.js'];
}

function isFresh() {
  if (!existsSync(LIBRARY)) return false;
  const { mtimeMs } = statSync(LIBRARY);
  const files = [...sources(), 'build/host/bridge/operations.js'];
  return files.every((file) => statSync(file).mtimeMs <= mtimeMs);
}

/** Why the library cannot be compiled here; undefined: it can. */
function missing() {
  const { platform, arch } = process;
  if (platform !== 'linux' || arch !== 'x64') return `it is for linux-x64, not ${platform}-${arch}`;
  if (spawnSync(COMPILER, ['--version']).status !== 0) return `no ${COMPILER}`;
  const header = HEADERS.find((name) => !existsSync(name));
  return header && `no ${header}`;
}

function compile() {
  mkdirSync(FOLDER, { recursive: true });
  writeHeader(FOLDER);
  const files = readdirSync(SOURCES).filter((name) => name.endsWith('.c'));
  const made = `${LIBRARY}.${process.pid}`;
  const words = [...FLAGS, `-I${FOLDER}`, ...files.map((name) => `${SOURCES}/${name}`)];
  const { status } = spawnSync(COMPILER, [...words, '-o', made, '-lpthread', '-ldl'], {
    stdio: 'inherit',
  });
  if (status !== 0) {
    rmSync(made, { force: true });
    process.exit(1);
  }
  renameSync(made, LIBRARY);
}

if (!isFresh()) {
  const reason = missing();
  if (reason === undefined) compile();
  else {
    rmSync(LIBRARY, { force: true });
    console.log(`verbena run is not built: ${reason}; apt-get install ${PACKAGES}`);
  }
}
