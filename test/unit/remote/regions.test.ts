/** Objects that can be shared: sizes, typed arrays, files, layouts, regions of the application. */
import { statSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  connect,
  matrixColumn,
  openDevice,
  share,
  type Regions,
} from '../../../host/index.js';
import { LocalMemory } from '../../../host/remote/local-regions.js';
import { expectRejected, rejection } from '../../support/refusal.js';
import { Workspace } from '../../support/processes.js';

const test = suite('unit/remote/regions');
const ANY = 'rdma://127.0.143.1:0';
/** The machine may be busy. */
const APART = { device: { address: '127.0.143.2', port: 0 }, timeout: 20_000 };

test('typed arrays are shared with their contents and their type', async () => {
  const server = await share(ANY, {
    floats: new Float64Array([1, 2, 3]),
    words: { array: new Uint16Array([7, 8]), rights: ['read'] },
    buffer: Buffer.from('text'),
  });
  const { floats, words, buffer } = server.memory;
  assert.instance(floats, Float64Array);
  assert.instance(words, Uint16Array);
  assert.is(buffer.toString(), 'text');
  const remote = await connect(server.url, APART);
  await remote.memory['floats']!.write(8, new Float64Array([5]));
  assert.equal([...floats], [1, 5, 3]);
  words[1] = 9;
  const read = await remote.memory['words']!.readInto(0, new Uint16Array(2));
  assert.equal([...read], [7, 9]);
  await remote.close();
  await server.close();
});

test('a file is shared: flush makes its bytes durable', () =>
  Workspace.use(async (space) => {
    const file = space.path('table.pmem');
    const first = await share(ANY, { table: { file, bytes: 65536 } });
    const remote = await connect(first.url, APART);
    const { table } = remote.memory;
    assert.ok(table!.isPersistent);
    await table!.write(100, Buffer.from('durable'));
    await table!.flush(100, 7);
    await remote.close();
    await first.close();
    assert.ok(statSync(file).size >= 65536);
    const second = await share(ANY, { table: { file } });
    assert.is(Buffer.from(second.memory.table.subarray(100, 107)).toString(), 'durable');
    await second.close();
  }));

test('places that are no whole numbers are refused as such, not as too far', async () => {
  const server = await share(ANY, { table: 64 });
  const remote = await connect(server.url, APART);
  const { table } = remote.memory;
  const wrong: readonly [Promise<unknown>, RegExp][] = [
    [
      table!.write(8n as never, new Uint8Array(1)),
      /^offset: write: must be a whole number, got 8n/,
    ],
    [table!.write(0.5, Uint8Array.of(1)), /^offset: write: must be a whole number, got 0.5$/],
    [table!.read(undefined as never, 8), /^offset: read: must be a whole number, got undefined$/],
    [table!.read(0, NaN), /^length: read: must be a whole number, got NaN$/],
    [table!.read(0, 65), /offset: read: 65 bytes at 0 exceed the 64 bytes of table; stay within/],
  ];
  for (const [call, text] of wrong) {
    const error = await rejection(call);
    assert.instance(error, MisuseError, String(error));
    assert.match((error as Error).message, text);
  }
  await remote.close();
  await server.close();
});

test('connect with host:port to a server of share names the URL form', async () => {
  const server = await share(ANY, { table: 64 });
  const { port, searchParams } = new URL(server.url);
  const udpPort = Number(searchParams.get('udp') ?? 4791);
  const error = await rejection(connect(`127.0.143.1:${port}`, { udpPort }));
  assert.match((error as Error).message, /was opened by share; connect to its URL/);
  const taken = await rejection(share(server.url, { table: 64 }));
  assert.match((error as Error).message, /ECONNREFUSED/);
  assert.match((taken as Error).message, /is taken; choose another, or 0/);
  await server.close();
});

test('a server without memory for more clients is refused as full, not as absent', async () => {
  const context = await openDevice({ address: '127.0.143.1', port: 0, memoryBytes: 6 * 2 ** 20 });
  const server = await share(ANY, { table: 64 }, { context });
  const clients = Array.from({ length: 60 }, () => connect(server.url, { timeout: 20_000 }));
  const results = await Promise.allSettled(clients);
  const texts = results.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
  assert.ok(texts.length > 0);
  for (const text of texts) {
    assert.match(text, /NO_QP; it has no memory left for a queue pair|as many clients as it acc/);
  }
  for (const one of results) if (one.status === 'fulfilled') await one.value.close();
  await server.close();
  await context.close();
});

test('a layout is a view of other regions: a column of a matrix', async () => {
  const shape = { rows: 4, columns: 3, elementBytes: 8 };
  const server = await share(ANY, {
    column: { layout: ({ matrix }) => matrixColumn(matrix!, shape, 1), rights: ['read'] },
    matrix: new Float64Array(Array.from({ length: 12 }, (_, at) => at)),
  });
  assert.is(server.memory.column, undefined);
  const remote = await connect(server.url, APART);
  const column = remote.memory['column']!;
  assert.is(column.length, 32);
  const values = await column.readInto(0, new Float64Array(4));
  assert.equal([...values], [1, 4, 7, 10]);
  assert.instance(await rejection(column.flush()), MisuseError);
  await remote.close();
  await server.close();
});

test('a region of the application is shared with its protection domain', async () => {
  const context = await openDevice({ address: '127.0.143.1', port: 0 });
  const pd = context.allocPd();
  const buffer = context.alloc(4096);
  const registered = pd.regMr(buffer, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ);
  const server = await share(ANY, { own: { registered, rights: ['read'] } }, { pd });
  buffer[5] = 42;
  const remote = await connect(server.url, APART);
  assert.is((await remote.memory['own']!.read(5, 1))[0], 42);
  await remote.close();
  await server.close();
  // Objects of the application are still there.
  assert.is(registered.counters().reads, 1);
  await context.close();
});

test('regions that are invalid are refused by name, and nothing stays open', async () => {
  const wrong: readonly [Regions, RegExp][] = [
    [{ table: 0 }, /regions.table: must be a whole number from 1/],
    [{ table: -5 }, /regions.table/],
    [{ table: new Uint8Array(0) }, /regions.table/],
    [{ '': 5 }, /^regions: share: a name has 1 to 128 characters, .*, got ""$/],
    [{ table: {} }, /exactly one of bytes, array, file, layout, registered/],
    [{ table: { bytes: 8, array: new Uint8Array(8) } }, /exactly one of/],
    [{ table: { bytes: 8, rights: ['execute' as never] } }, /must be of read, write, atomic/],
    [{ table: { byte: 8 } as never }, /byte: regions.table has no option of this name; is bytes/],
    [{ table: 'x' as never }, /a region is a size, a typed array or an object/],
    [{ table: 64n as never }, /an object with options, got bigint$/],
  ];
  for (const [regions, text] of wrong) {
    const error = await rejection(share(ANY, regions));
    assert.instance(error, MisuseError, String(error));
    assert.match((error as Error).message, text);
  }
  await expectRejected(share(ANY, { table: { file: '/nowhere/at/all', bytes: 4096 } }), 'ENOENT');
  const two = { context: await openDevice({ address: '127.0.143.1', port: 0 }), device: {} };
  assert.instance(await rejection(share(ANY, {}, two)), MisuseError);
  await two.context.close();
});

test('regions beyond the common device get a device of their own', async () => {
  const server = await share(ANY, { large: 100 * 2 ** 20 });
  const remote = await connect(server.url, { timeout: 20_000 });
  const { large } = remote.memory;
  await large!.write(large!.length - 4, Uint8Array.of(1, 2, 3, 4));
  assert.equal([...server.memory.large.subarray(-4)], [1, 2, 3, 4]);
  await remote.close();
  await server.close();
});

test('local memory is found by address, wherever it is in the list', () => {
  const local = new LocalMemory();
  const memory = new Uint8Array(4096);
  local.add(memory.subarray(0, 100), 1);
  local.add(memory.subarray(200, 300), 2);
  assert.is(local.keyOf(200, 100), 2);
  assert.is(local.keyOf(0, 100), 1);
  for (const [at, length] of [
    [0, 101],
    [150, 10],
    [199, 2],
    [290, 11],
  ] as const) {
    assert.is(local.keyOf(at, length), undefined);
  }
  local.remove(2);
  assert.is(local.keyOf(200, 100), undefined);
});

test.run();
