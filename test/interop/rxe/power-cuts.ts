/**
 * Power cuts: a guest runs `verbena serve --pmem` on a disk with a cache of its own; in the middle of
 * appends QEMU is killed and the disk loses of its cache what chance decides. Then the guest boots,
 * the server opens its file, and everything that was acknowledged must be there.
 */
import assert from 'node:assert/strict';
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { root } from '../../support/paths.js';
import { appendUntilCut } from '../../support/killed-server.js';
import { Random } from '../../simulation/random.js';
import type { Report } from '../group.js';
import { run } from '../tools.js';
import type { Guest } from './guest.js';
import type { Lab } from './lab.js';
import { VolatileDisk } from './volatile-disk.js';

/** Of no other guest. */
const NUMBER = 9;
const MEGABYTES = 1024;
const DISK_MEGABYTES = 32;
const LOG_BYTES = 2 ** 20;
/** Node in an emulated machine, on one that is busy. */
const START_SECONDS = 1800;
const CUTS = 2;
/** Appends are under way: the next write is near. */
const CACHES_MILLIS = 500;
/** Packages that `serve` loads. */
const PACKAGES = ['commander', 'cli-progress', 'koffi', '@koromix/koffi-linux-x64'];
/** Calls that the injected fault removes: every sync. The check must find it. */
const SYNCS = /fdatasyncSync\(task\.fd\)|posix\.syncMemory\([^;]*\)/g;
const LOADER = '/lib64/ld-linux-x86-64.so.2';

const top = fileURLToPath(root);

/** A package and what it needs. */
function copyPackage(name: string, into: string): void {
  const from = join(top, 'node_modules', name);
  const to = join(into, 'node_modules', name);
  if (!existsSync(from) || existsSync(to)) return;
  cpSync(from, to, { recursive: true, dereference: true });
  const description = JSON.parse(readFileSync(join(from, 'package.json'), 'utf8')) as {
    readonly dependencies?: Readonly<Record<string, string>>;
  };
  for (const needed of Object.keys(description.dependencies ?? {})) copyPackage(needed, into);
}

/** A disk with Node, its libraries, and Verbena, once as it is and once with the fault. */
async function makeProgramDisk(folder: string): Promise<string> {
  const content = join(folder, 'program');
  mkdirSync(join(content, 'lib'), { recursive: true });
  copyFileSync(process.execPath, join(content, 'node'));
  const { stdout } = await run('ldd', [process.execPath]);
  for (const [library] of stdout.matchAll(/\/[^ ]+/g)) {
    copyFileSync(library, join(content, 'lib', basename(library)));
  }
  copyFileSync(LOADER, join(content, 'lib', basename(LOADER)));
  for (const name of PACKAGES) copyPackage(name, content);
  copyFileSync(join(top, 'package.json'), join(content, 'package.json'));
  for (const version of ['build', 'faulty']) {
    cpSync(join(top, 'build'), join(content, version), {
      recursive: true,
      filter: (path) => !/build\/(test|demo|browser|exhaustive|screenshots)\b/.test(path),
    });
  }
  const faulty = join(content, 'faulty/host/pmem/sync.js');
  const text = readFileSync(faulty, 'utf8');
  assert.equal(text.match(SYNCS)?.length, 3, 'the syncs of host/pmem/sync.ts');
  writeFileSync(faulty, text.replace(SYNCS, 'undefined'));
  return makeDisk(join(folder, 'program.img'), 256, content);
}

async function makeDisk(path: string, megabytes: number, content?: string): Promise<string> {
  writeFileSync(path, '');
  truncateSync(path, megabytes * 2 ** 20);
  const filled = content === undefined ? [] : ['-d', content];
  await run('mke2fs', ['-q', '-F', '-t', 'ext4', ...filled, path]);
  return path;
}

class Machine {
  readonly #lab: Lab;
  readonly #args: readonly string[];
  readonly #version: string;
  readonly #disk: VolatileDisk;
  #guest: Guest | undefined;

  constructor(lab: Lab, disk: VolatileDisk, version: string, program: string, socket: string) {
    this.#lab = lab;
    this.#disk = disk;
    this.#version = version;
    this.#args = [
      // They are vda and vdb in this order.
      ...['-drive', `file=${program},if=none,id=program,format=raw,readonly=on`],
      ...['-device', 'virtio-blk-pci,drive=program'],
      ...['-blockdev', `driver=nbd,node-name=data,server.type=unix,server.path=${socket}`],
      ...['-device', 'virtio-blk-pci,drive=data,write-cache=on'],
    ];
  }

  /** Boots it and starts the server. Returns its address. */
  async start(): Promise<string> {
    const options = { megabytes: MEGABYTES, words: ['rxe=no'], args: this.#args };
    const guest = await this.#lab.boot(NUMBER, options);
    this.#guest = guest;
    const words = ['serve', '--no-token', '--pmem', '/data/log.pmem', '--pmem-bytes', LOG_BYTES];
    const server = guest.spawn(`
      modprobe -a virtio_blk crc32c_generic ext4
      mkdir -p /program /data
      mount -t ext4 -o ro /dev/vda /program && mount -t ext4 /dev/vdb /data || exit 1
      cd /program
      exec lib/${basename(LOADER)} --library-path lib ./node ${this.#version}/host/cli/start.js \\
        ${words.join(' ')} --bind ${guest.ipv4}
    `);
    await server.printed(/^serving .*\(mapped\)/m, START_SECONDS);
    return guest.ipv4;
  }

  async stop(): Promise<void> {
    await this.#guest?.stop();
  }

  /** The power goes, when the disk has something to lose. Returns how many sectors it lost. */
  async cut(): Promise<number> {
    await this.#disk.caches(CACHES_MILLIS);
    const stopped = this.#guest!.stop();
    const lost = this.#disk.cut();
    await stopped;
    return lost;
  }
}

/** Cuts the power `cuts` times, and reads the log after each. Rejects when records are lost. */
async function cutPower(
  report: Report,
  lab: Lab,
  machine: Machine,
  cuts: number,
  seed: number,
): Promise<void> {
  const random = new Random(seed);
  let told = 0;
  for (let index = 0; index <= cuts; index++) {
    const server = await machine.start();
    const place = { server, client: lab.ipv4 };
    const count = index < cuts ? random.between(5, 60) : 0;
    let end: Promise<number> | undefined;
    const before = told;
    told = await appendUntilCut(place, told, count, () => (end = machine.cut()));
    const lost = await (end ?? machine.cut());
    const what = `${told - before} records appended, ${lost} sectors of the disk's cache lost`;
    report.note(index < cuts ? `cut ${index + 1}: ${what}` : `${told} records are there`);
  }
}

/** `VERBENA_POWER_CUTS`: how often. */
function cutsWanted(): number {
  const wanted = Number(process.env['VERBENA_POWER_CUTS'] ?? CUTS);
  if (Number.isInteger(wanted) && wanted > 0) return wanted;
  throw new Error('VERBENA_POWER_CUTS must be a whole number from 1 on');
}

export async function runPowerCuts(report: Report, lab: Lab): Promise<void> {
  const folder = join(lab.folder, 'power');
  mkdirSync(folder);
  const program = await makeProgramDisk(folder);
  const use = async (version: string, cuts: number, seed: number): Promise<void> => {
    const image = readFileSync(await makeDisk(join(folder, 'data.img'), DISK_MEGABYTES));
    const random = new Random(seed);
    const disk = new VolatileDisk(image, () => random.u32() / 2 ** 32);
    const socket = join(folder, `${version}.nbd`);
    await disk.listen(socket);
    const machine = new Machine(lab, disk, version, program, socket);
    try {
      await cutPower(report, lab, machine, cuts, seed);
      if (version === 'build') assert.ok(disk.flushes > 0, 'the disk was never told to flush');
    } finally {
      await machine.stop();
      await disk.close();
    }
  };
  const cuts = cutsWanted();
  await report.check(`the power of a server is cut ${cuts} times, and nothing is lost`, () =>
    use('build', cuts, 1),
  );
  await report.check('a server that acknowledges without a sync is found out', () =>
    assert.rejects(
      use('faulty', 3, 2),
      /records are left of|is another one|is not what was|wrong checksum/,
    ),
  );
}
