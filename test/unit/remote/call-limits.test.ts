/** Limits of calls and of the wait for a message: their errors name the call that ended. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  MisuseError,
  RemoteError,
  UdpLink,
  connect,
  faultLink,
  listen,
  openDevice,
  share,
  type Remote,
  type RemoteServer,
} from '../../../host/index.js';
import { connect as connectQueuePair } from '../../../host/cm/connect.js';
import { expectRejected, rejection } from '../../support/refusal.js';

const test = suite('unit/remote/call-limits');
const ANY = 'rdma://127.0.233.1:0';
/** A device of its own, so that packets travel; the machine may be busy. */
const APART = { device: { address: '127.0.233.2', port: 0 }, timeout: 20_000 };

async function withClient(
  work: (remote: Remote, client: Remote, server: RemoteServer) => Promise<void>,
): Promise<void> {
  const server = await share(ANY, { table: 64 });
  const remote = await connect(server.url, APART);
  const [client] = server.clients;
  try {
    await work(remote, client!, server);
  } finally {
    await remote.destroy();
    await server.close();
  }
}

async function expectAbort(call: Promise<unknown>, name: string, text: RegExp): Promise<void> {
  const error = (await rejection(call)) as Error;
  assert.instance(error, DOMException);
  assert.is(error.name, name);
  assert.match(error.message, text);
  assert.instance(error.cause, DOMException);
}

test('a call that a default reason of a signal ends names operation, region and range', () =>
  withClient(async (remote) => {
    const { table } = remote.memory;
    const signal = AbortSignal.abort();
    const range = /^write of table for 8 bytes at offset 16: .*aborted/;
    await expectAbort(table!.write(16, new Uint8Array(8), { signal }), 'AbortError', range);
    await expectAbort(table!.fetchAdd(24, 1n, { signal }), 'AbortError', /fetchAdd of table for 8/);
    await expectAbort(remote.send(new Uint8Array(8), { signal }), 'AbortError', /^send: /);
    const controller = new AbortController();
    // Completions of the first call of a turn may be there before the call returns.
    const first = table!.read(0, 8);
    const second = table!.read(8, 32, { signal: controller.signal });
    controller.abort();
    await expectAbort(second, 'AbortError', /^read of table for 32 bytes at offset 8: /);
    await first;
    const late = remote.receive({ signal: AbortSignal.timeout(5) });
    await expectAbort(late, 'TimeoutError', /^receive: .*timeout/);
  }));

test('a reason of the application is the reason of the call, unchanged', () =>
  withClient(async (remote) => {
    const reason = new Error('changed my mind');
    const signal = AbortSignal.abort(reason);
    const { table } = remote.memory;
    assert.is(await rejection(table!.write(0, new Uint8Array(8), { signal })), reason);
    assert.is(await rejection(remote.receive({ signal })), reason);
    const controller = new AbortController();
    const waiting = remote.receive({ signal: controller.signal });
    controller.abort(reason);
    assert.is(await rejection(waiting), reason);
  }));

test('a timeout of a call names operation, region and range', async () => {
  const server = await share(ANY, { table: 64 });
  const link = faultLink(new UdpLink({ address: '127.0.233.2', port: 0 }), {});
  const context = await openDevice({ link });
  const remote = await connect(server.url, { context, timeout: 20_000 });
  link.partition();
  const call = remote.memory['table']!.write(16, new Uint8Array(8), { timeout: 30 });
  const text = /^write of table: no answer came for 8 bytes at offset 16 within 30 ms; check that/;
  const late = await expectRejected(call, 'ETIMEDOUT', text);
  assert.is((late as RemoteError).operation, 'write of table');
  link.heal();
  await remote.destroy();
  await context.close();
  await server.close();
});

test('connect that a default reason of a signal ends names itself', async () => {
  const signal = AbortSignal.abort();
  await expectAbort(connect(ANY, { ...APART, signal }), 'AbortError', /^connect: /);
});

test('receive resolves with the next message, and shares them with the loop', () =>
  withClient(async (remote, client) => {
    const waiting = client.receive();
    for (const byte of [1, 2, 3]) await remote.send(Uint8Array.of(byte));
    assert.equal(await waiting, Uint8Array.of(1));
    for await (const message of client) {
      assert.equal(message, Uint8Array.of(2));
      break;
    }
    assert.equal(await client.receive({ timeout: 1000 }), Uint8Array.of(3));
  }));

test('receive ends at its limit, and a message that comes later goes to the next reader', () =>
  withClient(async (remote, client) => {
    const text = /^receive: no message came within 10 ms; check that the peer runs, or raise/;
    const readers = [client.receive({ timeout: 10 }), client.receive(), client.receive()];
    assert.instance(await expectRejected(readers[0]!, 'ETIMEDOUT', text), RemoteError);
    await remote.send(Uint8Array.of(7));
    await remote.send(Uint8Array.of(8));
    assert.equal(await readers[1], Uint8Array.of(7));
    assert.equal(await readers[2], Uint8Array.of(8));
    for (const wrong of [{ timout: 1 }, { timeout: -1 }, { signal: 5 }]) {
      assert.instance(await rejection(client.receive(wrong as never)), MisuseError);
    }
  }));

test('receive resolves with undefined at the end of the connection', () =>
  withClient(async (remote, client) => {
    const waiting = [client.receive(), client.receive({ timeout: 20_000 })];
    await remote.close();
    assert.equal(await Promise.all(waiting), [undefined, undefined]);
    assert.is(await client.receive(), undefined);
    assert.is(await remote.receive({ timeout: 10 }), undefined);
  }));

test('a wait for a completion rejects when its connection is closed, and says so', async () => {
  const listener = await listen('127.0.233.1:0', { device: { port: 0 } });
  const accepted = listener.connections().next();
  const { port: udpPort } = listener.context.local;
  const { device } = APART;
  const connection = await connectQueuePair(`127.0.233.1:${listener.port}`, { device, udpPort });
  await accepted;
  const waits = [connection.recvCq.wait(), connection.recvCq.wait(1, { timeout: 20_000 })];
  const ends = Promise.all(waits.map(rejection));
  await connection.close();
  for (const error of await ends) {
    assert.instance(error, MisuseError);
    const text = /^completion queue: is destroyed, as by close of its connection$/;
    assert.match((error as Error).message, text);
  }
  await listener.close();
});

test.run();
