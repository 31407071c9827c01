/**
 * Data that the commands acknowledge, on a failing disk: received files, and a log over a network.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Program, cliPath } from '../../support/processes.js';
import { appendOnce, appendUntilCut, recordsIn } from '../../support/killed-server.js';
import type { FailingDisk } from './failing-disk.js';
import type { DiskError } from './fuse-disk.js';
import { FILE_NAME, PIECES, contentOf, type ReceiverCommand } from './receiver.js';
import { Child, SUCCESS, type Ending } from './scenario.js';

const TAG = 'THIS PIECE FAILS';
/** Pieces per sync. */
const SYNCED = 16;
const receiver = fileURLToPath(new URL('./receiver.js', import.meta.url));

/** A file reported as received survives a power cut, byte for byte. */
export async function receivedFile(
  disk: FailingDisk,
  code: DiskError,
  ending: Ending,
): Promise<void> {
  const start = () => new Child<ReceiverCommand>(receiver, [disk.directory, TAG]);
  let child = start();
  try {
    await child.must({ kind: 'open' });
    await child.must({ kind: 'receive', from: 0, to: SYNCED });
    while ((await child.must({ kind: 'synced' })).count! < SYNCED);
    await disk.fail(code, TAG);
    await child.do({ kind: 'receive', from: SYNCED, to: PIECES });
    assert.notEqual(await child.do({ kind: 'finish' }), SUCCESS, 'finished while writes fail');
    assert.ok((await disk.heal()).failed > 0, 'no write has failed');
    assert.notEqual(await child.do({ kind: 'finish' }), SUCCESS, 'finished after an error');
    if (ending !== 'kill') await child.do({ kind: 'close' });
    if (ending !== 'reopen') {
      await child.end();
      child = start();
    }
    await child.must({ kind: 'open' });
    assert.ok((await child.must({ kind: 'synced' })).count! >= SYNCED, 'no piece was kept');
    await child.must({ kind: 'receive', from: 0, to: PIECES });
    await child.must({ kind: 'finish' });
    await disk.cut();
    await child.end();
    await disk.powerOn();
    const found = readFileSync(join(disk.directory, FILE_NAME));
    assert.ok(found.equals(contentOf(TAG)), 'the received file differs after the mount');
  } finally {
    await child.end();
  }
}

const SERVER = '127.0.86.5';
const CLIENT = '127.0.86.6';
/** Bytes of record 100, all of the value 100 (test/support/killed-server.ts). */
const RECORD_TAG = 'd'.repeat(60);

/** A log in a server's persistent memory, which a client appends to. */
export async function remoteLog(disk: FailingDisk, code: DiskError): Promise<void> {
  const path = join(disk.directory, 'log.pmem');
  const place = { server: SERVER, client: CLIENT };
  const words = ['serve', '--pmem', path, '--pmem-bytes', '256k', '--bind', SERVER];
  const servers: Program[] = [];
  const serve = async (): Promise<Program> => {
    const server = new Program(process.execPath, [cliPath, ...words]);
    servers.push(server);
    await server.printed('stdout', /serving/);
    return server;
  };
  try {
    let server = await serve();
    let told = await appendUntilCut(place, 0, 40, () => undefined);
    await disk.fail(code, RECORD_TAG);
    // The client continues until an append fails.
    const progress = { acknowledged: told, isCut: false };
    await assert.rejects(appendOnce(place, progress, told + 1000, () => undefined));
    told = progress.acknowledged;
    assert.ok((await disk.heal()).failed > 0, 'no write has failed');
    const ended = await server.ended;
    assert.equal(ended.code, 1, 'a server with a failed region ends');
    assert.match(ended.stderr, /^verbena serve: .*log\.pmem.*\(EIO\)$/m);
    server = await serve();
    told = await appendUntilCut(place, told, 20, () => undefined);
    told = await appendUntilCut(place, told, 20, () => void disk.cut());
    server.kill('SIGKILL');
    await server.ended;
    await disk.powerOn();
    const { length } = recordsIn(path);
    assert.ok(length >= told, `${length} records are left of ${told}`);
    await serve();
    assert.ok((await appendUntilCut(place, told, 5, () => undefined)) >= told + 5);
  } finally {
    for (const server of servers) {
      server.kill('SIGKILL');
      await server.ended;
    }
  }
}
