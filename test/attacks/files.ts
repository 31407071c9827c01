/**
 * Attacks by files: those that another user of the machine tries to open, and those that an
 * attacker wrote and a victim opens: captures, persistent regions, device files.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import * as assert from 'uvu/assert';
import type { OpenOptions } from '../../host/index.js';
import { freshName, Member, type MemberWorld } from '../support/member.js';
import { vectors } from '../support/paths.js';
import { Workspace } from '../support/processes.js';
import { Random } from '../simulation/random.js';
import type { Attack } from './attack.js';

const OTHER_USER = 65534;

/** Work in a directory that every user may enter and read. */
async function inWorkspace(work: (workspace: Workspace) => Promise<number>): Promise<number> {
  let count = 0;
  await Workspace.use(async (workspace) => {
    count = await work(workspace);
  });
  return count;
}

/** Regular files below these directories that a process has open or mapped. */
function openFiles(pid: number, below: readonly string[]): string[] {
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      return '';
    }
  });
  const mapped = readFileSync(`/proc/${pid}/maps`, 'utf8')
    .split('\n')
    .map((line) => line.slice(73).trim());
  const all = new Set([...links, ...mapped]);
  return [...all].filter((path) => below.some((place) => path.startsWith(`${place}/`)));
}

/** Files of `paths` that the other user can open, in either direction. */
function opened(paths: readonly string[]): string[] {
  if (process.geteuid!() !== 0) throw new Error('this attack needs another user: run it as root');
  const text = `
    const { closeSync, openSync } = require('node:fs');
    const found = [];
    for (const path of ${JSON.stringify(paths)}) for (const flag of ['r', 'r+']) {
      try { closeSync(openSync(path, flag)); found.push(flag + ' ' + path); } catch {}
    }
    console.log(JSON.stringify(found));`;
  const user = { uid: OTHER_USER, gid: OTHER_USER, cwd: '/', encoding: 'utf8' as const };
  const { stdout, stderr, status } = spawnSync(process.execPath, ['-e', text], user);
  assert.is(status, 0, stderr);
  return JSON.parse(stdout) as string[];
}

/** Copies of `bytes` that an attacker would write: flipped bits, large fields, short ends. */
function* mutated(bytes: Uint8Array, count: number, head: number): Generator<Uint8Array> {
  const random = new Random(23);
  for (let index = 0; index < count; index++) {
    const copy = Uint8Array.from(bytes);
    const end = index % 3 === 0 ? copy.length : Math.min(head, copy.length);
    for (let change = 0; change <= random.below(4); change++) {
      const at = random.below(end);
      if (random.below(2) === 0) copy[at]! ^= 1 << random.below(8);
      else copy.fill(255, at, Math.min(at + 4, copy.length));
    }
    yield index % 5 === 4 ? copy.subarray(0, random.below(copy.length)) : copy;
  }
}

export const FILE_ATTACKS: readonly Attack[] = [
  {
    name: 'another user opens none of the files of a device or of a persistent region',
    position: 'local user',
    unit: 'files',
    run: () =>
      inWorkspace(async (workspace) => {
        const { directory } = workspace;
        // The files must protect themselves.
        chmodSync(directory, 0o755);
        const member = await Member.open({ name: freshName(), address: '127.1.25.1' });
        // A device with a name has no persistent memory.
        const other = await Member.open({ address: '127.1.25.5', port: 0 });
        try {
          await other.run(async ({ context, kept }, place) => {
            const options = { bytes: 65536, volatile: true };
            const region = await context.openPmem(`${place}/region`, options);
            kept.memory = region.buffer;
          }, directory);
          const paths = [member, other].flatMap(({ pid }) => {
            const found = openFiles(pid, [directory, '/dev/shm']);
            assert.ok(found.length > 0, 'a file of each');
            return found;
          });
          assert.equal(opened(paths), []);
          return paths.length;
        } finally {
          for (const each of [member, other]) {
            each.kill();
            await each.ended;
          }
        }
      }),
  },
  {
    name: 'a forged capture ends `verbena decode` with a sentence, within seconds',
    position: 'file',
    unit: 'files',
    run: () =>
      inWorkspace(async (workspace) => {
        const good = readFileSync(new URL('rxe/rc_write_multi.pcap', vectors));
        let count = 0;
        for (const bytes of mutated(good, 24, 200)) {
          const path = workspace.path(`${count++}.pcap`);
          writeFileSync(path, bytes);
          const { code, signal, stderr } = await workspace.run('decode', path);
          assert.is(signal, null, stderr);
          assert.ok(code === 0 || code === 1, `${code}: ${stderr}`);
          assert.not.match(stderr, / at .*\.js:\d+/, 'a stack trace');
        }
        return count;
      }),
  },
  {
    name: 'a forged file of a persistent region is refused by name, or opened as what it is',
    position: 'file',
    unit: 'files',
    run: () =>
      inWorkspace(async (workspace) => {
        const { directory } = workspace;
        const member = await Member.open({ address: '127.1.25.2', port: 0 });
        try {
          await member.run(async ({ context }, path) => {
            const options = { bytes: 65536, volatile: true };
            const region = await context.openPmem(path, options);
            await region.close();
          }, `${directory}/good`);
          const good = readFileSync(`${directory}/good`);
          let count = 0;
          for (const bytes of mutated(good, 60, 4096)) {
            const path = `${directory}/${count++}`;
            writeFileSync(path, bytes);
            assert.is(await member.run(openForged, path), 'as it should');
          }
          return count;
        } finally {
          member.kill();
          await member.ended;
        }
      }),
  },
  {
    name: 'a forged device file is refused by name, or removed as that of dead processes',
    position: 'file',
    unit: 'files',
    run: () =>
      inWorkspace(async (workspace) => {
        const { directory } = workspace;
        const options = { name: 'good', directory, memoryBytes: 8 * 2 ** 20 };
        const owner = await Member.open({ ...options, address: '127.1.25.3' });
        const good = readFileSync(`${directory}/verbena-good`);
        owner.kill();
        await owner.ended;
        const member = await Member.start();
        try {
          let count = 0;
          for (const bytes of mutated(good, 40, 4096)) {
            const name = `forged${count++}`;
            writeFileSync(`${directory}/verbena-${name}`, bytes, { mode: 0o600 });
            const wanted = { ...options, name, address: '127.1.25.4' };
            assert.is(await member.run(openForgedDevice, wanted), 'as it should');
          }
          return count;
        } finally {
          member.kill();
          await member.ended;
        }
      }),
  },
];

/** Opens a region in a member; describes an outcome that is neither a refusal nor a region. */
async function openForged({ verbena, context }: MemberWorld, path: string): Promise<string> {
  try {
    const region = await context.openPmem(path, { bytes: 65536, volatile: true });
    await region.close();
  } catch (error) {
    if (!(error instanceof verbena.VerbenaError)) return String((error as Error).stack);
  }
  return 'as it should';
}

/** The same for a device. */
async function openForgedDevice({ verbena }: MemberWorld, wanted: OpenOptions): Promise<string> {
  try {
    await (await verbena.openDevice(wanted)).close();
  } catch (error) {
    if (!(error instanceof verbena.VerbenaError)) return String((error as Error).stack);
  }
  return 'as it should';
}
