/** The house rules: permitted imports, and the required parts of each folder and test file. */
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { root } from '../support/paths.js';

const top = fileURLToPath(root);

/** Folders in order: each may import itself and those above it. */
const HOST = [
  'errors',
  'base',
  'engine',
  'link',
  'device',
  'pmem',
  'verbs',
  'cm',
  'remote',
  'mesh',
  'transfer',
  'pool',
  'shmem',
  'rpma',
  'rds',
  'dgram',
  'nvme',
  'bridge',
  'browser',
  'demo',
  'cli',
  'examples',
];
/** Imported by no other folder. */
const LEAVES = new Set(['cli', 'examples']);
/** Imports that each folder of the engine may have besides itself. */
const ASSEMBLY: { readonly [folder: string]: readonly string[] } = {
  wire: [],
  crypto: [],
  memory: [],
  region: ['memory'],
  transport: ['wire', 'crypto', 'region', 'memory'],
  explain: ['wire', 'memory', 'transport'],
  selftest: ['wire', 'crypto', 'region', 'memory', 'transport'],
  toolchain: [],
};
/** Files at the top of assembly/ are entries: they may import any folder. */
const COLUMNS_MAX = 100;

function sources(folder: string): string[] {
  return readdirSync(join(top, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs)$/.test(name))
    .map((name) => join(folder, name));
}

function importsIn(text: string): string[] {
  return [...text.matchAll(/(?:from|import)\s*\(?\s*'([^']+)'/g)].map((match) => match[1]!);
}

function imports(file: string): string[] {
  return importsIn(readFileSync(join(top, file), 'utf8'));
}

/** First folder below `base`, or '' for a file that lies in it directly. */
function folderOf(base: string, file: string): string {
  const parts = relative(base, file).split('/');
  return parts.length > 1 ? parts[0]! : '';
}

/** Relative imports of a file, as paths from the repository's root. */
function targets(file: string): string[] {
  return relativeTo(file, imports(file));
}

function relativeTo(file: string, names: readonly string[]): string[] {
  return names
    .filter((name) => name.startsWith('.'))
    .map((name) => relative(top, resolve(join(top, dirname(file)), name)));
}

test('each folder of host/ imports only folders above it', () => {
  for (const file of sources('host')) {
    const from = folderOf('host', file);
    if (from === '') continue;
    assert.ok(HOST.includes(from), `${file}: a folder that the list does not have`);
    for (const target of targets(file)) {
      assert.ok(target.startsWith('host/'), `${file} imports ${target}`);
      const to = folderOf('host', target);
      if (to === '') {
        assert.ok(LEAVES.has(from), `${file} imports the public index`);
        continue;
      }
      const allowed = to === from || (HOST.indexOf(to) < HOST.indexOf(from) && !LEAVES.has(to));
      assert.ok(allowed, `${file} imports ${target}`);
    }
  }
});

test('each folder of assembly/ imports only what it may, and nothing from the host', () => {
  for (const file of sources('assembly')) {
    const from = folderOf('assembly', file);
    if (from === '' || file.endsWith('.mjs')) continue;
    const allowed = ASSEMBLY[from];
    assert.ok(allowed, `${file}: a folder that the list does not have`);
    for (const target of targets(file)) {
      const to = folderOf('assembly', target);
      assert.ok(target.startsWith('assembly/'), `${file} imports ${target}`);
      assert.ok(to === from || allowed.includes(to), `${file} imports ${target}`);
    }
  }
});

test('WebAssembly is named in host/engine only', () => {
  for (const file of sources('host')) {
    if (folderOf('host', file) === 'engine') continue;
    const text = readFileSync(join(top, file), 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
    assert.not.match(text, /\bWebAssembly\./, file);
  }
});

test('the engine has no string, no global and no function decorator', () => {
  for (const folder of ['wire', 'memory', 'region', 'transport']) {
    for (const file of sources(`assembly/${folder}`)) {
      const text = readFileSync(join(top, file), 'utf8');
      assert.not.match(text, /^(export )?let /m, `${file}: a mutable global`);
      assert.not.match(text, /@inline|@global|@lazy/, file);
    }
  }
});

test('time and chance come in through doors that are named', () => {
  const doors = new Set([
    'host/device/clock.ts',
    'host/verbs/refuse.ts',
    'host/link/random-address.ts',
    'host/nvme/dhchap-random.ts',
    'host/link/rtc/certificate.ts',
  ]);
  for (const file of sources('host')) {
    if (doors.has(file) || /^host\/(cli|demo|examples)\//.test(file)) continue;
    const text = readFileSync(join(top, file), 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
    assert.not.match(text, /Math\.random|Date\.now|getRandomValues|randomBytes|randomFill/, file);
  }
});

test('each server and socket of the host belongs to its process, also in a cluster worker', () => {
  // Reliable datagram sockets, and argument lists of the application.
  const others = new Set([
    'host/cli/rds/stress.ts: socket.bind',
    'host/cli/rds/stress.ts: stress.bind',
    'host/demo/relay.ts: side.bind',
    'host/dgram/socket.ts: half.bind',
    'host/dgram/socket.ts: side.bind',
    'host/dgram/socket.ts: super.bind',
    'host/dgram/open-node.ts: made.bind',
    // The lock has a rule of its own.
    'host/pmem/file-lock.ts: server.listen',
  ]);
  const calls = /([\w.]+\.(?:listen|bind))\(([^;]*?)\);/g;
  const imported = /from '(node:(net|http|https|dgram)|\.\.?\/.*(plain-dgram|udp-socket)\.js)'/;
  let count = 0;
  for (const file of sources('host')) {
    const text = readFileSync(join(top, file), 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, '');
    if (!imported.test(text)) continue;
    for (const { 0: call, 1: name, 2: words } of text.matchAll(calls)) {
      if (others.has(`${file}: ${name}`)) continue;
      const isPosix = name!.startsWith('posix.');
      // Without it a cluster worker delegates listen to its primary, which has other descriptors.
      assert.ok(isPosix || words!.includes('exclusive: true'), `${file}: ${call}`);
      count++;
    }
  }
  assert.ok(count >= 10, `${count} found`);
});

/** Imports of a file that are there when it runs. */
function runTimeTargets(file: string): string[] {
  const text = readFileSync(join(top, file), 'utf8');
  const withoutTypes = text.replace(/^(import|export) type [^;]*;/gm, '');
  return relativeTo(file, importsIn(withoutTypes));
}

/** Groups of files that import each other, directly or over others. */
function cycles(files: readonly string[], targetsOf: (file: string) => string[]): string[][] {
  const graph = new Map(files.map((file) => [file, targetsOf(file)] as const));
  const reached = new Map<string, Set<string>>();
  for (const file of files) {
    const found = new Set<string>();
    const open = [...graph.get(file)!];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      // Sources of the engine name no ending.
      const source = next.replace(/(\.js|\.ts)?$/, '.ts');
      if (found.has(source) || !graph.has(source)) continue;
      found.add(source);
      open.push(...graph.get(source)!);
    }
    reached.set(file, found);
  }
  const groups = new Map<string, string[]>();
  for (const file of files.filter((one) => reached.get(one)!.has(one))) {
    const group = files.filter((one) => reached.get(file)!.has(one) && reached.get(one)!.has(file));
    groups.set(group[0]!, group);
  }
  return [...groups.values()];
}

test('no files import each other in a cycle', () => {
  for (const folder of ['assembly', 'host', 'test']) {
    assert.equal(cycles(sources(folder), runTimeTargets), [], folder);
  }
});

/**
 * Public objects whose types name each other, as the structs of verbs.h and rdma_cma.h do: a maker
 * returns the object, and the object has its maker (qp.pd.context, id.channel), or a work request
 * names it (ud.ah). Files below them take the interfaces of verbs/internals.ts.
 */
const HANDLES = [
  ['cm', 'cm-id event-channel'],
  ['verbs', 'context'],
  ['verbs/domains', 'named-domain parent-domain protection-domain roots thread-domain'],
  ['verbs/layouts', 'layout-memory-region'],
  ['verbs/queues', 'address-handle completion-channel completion-counter completion-queue'],
  ['verbs/queues', 'completion-queue-ex queue-pair queue-pair-ex shared-receive-queue'],
  ['verbs/queues', 'work-request'],
  ['verbs/regions', 'device-memory dma-handle fast-memory-region imported-memory-region'],
  ['verbs/regions', 'memory-region memory-window null-memory-region registrable-buffer'],
].flatMap(([folder, names]) => names!.split(' ').map((name) => `host/${folder}/${name}.ts`));

/** Parts of one simulation, which hold each other: a world, its devices and their connections. */
const SIMULATION = 'chatter connection device side store workload world';

test('no files name types of each other in a cycle, but those of public objects', () => {
  assert.equal(cycles(sources('assembly'), targets), []);
  assert.equal(cycles(sources('host'), targets).flat().sort(), HANDLES.sort());
  const parts = SIMULATION.split(' ').map((name) => `test/simulation/${name}.ts`);
  assert.equal(cycles(sources('test'), targets).flat().sort(), parts);
});

test('no line is wider than the page', () => {
  for (const folder of ['assembly', 'host', 'test']) {
    for (const file of sources(folder)) {
      const lines = readFileSync(join(top, file), 'utf8').split('\n');
      // A sentence in quotes, or an example, is not broken up: prettier leaves it, too.
      const wide = lines.findIndex((line) => line.length > COLUMNS_MAX && !/['"`’{]/.test(line));
      assert.is(wide, -1, `${file}:${wide + 1} is too wide`);
    }
  }
});

test('every folder says what lives in it', () => {
  const folders = ['assembly', 'host', 'test', 'build'];
  for (const base of ['assembly', 'host']) {
    for (const name of readdirSync(join(top, base))) {
      const folder = join(base, name);
      if (statSync(join(top, folder)).isDirectory() && sources(folder).length > 0) {
        folders.push(folder);
      }
    }
  }
  for (const folder of folders) {
    assert.ok(existsSync(join(top, folder, 'README.md')), `${folder}/README.md is missing`);
  }
});

test('every test file runs what it defines', () => {
  for (const file of sources('test').filter((name) => name.endsWith('.test.ts'))) {
    const text = readFileSync(join(top, file), 'utf8');
    // A world has a method of that name, too.
    const runs = /^ *(test|suite|other|everywhere|of|linkSuite\(.*\)|\))\.run\(\);$/m;
    assert.match(text, runs, `${file}: no suite is run`);
    assert.not.match(text, /\.(skip|only)\(/, file);
  }
});

test('no two test files use the same address of the loopback interface', () => {
  // Files run in parallel, and UDP port 4791 of an address serves one device. 127.0.0.x: any port.
  const users = new Map<string, string>();
  for (const file of sources('test').filter((name) => name.endsWith('.test.ts'))) {
    const text = readFileSync(join(top, file), 'utf8');
    for (const [address] of new Set(text.match(/\b127\.\d+\.\d+\.\d+/g) ?? []).entries()) {
      if (address.startsWith('127.0.0.')) continue;
      assert.is(users.get(address) ?? file, file, `${address} is used by both`);
      users.set(address, file);
    }
  }
});

test('the lock file holds no download addresses', () => {
  assert.not.match(readFileSync(join(top, 'package-lock.json'), 'utf8'), /"resolved"/);
});

test.run();
