/** Shared memory and its clients: the calls, their order, limits and ends, in one process. */
import { setTimeout as sleep } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  RemoteError,
  WcStatus,
  connect,
  listen,
  share,
  type Remote,
  type RemoteServer,
} from '../../../host/index.js';
import { expectRejected, rejection } from '../../support/refusal.js';

const test = suite('unit/remote/remote');
const ADDRESS = '127.0.140.1';
const ANY = `rdma://${ADDRESS}:0` as const;
/** A client with a device of its own: packets travel. */
const DEVICE = { device: { address: '127.0.140.2', port: 0 } };
/** The machine may be busy. */
const APART = { ...DEVICE, timeout: 20_000 };

async function misuse(work: Promise<unknown>, text: RegExp): Promise<void> {
  const error = await rejection(work);
  assert.instance(error, MisuseError, String(error));
  assert.match((error as Error).message, text);
}

/** Exactly `room` of 20 sends resolve: a read behind them overtakes the rest. */
async function expectRoom(remote: Remote, room: number, what: string): Promise<void> {
  let sent = 0;
  const sends = Array.from({ length: 20 }, () => remote.send(new Uint8Array(1)));
  for (const send of sends) {
    send.then(
      () => sent++,
      () => {},
    );
  }
  await Promise.all(sends.slice(0, room));
  for (let count = 0; count < 3; count++) await remote.memory['table']!.read(0, 8);
  assert.is(sent, room, what);
}

/** A server with one region of 4096 bytes, and a client of another device. */
async function withTable(
  work: (remote: Remote, server: RemoteServer<{ table: number }>) => Promise<void>,
  options: object = {},
): Promise<void> {
  const server = await share(ANY, { table: 4096 });
  const remote = await connect(server.url, { ...APART, ...options });
  try {
    await work(remote, server);
  } finally {
    await remote.close();
    await server.close();
  }
}

test('options and regions that would fail each client are refused at once', async () => {
  for (const keepAliveMillis of [5, NaN, -1]) {
    await misuse(share(ANY, { table: 8 }, { keepAliveMillis }), /keepAliveMillis/);
  }
  await misuse(share(ANY, { table: 8 }, { onClient: 5 as never }), /onClient.*function/);
  await misuse(share(ANY, { table: 8 }, { onError: 'x' as never }), /onError.*function/);
  const view = new DataView(new ArrayBuffer(8)) as never;
  await misuse(share(ANY, { view }), /regions.view.*typed array/);
  for (const regions of [[8], new Map([['table', 8]]), new Uint8Array(8), view])
    await misuse(share(ANY, regions as never), /regions: share takes an object, got /);
  await misuse(share(ANY, { a: { bytes: 8, rights: [] } }), /regions.a.rights: .*got 0/);
  await misuse(share(ANY, { 'a\u001b[31m': 8 }), /no control characters, .*, got "a\\u001b/);
  await misuse(share(ANY, { view: { array: view } }), /regions.view.array.*typed array/);
});

test('the sample of the documentation works as it is written', async () => {
  const { signal } = new AbortController();
  const server = await share(ANY, { table: 262_144 });
  const { memory, url } = server;
  const remote = await connect(url, { timeout: 20_000, signal });
  const { table } = remote.memory;
  const bytes = Uint8Array.of(1, 2, 3, 4);
  await table!.write(0, bytes);
  assert.equal(memory.table.slice(0, 4), bytes);
  const floats = new Float32Array(memory.table.buffer, memory.table.byteOffset, 2);
  floats[1] = 1.5;
  assert.is((await table!.readInto(0, new Float32Array(2)))[1], 1.5);
  assert.is((await table!.read(0, 256)).length, 256);
  assert.is(await table!.compareAndSwap(8, 0n, 1n), 0n);
  assert.is(await table!.fetchAdd(8, -1n), 1n);
  assert.is(await table!.fetchAdd(8, 0n), 0n);
  await table!.flush(0, 64);
  const [client] = server.clients;
  await remote.send(bytes);
  await client!.send(Uint8Array.of(9));
  for await (const message of client!) {
    assert.equal(message, bytes);
    break;
  }
  await client!.close();
  const got: number[] = [];
  for await (const message of remote) got.push(message[0]!);
  assert.equal(got, [9]);
  assert.is(await remote.closed, undefined);
  await remote.close();
  await server.close();
});

test('requests larger than a piece arrive whole, from memory of the caller and of the device', async () => {
  const bytes = 3 * 2 ** 20 + 17;
  const server = await share(ANY, { large: bytes });
  const remote = await connect(server.url, APART);
  const { large } = remote.memory;
  const random = new Uint8Array(bytes).map((_, at) => Math.imul(at, 2654435761) >>> 13);
  for (const source of [random, remote.alloc(bytes)]) {
    source.set(random);
    server.memory.large.fill(0);
    await large!.write(0, source);
    assert.ok(Buffer.compare(server.memory.large, random) === 0);
  }
  assert.ok(Buffer.compare(await large!.read(0, bytes), random) === 0);
  const target = remote.alloc(bytes);
  await large!.readInto(0, target);
  assert.ok(Buffer.compare(target, random) === 0);
  // Memory of the device that no region covers is copied.
  const foreign = remote.connection.context.alloc(bytes);
  await large!.readInto(0, foreign);
  assert.ok(Buffer.compare(foreign, random) === 0);
  await remote.close();
  await server.close();
});

test('ten thousand calls at once are executed in the order in which they were made', () =>
  withTable(async (remote, { memory }) => {
    const { table } = remote.memory;
    const calls: Promise<unknown>[] = [];
    for (let count = 0; count < 10_000; count++) {
      const word = new Uint8Array(8);
      new DataView(word.buffer).setBigUint64(0, BigInt(count), true);
      calls.push(table!.write(0, word));
      if (count % 100 === 0) calls.push(table!.read(0, 8));
    }
    const before = table!.fetchAdd(0, 1n);
    await Promise.all(calls);
    assert.is(await before, 9999n);
    assert.is(memory.table[0], 10_000 & 0xff);
  }));

test('arguments are checked at the call: the error names the operation, the rule and the remedy', () =>
  withTable(async (remote) => {
    const { table } = remote.memory;
    const bytes = new Uint8Array(8);
    await misuse(
      table!.write(4090, bytes),
      /write: 8 bytes at 4090 exceed the 4096 bytes of table/,
    );
    await misuse(table!.write(-1, bytes), /write: 8 bytes at -1/);
    await misuse(table!.read(0, 4097), /read: 4097 bytes at 0/);
    await misuse(table!.read(NaN, 1), /read/);
    await misuse(table!.readInto(4092, new Float64Array(1)), /readInto/);
    await misuse(table!.fetchAdd(4, 1n), /offset: fetchAdd: must be a multiple of 8, got 4/);
    await misuse(table!.fetchAdd(0, 1n << 64n), /addend/);
    await misuse(table!.compareAndSwap(0, -1n, 0n), /expected/);
    await misuse(table!.flush(0, 5000), /flush/);
    await misuse(table!.flush(0n as never), /flush: must be a whole number, got 0n/);
    await misuse(table!.flush(Symbol('a') as never), /got Symbol\(a\)/);
    await misuse(table!.write(0, 'text' as never), /encode text with TextEncoder/);
    await misuse(table!.readInto(0, [1, 2] as never), /got an array; pass a typed array/);
    await misuse(table!.write(0, bytes, { timout: 1 } as never), /is timeout meant/);
    await misuse(table!.write(0, bytes, { timeout: -1 }), /timeout/);
    await misuse(remote.send('text' as never), /send: must be an ArrayBuffer/);
    await misuse(remote.send(bytes, { signl: 1 } as never), /is signal meant/);
    // Nothing of this has harmed the connection.
    await table!.write(0, bytes);
    await table!.write(0, new Uint8Array(0));
    assert.is((await table!.read(4096, 0)).length, 0);
  }));

test('rights are those of the region, here and at the peer', async () => {
  const server = await share(ANY, {
    log: { bytes: 64, rights: ['read'] },
    counter: { bytes: 64, rights: ['atomic'] },
  });
  const remote = await connect(server.url, APART);
  const { log, counter } = remote.memory;
  assert.equal([log!.rights, counter!.rights], [['read'], ['atomic']]);
  await misuse(log!.write(0, new Uint8Array(8)), /log permits read; the peer must share/);
  await misuse(counter!.read(0, 8), /counter permits atomic/);
  assert.is(await counter!.fetchAdd(0, 5n), 0n);
  await log!.read(0, 8);
  // A client that forges a right meets the server's own check, and receives the reason.
  const forged = remote.region(log!.handle.replace(/,1\]$/, ',7]'));
  const error = await rejection(forged.write(0, new Uint8Array(8)));
  assert.instance(error, RemoteError);
  const { code, status, operation, explanation, remedy } = error as RemoteError;
  assert.equal([code, status, operation], ['EACCES', WcStatus.REM_ACCESS_ERR, 'write of log']);
  assert.ok(explanation.length > 20 && remedy.length > 10);
  const reason = await remote.closed;
  assert.is(reason?.status, WcStatus.REM_ACCESS_ERR);
  await expectRejected(log!.read(0, 8), 'EACCES');
  await server.close();
});

test('handles survive JSON and postMessage, and name a region of one server', () =>
  withTable(async (remote) => {
    const { handle } = JSON.parse(JSON.stringify({ handle: remote.memory['table'] })) as {
      handle: string;
    };
    const other = remote.region(structuredClone(handle));
    await other.write(8, Uint8Array.of(7));
    assert.is((await remote.memory['table']!.read(8, 1))[0], 7);
    assert.is(remote.region(handle), other);
    for (const wrong of ['', 'verbena-region:{}', `${handle}x`, 'verbena-region:["1"]', 7]) {
      assert.throws(() => remote.region(wrong as string), /handle: must be a handle/);
    }
    const foreign = handle.replace(/\["\w+"/, '["1"');
    assert.throws(() => remote.region(foreign), /another server/);
  }));

test('a client hands memory over and asks for memory of its own', async () => {
  const server = await share(ANY, { table: 64 }, { lendBytes: 4096 });
  const iterator = server[Symbol.asyncIterator]();
  const remote = await connect(server.url, {
    ...APART,
    share: { inbox: 128, floats: new Float32Array([1, 2, 3]) },
    ask: { scratch: 4096 },
  });
  const client = (await iterator.next()).value!;
  await client.memory['inbox']!.write(0, Uint8Array.of(5));
  assert.is(remote.shared.inbox[0], 5);
  const floats = await client.memory['floats']!.readInto(0, new Float32Array(3));
  assert.equal([...floats], [1, 2, 3]);
  await remote.memory['scratch']!.write(0, Uint8Array.of(8));
  assert.is((client.shared as { scratch: Uint8Array }).scratch[0], 8);
  const error = await expectRejected(
    connect(server.url, { ...APART, ask: { more: 4097 } }),
    'EACCES',
    /the server refuses: 4097 bytes asked for, lendBytes is 4096; ask for less/,
  );
  assert.instance(error, RemoteError);
  await expectRejected(connect(server.url, { ...APART, ask: { table: 8 } }), 'EACCES', /table/);
  for (const name of ['', '__proto__', 'a\u0000', 'x'.repeat(129)]) {
    // Not as a literal, whose __proto__ is no key.
    const ask = Object.fromEntries([[name, 8]]);
    await misuse(connect(server.url, { ...APART, ask }), /^ask: connect: a name has 1 to 128 char/);
  }
  await remote.close();
  await server.close();
});

test('messages of any length arrive in order; a peer that does not read delays no write', () =>
  withTable(async (remote, server) => {
    const [client] = server.clients;
    const lengths = [0, 1, 8192, 8193, 300_000, 5];
    const sent = lengths.map((length) => remote.send(new Uint8Array(length).fill(length)));
    let isSent = false;
    void Promise.all(sent).then(() => (isSent = true));
    await remote.memory['table']!.write(0, Uint8Array.of(1));
    const got: number[] = [];
    for await (const message of client!) {
      assert.ok(message.every((byte) => byte === (message.length & 0xff)));
      got.push(message.length);
      if (got.length === lengths.length) break;
    }
    assert.equal(got, lengths);
    await Promise.all(sent);
    assert.ok(isSent);
    // The peer reads none: a message without room waits, and fails with the connection.
    const unread = Array.from({ length: 40 }, () => remote.send(Uint8Array.of(1)));
    const ends = Promise.allSettled(unread);
    await remote.memory['table']!.write(0, Uint8Array.of(2));
    await remote.close();
    const kinds = (await ends).map(({ status }) => status);
    const room = kinds.filter((kind) => kind === 'fulfilled').length;
    assert.ok(room > 0 && room <= 16, `${room}`);
  }));

test('a message that the peer does not accept is refused before it is sent', async () => {
  const server = await share(ANY, { table: 64 }, { messageBytesMax: 100 });
  const remote = await connect(server.url, APART);
  await misuse(remote.send(new Uint8Array(101)), /has 101 bytes, the peer accepts 100; split it/);
  await remote.send(new Uint8Array(100));
  await remote.close();
  await server.close();
});

test('a timeout and a signal end a call, and the connection goes on', () =>
  withTable(async (remote) => {
    const { table } = remote.memory;
    const bytes = new Uint8Array(8);
    const aborted = AbortSignal.abort(new Error('stop'));
    assert.is(
      ((await rejection(table!.write(0, bytes, { signal: aborted }))) as Error).message,
      'stop',
    );
    const controller = new AbortController();
    // Completions of the first call of a turn may be there before the call returns; those of
    // a second call are taken in a later turn.
    const first = table!.read(0, 8);
    const call = table!.read(0, 4096, { signal: controller.signal, timeout: 10_000 });
    controller.abort(new Error('changed my mind'));
    assert.is(((await rejection(call)) as Error).message, 'changed my mind');
    await first;
    // Sixteen unread frames, then there is no room.
    for (let count = 0; count < 16; count++) await remote.send(bytes);
    const late = await expectRejected(remote.send(bytes, { timeout: 30 }), 'ETIMEDOUT', /30 ms/);
    assert.instance(late, RemoteError);
    await table!.write(0, bytes, { timeout: 10_000, signal: new AbortController().signal });
  }));

test('calls after the end reject with the reason; a second close does nothing', () =>
  withTable(async (remote, server) => {
    const { table } = remote.memory;
    await server.close();
    assert.is(await remote.closed, undefined);
    const write = table!.write(0, new Uint8Array(8));
    await expectRejected(write, 'ECONNRESET', /^write of table: .*connect again/);
    await expectRejected(remote.send(new Uint8Array(8)), 'ECONNRESET', /^send: /);
    const error = await table!.read(0, 8).catch((reason: unknown) => reason);
    assert.is((error as RemoteError).operation, 'read of table');
    assert.throws(
      () => remote.alloc(64),
      (reason: RemoteError) => reason.code === 'ECONNRESET' && /^alloc: /.test(reason.message),
    );
    await remote.close();
    await remote.close();
    await remote.destroy();
  }));

test('options are copied: an object that is used again, or a key that is overwritten, is no fault', async () => {
  const psk = new Uint8Array(32).fill(7);
  const clients: string[] = [];
  const options = {
    auth: { psk },
    lendBytes: 64,
    onClient: (): void => void clients.push('first'),
  };
  const first = await share(ANY, { table: 64 }, options);
  options.onClient = () => clients.push('second');
  const second = await share(ANY, { table: 64 }, options);
  const reconnect = { delayMillis: 10 };
  const how = { ...APART, auth: { psk }, reconnect, ask: { extra: 8 } };
  const remotes = [await connect(first.url, how), await connect(second.url, how)];
  assert.equal(clients, ['first', 'second']);
  options.onClient = 5 as never;
  reconnect.delayMillis = -1;
  how.ask.extra = 2 ** 31;
  psk.fill(0);
  // A lost connection is made anew with the same key.
  await [...first.clients][0]!.destroy();
  await remotes[0]!.memory['table']!.write(0, new Uint8Array(8));
  assert.equal(clients, ['first', 'second', 'first']);
  for (const one of [...remotes, first, second]) await one.close();
});

test('buffers of another realm are bytes as well', () =>
  withTable(async (remote) => {
    const { table } = remote.memory;
    const foreign = runInNewContext('Uint8Array.from({ length: 16 }, (_, at) => at)') as Uint8Array;
    await table!.write(0, foreign.buffer);
    await table!.write(16, foreign);
    assert.equal([...(await table!.read(8, 16))], [...foreign.slice(8), ...foreign.slice(0, 8)]);
    const target = runInNewContext('new ArrayBuffer(4)') as ArrayBuffer;
    await table!.readInto(4, target);
    assert.equal([...new Uint8Array(target)], [4, 5, 6, 7]);
    const psk = runInNewContext('new Uint8Array(32)') as Uint8Array;
    await using server = await share(ANY, { table: 8 }, { auth: { psk } });
    await using other = await connect(server.url, { ...APART, auth: { psk } });
    assert.is(other.memory['table']!.length, 8);
  }));

test('close waits for calls that were made, destroy does not', async () => {
  const server = await share(ANY, { table: 4 * 2 ** 20 });
  const first = await connect(server.url, APART);
  const calls = Array.from({ length: 50 }, () => first.memory['table']!.read(0, 2 ** 20));
  await first.close();
  assert.is((await Promise.all(calls)).length, 50);
  const second = await connect(server.url, APART);
  const others = Array.from({ length: 50 }, () => second.memory['table']!.read(0, 2 ** 20));
  const ends = Promise.allSettled(others);
  await second.destroy();
  const failed = (await ends).filter(({ status }) => status === 'rejected');
  assert.ok(failed.length > 0);
  for (const end of failed) {
    const { operation, cause } = (end as PromiseRejectedResult).reason as RemoteError;
    assert.is(operation, 'read of table');
    assert.is((cause as RemoteError).operation, 'connection');
  }
  await server.close();
});

test('close waits for messages as long as the peer reads them, and no longer', async () => {
  const server = await share(
    ANY,
    { table: 8 },
    { onClient: (client) => void clients.push(client) },
  );
  const clients: Remote[] = [];
  const sender = await connect(server.url, APART);
  const large = new Uint8Array(2 ** 20).fill(7);
  const sent = Array.from({ length: 100 }, (_, at) => sender.send(Uint8Array.of(at)));
  sent.push(sender.send(large));
  const closed = sender.close();
  let count = 0;
  for await (const message of clients[0]!) {
    if (count < 100) assert.equal([...message], [count]);
    else assert.equal(message, large);
    count++;
    await sleep(5);
  }
  await closed;
  assert.is(count, 101);
  await Promise.all(sent);

  const unread = await connect(server.url, APART);
  const calls = Array.from({ length: 100 }, () => unread.send(Uint8Array.of(1)));
  const ends = Promise.allSettled(calls);
  const begin = performance.now();
  await unread.close();
  const left = (await ends).filter(({ status }) => status === 'rejected');
  assert.is(left.length, 100 - 16);
  const { message } = (left[0] as PromiseRejectedResult).reason as RemoteError;
  assert.is(
    message,
    'send: the connection was closed before the peer read its messages; connect again (ECONNRESET)',
  );
  assert.ok(performance.now() - begin < 20_000);
  await server.close();
});

test('close ends although calls are made again and again', () =>
  withTable(async (remote) => {
    const { table } = remote.memory;
    const writer = async (): Promise<void> => {
      for (;;) await table!.write(0, new Uint8Array(8));
    };
    const ends = Promise.allSettled([writer(), writer()]);
    await table!.read(0, 8);
    await remote.close();
    for (const end of await ends) assert.is(end.status, 'rejected');
    assert.is(await remote.closed, undefined);
  }));

test('the time that a client itself needs before its first message does not count', async () => {
  const server = await share(ANY, { table: 64 });
  const millis = 2000;
  let isOpening = false;
  const slow = {
    // Read while the client opens its regions, behind the start of its device.
    get bytes(): number {
      if (isOpening) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, millis + 100);
      isOpening = false;
      return 64;
    },
  };
  const connecting = connect(server.url, { ...DEVICE, timeout: millis, share: { slow } });
  isOpening = true;
  const remote = await connecting;
  assert.is(isOpening, false);
  await remote.close();
  await server.close();
});

test('an absent peer is reported in time with the remedy, a wrong one by its name', async () => {
  const begin = performance.now();
  const none = `rdma://127.0.140.3:7471` as const;
  const error = await expectRejected(
    connect(none, DEVICE),
    'ETIMEDOUT',
    /check that a process shares/,
  );
  assert.instance(error, RemoteError);
  assert.ok(performance.now() - begin < 20_000, `${performance.now() - begin} ms`);
  await expectRejected(connect(none, { ...APART, timeout: 50 }), 'ETIMEDOUT', /within 50 ms/);
  const signal = AbortSignal.abort(new Error('no'));
  assert.is(((await rejection(connect(none, { ...APART, signal }))) as Error).message, 'no');
  const server = await share(ANY, { table: 64 });
  const wrong = server.url.replace(/:(\d+)/, ':1') as typeof ANY;
  await expectRejected(connect(wrong, APART), 'ECONNREFUSED', /no listener at that port/);
  await misuse(connect('rdma://here', APART), /is not rdma:\/\/HOST:PORT/);
  await misuse(connect('rdma://127.0.0.1:70000', APART), /rdma:\/\/127.0.0.1:7471/);
  await misuse(share('rdma://x:1?udq=3', {}), /\?udp=PORT/);
  await misuse(connect(server.url, { timout: 3 } as never), /is timeout meant/);
  await misuse(share(ANY, {}, { lendByte: 3 } as never), /is lendBytes meant/);
  await server.close();
});

test('a listener of the connection manager and share tell each other apart', async () => {
  const listener = await listen(`${ADDRESS}:0`, { device: { port: 0 } });
  void (async () => {
    for await (const connection of listener.connections()) void connection.disconnected;
  })();
  const { port } = listener.context.local;
  const url = `rdma://${ADDRESS}:${listener.port}?udp=${port}` as const;
  await expectRejected(connect(url, APART), 'EPROTO', /was not opened by share/);
  await listener.close();
  const server = await share(ANY, { table: 64 });
  const [, target, udp = '4791'] = /rdma:\/\/([^?]+)(?:\?udp=(\d+))?/.exec(server.url)!;
  const options = { ...APART, udpPort: Number(udp) };
  await expectRejected(connect(target!, options), 'ECONNREFUSED');
  await server.close();
});

test('with reconnect calls that were not sent wait for the next server', async () => {
  const first = await share(ANY, { table: 4096, other: 64 });
  const place = first.url.includes('?') ? first.url : (`${first.url}?udp=4791` as const);
  let count = 0;
  const reconnect = { delayMillis: 20, onReconnect: () => count++ };
  const remote = await connect(place, { ...APART, reconnect, share: { mine: 64 } });
  const { table } = remote.memory;
  await table!.write(0, Uint8Array.of(1));
  await first.close();
  const calls = [table!.write(0, Uint8Array.of(2)), table!.fetchAdd(8, 5n)];
  const sent = remote.send(Uint8Array.of(3));
  const second = await share(place, { other: 64, table: 8192 });
  await Promise.all(calls);
  await sent;
  assert.equal([second.memory.table[0], second.memory.table[8]], [2, 5]);
  const [client] = second.clients;
  await client!.memory['mine']!.write(0, Uint8Array.of(6));
  assert.is(remote.shared.mine[0], 6);
  for await (const message of client!) {
    assert.is(message[0], 3);
    break;
  }
  assert.is(count, 1);
  await second.close();
  // A server with a smaller region is not the one that was meant.
  const third = await share(place, { table: 8, other: 64 });
  const reason = await remote.closed;
  assert.is(reason?.code, 'EPROTO');
  assert.match(reason!.message, /shares no region table of 4096 bytes any more; share it again/);
  await third.close();
});

test('with reconnect the attempts have an end, and close ends them at once', async () => {
  const server = await share(ANY, { table: 64 });
  const limited = { attempts: 2, delayMillis: 10 };
  const one = await connect(server.url, { ...APART, reconnect: limited, timeout: 3000 });
  const two = await connect(server.url, { ...APART, reconnect: true, timeout: 3000 });
  await server.close();
  const waits = rejection(two.memory['table']!.read(0, 8));
  assert.instance(await one.closed, RemoteError);
  await two.close();
  assert.instance(await waits, RemoteError);
  assert.is(await two.closed, undefined);
});

test('destroy while it connects again is the reason of the end, and of the calls that wait', async () => {
  const server = await share(ANY, { table: 64 });
  const remote = await connect(server.url, { ...APART, reconnect: true, timeout: 3000 });
  await server.close();
  const waits = [remote.memory['table']!.read(0, 8), remote.send(Uint8Array.of(1))].map(rejection);
  // It waits for the time of the next attempt, or for an answer.
  await sleep(50);
  await remote.destroy();
  const errors = [await remote.closed, ...(await Promise.all(waits))];
  for (const error of errors) {
    assert.instance(error, RemoteError);
    assert.match((error as RemoteError).message, /the connection was destroyed; connect again/);
  }
});

test('an error of onClient ends its client only', async () => {
  const errors: Error[] = [];
  let count = 0;
  const server = await share(
    ANY,
    { table: 64 },
    {
      onClient: async () => {
        await Promise.resolve();
        if (count++ === 0) throw new Error('of the handler');
      },
      onError: (error) => errors.push(error),
    },
  );
  const first = await connect(server.url, APART);
  await first.closed;
  const second = await connect(server.url, APART);
  await second.memory['table']!.write(0, Uint8Array.of(1));
  assert.equal(
    errors.map(({ message }) => message),
    ['of the handler'],
  );
  await first.close();
  await second.close();
  await server.close();
});

test('with auth both sides have the same key, or there is no connection', async () => {
  const [psk, other] = [Buffer.alloc(32, 'right'), Buffer.alloc(32, 'wrong')];
  const server = await share(ANY, { table: 64 }, { auth: { psk } });
  const remote = await connect(server.url, { ...APART, auth: { psk } });
  assert.ok(remote.connection.qp.isAuthenticated);
  await remote.memory['table']!.write(0, Uint8Array.of(1));
  const wrong = connect(server.url, { ...APART, auth: { psk: other } });
  assert.instance(await expectRejected(wrong, 'EACCES'), RemoteError);
  await expectRejected(connect(server.url, APART), 'EACCES', /auth/);
  await remote.close();
  await server.close();
});

test('a server refuses clients beyond its limits, and takes another one when one has left', async () => {
  const server = await share(ANY, { table: 64 }, { clientsMax: 2, clientsPerSource: 1 });
  const first = await connect(server.url, APART);
  await expectRejected(connect(server.url, APART), 'ECONNREFUSED', /as many clients as it accepts/);
  const device = { address: '127.0.140.4', port: 0 };
  const second = await connect(server.url, { device, timeout: 20_000 });
  const other = { device: { address: '127.0.140.5', port: 0 }, timeout: 20_000 };
  await expectRejected(connect(server.url, other), 'ECONNREFUSED');
  await first.close();
  while (server.clients.size > 1) await new Promise((resolve) => setTimeout(resolve, 5));
  const third = await connect(server.url, other);
  await Promise.all([second.close(), third.close()]);
  await server.close();
});

test('two servers and twenty clients of one process use one device', async () => {
  const [one, two] = [await share(ANY, { a: 64 }), await share(ANY, { b: 64 })];
  assert.is(one.url.replace(/^.*:\d+/, ''), two.url.replace(/^.*:\d+/, ''), 'one UDP port');
  const begin = performance.now();
  const remotes = [];
  for (let count = 0; count < 20; count++)
    remotes.push(await connect(one.url, { timeout: 20_000 }));
  const millis = performance.now() - begin;
  assert.ok(millis < 20_000, `${millis} ms`);
  const { device } = remotes[0]!.connection.context;
  assert.ok(remotes.every(({ connection }) => connection.context.device === device));
  await Promise.all(remotes.map((remote) => remote.memory['a']!.fetchAdd(0, 1n)));
  assert.is(one.memory.a[0], 20);
  await Promise.all(remotes.map((remote) => remote.close()));
  await one.close();
  await two.close();
});

test('a peer that reads nothing has room for 16 messages, after others were read for 9 to 16', () =>
  withTable(async (remote, server) => {
    const clients = server[Symbol.asyncIterator]();
    const { value: first } = await clients.next();
    assert.ok(first);
    await expectRoom(remote, 16, 'a new connection');
    for (const read of [1, 7, 8, 10]) {
      const other = await connect(server.url, APART);
      const { value: client } = await clients.next();
      const messages = client![Symbol.asyncIterator]();
      for (let count = 0; count < read; count++) {
        await other.send(new Uint8Array(1));
        assert.is((await messages.next()).value!.length, 1);
      }
      await expectRoom(other, 16 - (read % 8), `${read} read before`);
      other.destroy();
    }
    remote.destroy();
  }));

test.run();
