/** Calls that a server, or its return with other limits, rights and memory, refuses. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  connect,
  openDevice,
  share,
  type Remote,
  type RemoteError,
  type RemoteRegion,
} from '../../../host/index.js';
import { rejection } from '../../support/refusal.js';

const test = suite('unit/remote/other-server');
const ANY = 'rdma://127.0.230.1:0' as const;
const APART = { device: { address: '127.0.230.2', port: 0 }, timeout: 20_000 };
const reconnect = { delayMillis: 20 };

type Url = typeof ANY;

/** The place of a server that ended: the next one listens there. */
const placeOf = (url: string): Url => (url.includes('?') ? url : `${url}?udp=4791`) as Url;

async function misuse(work: Promise<unknown>, text: RegExp): Promise<void> {
  const error = await rejection(work);
  assert.instance(error, MisuseError, String(error));
  assert.match((error as Error).message, text);
}

test('a message that is too long for the next server rejects, those behind it arrive', async () => {
  const first = await share(ANY, { table: 64 });
  const place = placeOf(first.url);
  const remote = await connect(place, { ...APART, reconnect });
  await first.close();
  const sends = [5000, 50, 60].map((length) => remote.send(new Uint8Array(length)));
  const ends = Promise.allSettled(sends);
  const lengths: number[] = [];
  const onClient = async (client: Remote): Promise<void> => {
    for await (const message of client) lengths.push(message.length);
  };
  const second = await share(place, { table: 64 }, { messageBytesMax: 1000, onClient });
  const statuses = (await ends).map(({ status }) => status);
  assert.equal(statuses, ['rejected', 'fulfilled', 'fulfilled']);
  await misuse(sends[0]!, /has 5000 bytes, the peer accepts 1000; split it/);
  await remote.close();
  assert.equal(lengths, [50, 60]);
  await second.close();
});

test('a call that the next server does not permit rejects, those behind it succeed', async () => {
  const first = await share(ANY, { table: 64, other: 64 });
  const place = placeOf(first.url);
  const remote = await connect(place, { ...APART, reconnect });
  const { table, other } = remote.memory;
  await first.close();
  const calls = [table!.write(0, Uint8Array.of(1)), other!.fetchAdd(0, 1n), table!.read(0, 1)];
  const ends = Promise.allSettled(calls);
  const regions = { table: { bytes: 64, rights: ['read'] }, other: 64 } as const;
  const second = await share(place, regions);
  assert.equal(
    (await ends).map(({ status }) => status),
    ['rejected', 'fulfilled', 'fulfilled'],
  );
  await misuse(calls[0]!, /region: write: table permits read; the peer must share/);
  await remote.close();
  await second.close();
});

test('regions of handles end with their server, and keep the connection', async () => {
  const first = await share(ANY, { table: 64 }, { lendBytes: 64 });
  const place = placeOf(first.url);
  const remote = await connect(place, { ...APART, reconnect, ask: { own: 8 } });
  const regions = ['table', 'own'].map((name) => remote.region(remote.memory[name]!.handle));
  for (const region of regions) await region.write(0, Uint8Array.of(1));
  // The same server after a lost connection: its memory is there, what it lent has ended.
  await [...first.clients][0]!.destroy();
  await remote.memory['table']!.write(0, Uint8Array.of(2));
  const [table, own] = regions as [RemoteRegion, RemoteRegion];
  assert.equal([...(await table.read(0, 1))], [2]);
  const isStale = /^handle: (write|read): names a region of another server, or of one that rest/;
  await misuse(own.write(0, Uint8Array.of(1)), isStale);
  await first.close();
  const waiting = rejection(table.read(0, 1));
  const second = await share(place, { table: 64 }, { lendBytes: 64 });
  assert.match(((await waiting) as Error).message, isStale);
  await misuse(table.write(0, Uint8Array.of(1)), isStale);
  await remote.memory['table']!.write(0, Uint8Array.of(3));
  assert.is(second.memory.table[0], 3);
  await remote.close();
  await second.close();
});

test("a handle of one client's memory is refused for another client", async () => {
  const clients: Remote[] = [];
  const onClient = (client: Remote): void => void clients.push(client);
  const server = await share(ANY, { table: 8 }, { onClient });
  const remotes = [
    await connect(server.url, { ...APART, share: { inbox: 64 } }),
    await connect(server.url, { ...APART, share: { inbox: 64 } }),
  ];
  const { handle } = clients[0]!.memory['inbox']!;
  await clients[0]!.region(handle).write(0, Uint8Array.of(1));
  await misuse(
    Promise.resolve().then(() => clients[1]!.region(handle)),
    /names a region of another server/,
  );
  for (const remote of remotes) await remote.close();
  await server.close();
});

test('the error of a connection that a refused call ended names that call', async () => {
  const pd = (await openDevice({ address: '127.0.230.3', port: 0 })).allocPd();
  const bytes = pd.context.alloc(64);
  const { REMOTE_READ, REMOTE_WRITE, LOCAL_WRITE } = AccessFlag;
  const registered = pd.regMr(bytes, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
  const server = await share('rdma://127.0.230.3:0', { gone: { registered }, table: 8 }, { pd });
  const remote = await connect(server.url, APART);
  const { gone, table } = remote.memory;
  registered.dereg();
  const calls = [gone!.write(0, Uint8Array.of(1)), table!.read(0, 8)];
  const [first, second] = (await Promise.all(calls.map(rejection))) as RemoteError[];
  assert.match(first!.message, /^write of gone: the peer refuses access to the region; /);
  assert.match(
    second!.message,
    /^read of table: the connection ended with write of gone: the peer/,
  );
  assert.is(second!.cause, first);
  await remote.close();
  await server.close();
  await pd.context.close();
});

test('a view whose buffer was made smaller is refused, and blocks no other call', async () => {
  const server = await share(ANY, { table: 64 });
  const remote = await connect(server.url, APART);
  const { table } = remote.memory;
  // Not in the types of ES2022.
  const Resizable = ArrayBuffer as unknown as new (
    bytes: number,
    options: { maxByteLength: number },
  ) => ArrayBuffer & { resize(bytes: number): void };
  const buffer = new Resizable(32, { maxByteLength: 32 });
  const views = [new Uint8Array(buffer, 16), new Float32Array(buffer, 16, 4)];
  const gone = [...views, new DataView(buffer, 16, 8)];
  buffer.resize(8);
  for (const view of gone) {
    const isGone = /: was transferred or made smaller; pass a copy/;
    await misuse(remote.send(view), isGone);
    await misuse(table!.write(0, view), isGone);
    await misuse(table!.readInto(0, view), isGone);
  }
  const proxy = new Proxy(new Uint8Array(4), {});
  for (const call of [remote.send(proxy), table!.write(0, proxy), table!.readInto(0, proxy)]) {
    await misuse(call, /must be an ArrayBuffer or a view, got object/);
  }
  await remote.send(Uint8Array.of(1));
  await table!.write(0, Uint8Array.of(1));
  await remote.close();
  await server.close();
});

test.run();
