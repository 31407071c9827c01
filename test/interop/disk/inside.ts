/**
 * The checks of disk-errors.ts, in a mount namespace of their own: `node inside.js FOLDER [PART]`
 * runs those with PART in their names. The parent process receives the counts.
 */
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { LineReport } from '../group.js';
import { FILE_SYSTEMS, FailingDisk, type FileSystem } from './failing-disk.js';
import type { DiskError } from './fuse-disk.js';
import { receivedFile, remoteLog } from './programs.js';
import {
  Victim,
  errorsOfAll,
  errorsOfData,
  errorsOfMaking,
  errorsOfOldLayout,
  thinDisk,
  type Ending,
} from './scenario.js';
import { ThinDisk } from './thin-disk.js';
import { STORE_KINDS, type StoreKind } from './victim.js';

const [folder = '', part = ''] = process.argv.slice(2);
const report = new LineReport((line) => console.log(line));
const known = readFileSync('/proc/filesystems', 'utf8');
let count = 0;

const ENDINGS: Readonly<Record<Ending, string>> = {
  close: 'its process closes it',
  kill: 'its process is killed',
  reopen: 'its process opens it again',
};
/** Each error, and each end. */
const CASES: readonly [DiskError, Ending][] = [
  ['EIO', 'kill'],
  ['ENOSPC', 'close'],
  ['EIO', 'reopen'],
];

async function check(name: string, run: () => Promise<void>): Promise<void> {
  if (name.includes(part)) await report.check(name, run);
}

function place(): string {
  const path = join(folder, `${count++}`);
  mkdirSync(path);
  return path;
}

async function withDisk(system: FileSystem, use: (disk: FailingDisk) => Promise<void>) {
  const disk = await FailingDisk.open(place(), system);
  try {
    await use(disk);
  } finally {
    await disk.close();
  }
}

async function withThinDisk(system: FileSystem, use: (disk: ThinDisk) => Promise<void>) {
  const disk = await ThinDisk.open(place(), system);
  try {
    await use(disk);
  } finally {
    await disk.close();
  }
}

async function checkKind(system: FileSystem, kind: StoreKind): Promise<void> {
  const name = `${system.name}: ${kind}`;
  for (const [code, ending] of CASES) {
    await check(`${name}: ${code} of its data, then ${ENDINGS[ending]}`, () =>
      withDisk(system, (disk) => errorsOfData(disk, kind, code, ending)),
    );
  }
  await check(`${name}: EIO of the whole disk`, () =>
    withDisk(system, (disk) => errorsOfAll(disk, kind, 'EIO', 'close')),
  );
  await check(`${name}: no room under the file system`, () =>
    withThinDisk(system, (disk) => thinDisk(disk, kind, 'close')),
  );
  if (kind === 'NVMe file') return;
  await check(`${name}: ENOSPC during its creation`, () =>
    withDisk(system, (disk) => errorsOfMaking(disk, kind, 'ENOSPC')),
  );
  await check(`${name}: EIO of a file that an earlier build preallocated`, () =>
    withDisk(system, (disk) => errorsOfOldLayout(disk, kind, 'EIO', 'kill')),
  );
}

/** File systems on which a full disk would end a process that writes to a mapping. */
async function refusesMapping(disk: FailingDisk, kind: StoreKind): Promise<void> {
  const victim = new Victim(kind, join(disk.directory, 'stored'));
  try {
    assert.equal(await victim.do({ kind: 'open' }), 'EOPNOTSUPP');
  } finally {
    await victim.end();
  }
}

for (const system of FILE_SYSTEMS) {
  if (!new RegExp(`\\t${system.type}$`, 'm').test(known)) {
    report.note(`not on ${system.name}: this kernel has no file system ${system.type}`);
    continue;
  }
  for (const kind of STORE_KINDS) {
    const isMapped = kind.startsWith('mapped');
    if (!isMapped || system.copiesOnWrite !== true) await checkKind(system, kind);
    else {
      await check(`${system.name}: ${kind}: refused, since a full disk would end it`, () =>
        withDisk(system, (disk) => refusesMapping(disk, kind)),
      );
    }
  }
  for (const [code, ending] of CASES) {
    await check(`${system.name}: received file: ${code}, then ${ENDINGS[ending]}`, () =>
      withDisk(system, (disk) => receivedFile(disk, code, ending)),
    );
  }
  await check(`${system.name}: log of a server: EIO, then the server is started again`, () =>
    withDisk(system, (disk) => remoteLog(disk, 'EIO')),
  );
}
process.send?.({ passed: report.passed, failed: report.failed }, undefined, undefined, () =>
  process.exit(0),
);
