/** A client that connects again takes the place of its former connection, and no other one's. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  RemoteError,
  UdpLink,
  connect,
  faultLink,
  openDevice,
  share,
  type ConnectOptions,
  type Context,
  type FaultLink,
  type Remote,
  type RemoteServer,
  type ServerOptions,
} from '../../../host/index.js';
import { connect as connectQueuePair } from '../../../host/cm/connect.js';
import { makePlace } from '../../../host/remote/client-places.js';
import { eventually } from '../../support/receiver.js';
import { expectRejected } from '../../support/refusal.js';

const test = suite('unit/remote/client-places');
const ANY = 'rdma://127.0.233.10:0';
/** The client notices a partition; the server never does. */
const NEVER = { keepAliveMillis: 0 };
const psk = Buffer.alloc(32, 0x22);

interface World {
  readonly server: RemoteServer;
  readonly link: FaultLink;
  readonly context: Context;
  readonly remote: Remote;
  /** The server's side of the connection. */
  readonly former: Remote;
  readonly returned: Promise<void>;
}

async function inWorld(
  options: ServerOptions,
  work: (world: World) => Promise<void>,
): Promise<void> {
  const server = await share(ANY, { table: 64 }, { ...NEVER, ...options });
  const link = faultLink(new UdpLink({ address: '127.0.233.11', port: 0 }), {});
  const context = await openDevice({ link });
  let remote: Remote | undefined;
  try {
    const { auth } = options;
    const how = { context, keepAliveMillis: 500, timeout: 20_000, ...(auth && { auth }) };
    const returned = new Promise<void>((onReconnect) => {
      void connect(server.url, { ...how, reconnect: { onReconnect } }).then(async (one) => {
        remote = one;
      });
    });
    await eventually(() => remote !== undefined && server.clients.size === 1);
    const [former] = server.clients;
    await work({ server, link, context, remote: remote!, former: former!, returned });
  } finally {
    await remote?.destroy();
    await context.close();
    await server.close();
  }
}

for (const auth of [undefined, { psk }]) {
  const kind = auth ? 'with a key' : 'without a key';
  test(`a client that returns to a full server takes its own place, ${kind}`, () =>
    inWorld({ clientsMax: 1, ...(auth && { auth }) }, async (world) => {
      const { server, link, remote, former, returned } = world;
      link.partition();
      await eventually(() => remote.connection.recvCq.destroyed, 30_000);
      assert.is(server.clients.size, 1, 'the server holds the former connection');
      link.heal();
      await returned;
      const reason = await former.closed;
      assert.instance(reason, RemoteError);
      assert.match(reason!.message, /the client has connected again; use its new connection/);
      assert.is(server.clients.size, 1);
      assert.not(server.clients.has(former));
      await remote.memory['table']!.write(0, Uint8Array.of(7));
      const stranger = connect(server.url, { timeout: 20_000, ...(auth && { auth }) });
      await expectRejected(stranger, 'ECONNREFUSED', /as many clients as it accepts/);
    }));
}

/** A connection that presents `privateData`, and no hello that proves it. */
async function claim(world: World, privateData: Uint8Array): Promise<string> {
  const { port, searchParams } = new URL(world.server.url);
  const options: ConnectOptions = {
    privateData,
    timeout: 20_000,
    udpPort: Number(searchParams.get('udp') ?? 4791),
  };
  const outcome = connectQueuePair(`127.0.233.10:${port}`, options).then(
    async (connection) => {
      await connection.close();
      return 'admitted';
    },
    (error: Error) => error.message,
  );
  return outcome;
}

test('a stranger that knows the name of a place ends no connection, and is not served', async () => {
  const errors: string[] = [];
  const onError = (error: Error): void => void errors.push(error.message);
  await inWorld({ clientsMax: 1, onError }, async (world) => {
    const { server, remote, former } = world;
    const { privateData } = former.connection;
    // A place that is not taken permits no attempt beyond the limit.
    assert.match(await claim(world, makePlace().requestData), /NO_RESOURCES/);
    assert.is(await claim(world, privateData), 'admitted');
    await eventually(() => errors.length > 0);
    assert.equal([...server.clients], [former]);
    await remote.memory['table']!.write(0, Uint8Array.of(1));
    assert.match(errors.join(), /^accept: /);
  });
});

test('a place is entered with its secret alone, and is free when its client has left', async () => {
  const { ClientPlaces } = await import('../../../host/remote/client-places.js');
  const places = new ClientPlaces();
  const { requestData, secret } = makePlace();
  assert.not(places.claim(requestData), 'not taken');
  const ends: (() => void)[] = [];
  const make = (): Remote => {
    let end = (): void => {};
    const closed = new Promise<undefined>((resolve) => (end = () => resolve(undefined)));
    ends.push(end);
    return { closed, fail: async () => end() } as unknown as Remote;
  };
  const first = await places.take(requestData, secret, make);
  assert.ok(places.claim(requestData));
  assert.not(places.claim(requestData), 'one claim at a time');
  places.unclaim(requestData);
  for (const wrong of [undefined, '1', makePlace().secret]) {
    const refused = places.take(requestData, wrong, make);
    await expectRejected(refused, 'EPROTO', /accept: the client names the place of another one/);
  }
  // Both at once: the later one ends the earlier one.
  const [second, third] = await Promise.all([
    places.take(requestData, secret, make),
    places.take(requestData, secret, make),
  ]);
  await Promise.all([first.closed, second.closed]);
  assert.ok(places.claim(requestData), 'the third has it');
  places.unclaim(requestData);
  ends.at(-1)!();
  await third.closed;
  assert.not(places.claim(requestData), 'free');
  // A client of an older version has no place.
  await places.take(new Uint8Array(15), undefined, make);
  assert.not(places.claim(new Uint8Array(56)));
});

test.run();
