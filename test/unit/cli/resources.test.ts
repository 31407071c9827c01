/** Client and server in one process: whatever happens, a device gets back what a transfer took. */
import { mkdir, mkdtemp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { FileServer } from '../../../host/cli/serve/file-server.js';
import { openLocalDevice } from '../../../host/cli/base/open-device.js';
import { SourceFile } from '../../../host/transfer/source-file.js';
import { Transfer, type TransferResult } from '../../../host/transfer/transfer.js';
import type { SessionEnd } from '../../../host/transfer/session.js';
import type { Context } from '../../../host/index.js';
import { Workspace } from '../../support/processes.js';
import { eventually } from '../../support/receiver.js';

const address = '127.0.0.1';
const pieceBytes = 65536;

function bytesFree(context: Context): number {
  return context.device.arena.heap.bytesFree;
}

/** The memory that closing an unused device frees: that of its link. */
async function freedByClosing(): Promise<number> {
  const context = await openLocalDevice({ address, port: 0 }, { memoryBytes: 2 ** 25 });
  const before = bytesFree(context);
  await context.close();
  return bytesFree(context) - before;
}

async function world(space: Workspace, outageMillis = 0) {
  await mkdir(space.path('in'));
  const ends: SessionEnd[] = [];
  const serve = (port: number): Promise<FileServer> =>
    FileServer.open(
      { directory: space.path('in'), address, port, clientsMax: 2, windowBytes: 2 ** 19 },
      { started: () => undefined, ended: (_, __, end) => ends.push(end), refused: () => undefined },
    );
  const server = await serve(0);
  const context = await openLocalDevice({ address, port: 0 }, { memoryBytes: 2 ** 25 });
  const put = async (path: string, signal: AbortSignal, arrived: (bytes: number) => void) => {
    const file = await SourceFile.open(path, pieceBytes);
    const target = { host: address, port: server.context.local.port };
    const transfer = new Transfer(
      {
        ...{ context, file, retries: 0, outageMillis, signal, remedy: '' },
        server: () => target,
        explain: (error) => error,
      },
      { progress: arrived, verifying: () => undefined, note: () => undefined },
    );
    try {
      return await transfer.run();
    } finally {
      await file.close();
    }
  };
  return { server, context, ends, put, serve };
}

test('transfers that end well, and that are broken off, leave no memory behind', () =>
  Workspace.use(async (space) => {
    const { server, context, ends, put } = await world(space);
    const file = await space.file('file', 1_000_000);
    const never = new AbortController().signal;
    // The first connection makes the queue pair of the connection manager, which stays.
    await put(file, never, () => undefined);
    await eventually(() => server.clientCount === 0);
    const before = [bytesFree(server.context), bytesFree(context)];
    const { piecesSent } = await put(file, never, () => undefined);
    assert.is(piecesSent, 16);
    const broken = new AbortController();
    const second = await space.file('second', 3_000_000);
    const stopped = put(second, broken.signal, (bytes) => {
      if (bytes > 1_000_000) broken.abort(new Error('stopped here'));
    });
    assert.match(String(await stopped.catch((error: unknown) => error)), 'stopped here');
    await eventually(() => server.clientCount === 0);
    assert.equal(
      ends.map(({ kind }) => kind),
      ['finished', 'finished', 'lost'],
    );
    const { piecesSkipped } = await put(second, never, () => undefined);
    assert.ok(piecesSkipped >= 15, `${piecesSkipped} were kept`);
    await eventually(() => server.clientCount === 0);
    assert.equal([bytesFree(server.context), bytesFree(context)], before);
    assert.ok((await readFile(second)).equals(await readFile(space.path('in', 'second'))));
    await context.close();
    await server.close();
  }));

test('a server that closes under a client gives everything back first', () =>
  Workspace.use(async (space) => {
    const { server, context, ends, put } = await world(space);
    const file = await space.file('file', 3_000_000);
    let closing: Promise<void> | undefined;
    const before = bytesFree(server.context);
    const lost = put(file, new AbortController().signal, (bytes) => {
      if (bytes > 500_000) closing ??= server.close();
    });
    assert.match(String(await lost.catch((error: unknown) => error)), 'put it again to go on');
    await closing;
    assert.is(ends[0]?.kind, 'lost');
    assert.is(bytesFree(server.context), before + (await freedByClosing()));
    await context.close();
  }));

test('a transfer without retries outlives an absence of the server that the option allows', () =>
  Workspace.use(async (space) => {
    const never = new AbortController().signal;
    for (const [name, outageMillis] of [
      ['short', 0],
      ['long', 10_000],
    ] as const) {
      const directory = await mkdtemp(space.path(name));
      const inner = Object.assign(Object.create(space) as Workspace, {
        path: (...parts: string[]) => join(directory, ...parts),
      });
      const { server, context, put, serve } = await world(inner, outageMillis);
      const file = await space.file(name, 4_000_000);
      const { port } = server.context.local;
      let again: Promise<FileServer> | undefined;
      const putting = put(file, never, (bytes) => {
        if (bytes > 1_000_000) again ??= server.close().then(() => serve(port));
      });
      const result = await putting.catch((error: Error) => error);
      if (outageMillis === 0) assert.match(String(result), /lost after 0 retries/);
      else {
        const { reconnects, piecesSkipped, piecesSent } = result as TransferResult;
        assert.equal([reconnects > 0, piecesSkipped], [true, 0]);
        assert.ok(piecesSent < 80, `${piecesSent} pieces: the rest`);
      }
      await context.close();
      await (await again!).close();
    }
  }));

test.run();
