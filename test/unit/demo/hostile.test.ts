/** A peer of the demo that takes connections and memory: the endpoint and its other peers go on. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { DemoEndpoint } from '../../../host/demo/endpoint.js';
import { Role, encodePrivateData } from '../../../host/demo/private-data.js';
import { connect, openDevice, type Context, type RdmaConnection } from '../../../host/index.js';
import { DataChannelLink } from '../../../host/link/channel/data-channel.js';
import { connectLinks, releaseDataChannels } from '../../support/channel-mesh.js';
import { eventually, settle } from '../../support/receiver.js';

const PORT = 7471;
const KIB = 1024;

interface Guest {
  readonly link: DataChannelLink;
  readonly context: Context;
}

let ends: (() => Promise<unknown>)[] = [];

test.after.each(async () => {
  for (const end of ends.reverse()) await end();
  ends = [];
});

async function open(): Promise<{ link: DataChannelLink; endpoint: DemoEndpoint }> {
  const link = new DataChannelLink();
  const endpoint = await DemoEndpoint.open('node', link);
  ends.push(() => endpoint.close());
  return { link, endpoint };
}

async function guestOf(own: DataChannelLink): Promise<Guest> {
  const link = new DataChannelLink();
  const context = await openDevice({ link, memoryBytes: 2 ** 23 });
  ends.push(() => context.close());
  await connectLinks(link, own);
  return { link, context };
}

function call(
  { context }: Guest,
  { address }: DemoEndpoint,
  role: Role,
  signal?: AbortSignal,
): Promise<RdmaConnection> {
  const privateData = encodePrivateData({ role, kind: 'tab', rkey: 1, addr: 0n, columnsKey: 0 });
  const limits = signal && { signal };
  return connect({ address, port: PORT }, { context, privateData, ...limits });
}

async function isRefused(calling: Promise<RdmaConnection>): Promise<boolean> {
  return calling.then(
    () => false,
    () => true,
  );
}

test('a peer has eight connections, and another peer is still served', async () => {
  const { link, endpoint } = await open();
  const [hostile, other] = [await guestOf(link), await guestOf(link)];
  for (let count = 0; count < 8; count++) await call(hostile, endpoint, Role.SPARE);
  assert.ok(await isRefused(call(hostile, endpoint, Role.SPARE)));
  const connection = await call(other, endpoint, Role.SPARE);
  assert.ok(connection.qp);
});

test('a connection that is closed leaves its place', async () => {
  const { link, endpoint } = await open();
  const guest = await guestOf(link);
  for (let count = 0; count < 20; count++) {
    const connection = await call(guest, endpoint, Role.SPARE);
    await connection.close();
  }
});

test('records are written by one connection of a peer at a time', async () => {
  const { link, endpoint } = await open();
  const guest = await guestOf(link);
  const both = await Promise.all([
    isRefused(call(guest, endpoint, Role.RECORD)),
    isRefused(call(guest, endpoint, Role.RECORD)),
  ]);
  assert.is(both.filter(Boolean).length, 1);
});

test('a role that a peer takes again ends its former connection', async () => {
  const { link, endpoint } = await open();
  const guest = await guestOf(link);
  const former = await call(guest, endpoint, Role.PAINT);
  const later = await call(guest, endpoint, Role.PAINT);
  await former.disconnected;
  assert.ok(later.qp);
});

for (const [name, role] of Object.entries(Role)) {
  test(`without memory a request for ${name} fails alone`, async () => {
    const { link, endpoint } = await open();
    const { context } = endpoint;
    const [guest, other] = [await guestOf(link), await guestOf(link)];
    // One connection, since the connection manager allocates memory for the first one.
    await (await call(guest, endpoint, Role.SPARE)).close();
    const taken: Uint8Array[] = [];
    for (let bytes = 2 ** 20; bytes >= KIB; bytes /= 2) {
      try {
        for (;;) taken.push(context.alloc(bytes));
      } catch {
        // The next smaller size.
      }
    }
    const refused = await isRefused(
      call(guest, endpoint, role).then(async (connection) => {
        if (role === Role.RECORD) await connection.disconnected;
        return connection;
      }),
    );
    for (const memory of taken) context.free(memory);
    if (role !== Role.SPARE && role !== Role.RECORD) assert.ok(refused);
    assert.ok(await call(other, endpoint, role));
    assert.ok(await call(guest, endpoint, Role.SPARE));
  });
}

test('a request that its peer gives up costs no memory', async () => {
  const { link, endpoint } = await open();
  const guest = await guestOf(link);
  const { heap } = endpoint.context.device.arena;
  await (await call(guest, endpoint, Role.STAMP)).close();
  await settle(100);
  const free = heap.bytesFree;
  for (let count = 0; count < 5; count++) {
    const aborting = new AbortController();
    const calling = isRefused(call(guest, endpoint, Role.STAMP, aborting.signal));
    await Promise.resolve();
    aborting.abort(new Error('the peer gives up'));
    await calling;
  }
  await eventually(() => heap.bytesFree >= free);
});

test('connections of a peer that vanishes end, and their memory is free again', async () => {
  const { link, endpoint } = await open();
  const { heap } = endpoint.context.device.arena;
  const first = await guestOf(link);
  await (await call(first, endpoint, Role.STAMP)).close();
  await settle(100);
  const free = heap.bytesFree;
  const guest = await guestOf(link);
  for (const role of [Role.STAMP, Role.SPARE, Role.PAINT, Role.MESSAGE]) {
    await call(guest, endpoint, role);
  }
  assert.ok(heap.bytesFree < free);
  await guest.link.close();
  await eventually(() => heap.bytesFree >= free);
});

test.after(releaseDataChannels);
test.run();
