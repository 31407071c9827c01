/** `putFile` and `receiveFiles` between two devices of this process. */
import { mkdir, readFile, readdir, truncate } from 'node:fs/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError, openDevice, type Context } from '../../../host/index.js';
import {
  directoryStore,
  putFile,
  receiveFiles,
  type FilesReceiver,
  type ReceiveFilesOptions,
  type ReceivedFile,
  type UnfinishedFile,
} from '../../../host/transfer/index.js';
import { Workspace, noise } from '../../support/processes.js';
import { eventually } from '../../support/receiver.js';

const address = '127.0.0.1';

interface World {
  readonly space: Workspace;
  readonly context: Context;
  readonly receiver: FilesReceiver;
  readonly udpPort: number;
  readonly files: ReceivedFile[];
  readonly unfinished: UnfinishedFile[];
}

async function inWorld(
  work: (world: World) => Promise<void>,
  options: Partial<ReceiveFilesOptions> = {},
): Promise<void> {
  await Workspace.use(async (space) => {
    await mkdir(space.path('in'));
    const context = await openDevice({ address, port: 0, memoryBytes: 2 ** 25 });
    const there = await openDevice({ address, port: 0, memoryBytes: 2 ** 25 });
    const files: ReceivedFile[] = [];
    const unfinished: UnfinishedFile[] = [];
    const receiver = await receiveFiles({
      ...{ context: there, store: await directoryStore(space.path('in')) },
      onFile: (file) => void files.push(file),
      onUnfinished: (file) => void unfinished.push(file),
      ...options,
    });
    try {
      const udpPort = there.local.port;
      await work({ space, context, receiver, udpPort, files, unfinished });
    } finally {
      await receiver.close();
      await context.close();
      await there.close();
    }
  });
}

function messageOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => 'it was done',
    (error: Error) => error.message,
  );
}

test('a Blob arrives by its name, and both sides report the same digest', () =>
  inWorld(async ({ space, context, udpPort, files, receiver }) => {
    const content = noise(1_000_001);
    const progress: number[] = [];
    const put = await putFile(address, new Blob([content]), {
      ...{ context, udpPort, name: 'blob', pieceBytes: 65_536 },
      onProgress: (bytes, total) => {
        assert.is(total, content.length);
        progress.push(bytes);
      },
    });
    assert.ok((await readFile(space.path('in', 'blob'))).equals(content));
    assert.equal([put.bytes, put.piecesSent, put.piecesSkipped], [1_000_001, 16, 0]);
    assert.is(progress.at(-1), content.length);
    assert.equal(
      progress,
      [...progress].sort((a, b) => a - b),
    );
    await eventually(() => files.length === 1);
    const { name, bytes, sha256 } = files[0]!;
    assert.equal([name, bytes, sha256], ['blob', 1_000_001, put.sha256]);
    await eventually(() => receiver.count === 0);
    assert.is(receiver.count, 0);
  }));

test('memory is bounded: a file of three times the memory of both devices arrives', () =>
  inWorld(async ({ space, context, udpPort, files, receiver }) => {
    const bytes = 3 * 2 ** 25;
    const path = await space.file('long', 0);
    await truncate(path, bytes);
    // Buffers of this process, with those of both devices.
    let most = 0;
    const before = process.memoryUsage().arrayBuffers;
    const put = await putFile(address, path, {
      ...{ context, udpPort },
      onProgress: () => {
        most = Math.max(most, process.memoryUsage().arrayBuffers - before);
      },
    });
    await eventually(() => files.length === 1 && receiver.count === 0);
    assert.equal([files[0]!.bytes, files[0]!.sha256], [bytes, put.sha256]);
    assert.ok(most < 2 ** 23, `${most} bytes of buffers`);
  }));

test('an abort rejects with its reason, and the next call sends the rest', () =>
  inWorld(async ({ space, context, udpPort, unfinished }) => {
    const file = await space.file('long', 8_000_000);
    const abort = new AbortController();
    const reason = new Error('the user has left');
    const how = { context, udpPort, pieceBytes: 65_536 };
    const stopped = putFile(address, file, {
      ...{ ...how, signal: abort.signal },
      onProgress: (bytes) => {
        if (bytes > 3_000_000) abort.abort(reason);
      },
    });
    assert.is(await stopped.catch((error: unknown) => error), reason);
    await eventually(() => unfinished.length === 1);
    assert.ok(unfinished[0]!.piecesKept >= 32, `${unfinished[0]!.piecesKept}`);
    assert.is(unfinished[0]!.error.code, 'ECONNRESET');
    const { piecesSkipped, piecesSent } = await putFile(address, file, how);
    assert.is(piecesSkipped, unfinished[0]!.piecesKept);
    assert.is(piecesSkipped + piecesSent, Math.ceil(8_000_000 / 65_536));
    assert.equal(await readdir(space.path('in')), ['long']);
  }));

test('a device that is closed ends a putFile, which names it', () =>
  inWorld(async ({ udpPort }) => {
    const context = await openDevice({ address, port: 0, memoryBytes: 2 ** 25 });
    const how = { context, udpPort, name: 'x', retries: 0, outageMillis: 0 };
    // No device answers there.
    const message = messageOf(putFile('127.0.233.30', new Blob(['x']), how));
    await new Promise((resolve) => setTimeout(resolve, 100));
    await context.close();
    const text = /^putFile: 127.0.233.30.*: connect: the device was closed; open another \(EIO\)$/;
    assert.match(await message, text);
  }));

test('arguments out of range name themselves, and so does a device without a receiver', () =>
  inWorld(async ({ context, udpPort, receiver }) => {
    const blob = new Blob(['x']);
    const how = { context, udpPort, name: 'x' };
    const cases: readonly [() => Promise<unknown>, RegExp][] = [
      [() => putFile(address, blob, { context, udpPort }), /^name: is required for a Blob/],
      [() => putFile(address, 5 as never, how), /^file: must be a Blob, a File, or a path/],
      [() => putFile(address, blob, { ...how, pieceBytes: 5 }), /^pieceBytes: must be .*4096/],
      [() => putFile(address, blob, { ...how, name: 'a/b' }), /has no path in it \(EINVAL\)/],
      [() => putFile(address, blob, { ...how, name: '.bashrc' }), /begins with a dot \(EINVAL\)/],
      [() => putFile(address, blob, {} as never), /^context: must be a context of openDevice/],
      [() => receiveFiles({ context } as never), /^store: is required/],
      [() => putFile(address, '/no/such/file', how), /no such file or directory \(ENOENT\)/],
    ];
    for (const [call, rule] of cases) assert.match(await messageOf(call()), rule);
    await receiver.close();
    assert.match(
      await messageOf(putFile(address, blob, how)),
      /receives no files; call receiveFiles, .*ECONNREFUSED/,
    );
  }));

test('a second receiver on one device is refused', () =>
  inWorld(async ({ context, space }) => {
    const store = await directoryStore(space.path('in'));
    const receiver = await receiveFiles({ context, store });
    assert.match(await messageOf(receiveFiles({ context, store })), /EADDRINUSE/);
    await receiver.close();
    await (await receiveFiles({ context, store })).close();
  }));

test('odd arguments are MisuseErrors that name the argument', () =>
  inWorld(async ({ context, udpPort, space }) => {
    const blob = new Blob(['some bytes']);
    const right = { context, udpPort, name: 'file' };
    const odd = (value: unknown): never => value as never;
    const calls: Readonly<Record<string, () => Promise<unknown>>> = {
      'receiver, a number': () => putFile(odd(5), blob, right),
      'receiver, null': () => putFile(odd(null), blob, right),
      'receiver, nothing': () => putFile('', blob, right),
      'receiver, of a function': () => putFile(() => odd(undefined), blob, right),
      'file, a Buffer': () => putFile(address, odd(Buffer.from('some')), right),
      'file, a length below 0': () => putFile(address, odd({ size: -5, slice() {} }), right),
      'context, an object': () => putFile(address, blob, { ...right, context: odd({}) }),
      'name, a number': () => putFile(address, blob, { ...right, name: odd(5) }),
      'signal, an object': () => putFile(address, blob, { ...right, signal: odd({}) }),
      'onProgress, a number': () => putFile(address, blob, { ...right, onProgress: odd(5) }),
      'directory, nothing': () => directoryStore(odd(undefined)),
      'directory, with a zero': () => directoryStore('a\0b'),
      'quotaBytes, below 0': () => directoryStore(space.directory, { quotaBytes: -1 }),
      'expireMillis, no number': () => directoryStore(space.directory, { expireMillis: NaN }),
    };
    for (const [what, call] of Object.entries(calls)) {
      const error: unknown = await call().catch((thrown: unknown) => thrown);
      assert.instance(error, MisuseError, what);
      assert.is((error as MisuseError).argument, what.split(',')[0], what);
    }
  }));

test('an exception of a callback is uncaught, and the file arrives', async () => {
  const seen: unknown[] = [];
  const listeners = process.rawListeners('uncaughtException') as NodeJS.UncaughtExceptionListener[];
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => seen.push(error));
  const fault = new Error('of the program');
  const onProgress = (): void => {
    throw fault;
  };
  try {
    await inWorld(
      async ({ context, udpPort, files }) => {
        await putFile(address, new Blob(['some']), { context, udpPort, name: 'file' });
        await eventually(() => files.length === 1);
      },
      { onProgress },
    );
    assert.ok(seen.includes(fault));
  } finally {
    process.removeAllListeners('uncaughtException');
    for (const listener of listeners) process.on('uncaughtException', listener);
  }
});

test.run();
