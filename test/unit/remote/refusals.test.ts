/** Refusals of `share`, `connect` and `joinMesh`: operation, argument, value and remedy. */
import { networkInterfaces } from 'node:os';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  MisuseError,
  RefusalError,
  RemoteError,
  connect,
  matrixColumn,
  openDevice,
  share,
  type Regions,
  type Remote,
} from '../../../host/index.js';
import { joinMesh } from '../../../host/mesh/index.js';
import { expectRejected, rejection } from '../../support/refusal.js';
import { until } from '../../support/until.js';

const test = suite('unit/remote/refusals');
const ADDRESS = '127.0.233.5';
const ANY = `rdma://${ADDRESS}:0` as const;
/** The machine may be busy. */
const APART = { device: { address: '127.0.233.6', port: 0 }, timeout: 20_000 };

async function misuse(work: Promise<unknown>, argument: string, text: RegExp): Promise<void> {
  const error = await rejection(work);
  assert.instance(error, MisuseError, String(error));
  assert.is((error as MisuseError).argument, argument);
  assert.match((error as Error).message, text);
}

test('a device without a free protection domain is full, and connect names the remedies', async () => {
  const server = await share(ANY, { table: 64 });
  const context = await openDevice({ address: '127.0.233.7', port: 0 });
  const { protectionDomainsMax } = context.device.limits;
  const domains = Array.from({ length: protectionDomainsMax }, () => context.allocPd());
  const text = new RegExp(
    `^connect: the device at 127.0.233.7 is full \\(allocPd: all ${protectionDomainsMax} ` +
      'protection domains are taken\\); close remotes .*option pd.*option device',
  );
  const full = await expectRejected(connect(server.url, { context }), 'ENOMEM', text);
  assert.instance(full.cause, RefusalError);
  await expectRejected(
    share('rdma://127.0.233.7:0', { table: 64 }, { context }),
    'ENOMEM',
    /^share: the device at 127.0.233.7 is full/,
  );
  // One for the client, one for the device's connection manager.
  for (const domain of domains.slice(0, 2)) domain.dealloc();
  const remote = await connect(server.url, { context, timeout: 20_000 });
  await remote.close();
  await context.close();
  await server.close();
});

test('a device without memory for a region is full', async () => {
  const context = await openDevice({ address: '127.0.233.7', port: 0, memoryBytes: 6 * 2 ** 20 });
  const large = share('rdma://127.0.233.7:0', { table: 2 ** 23 }, { context });
  await expectRejected(
    large,
    'ENOMEM',
    /^share: the device at .* is full \(alloc: no 8388608 bytes/,
  );
  await context.close();
});

test('errors of regions name the argument of the call: share, memory or regions', async () => {
  const remedy = 'pass regions by name, as in { table: 4096 }';
  const url = 'ws://127.0.233.5:1';
  const mesh = joinMesh({ url, memory: 5 as never });
  await misuse(mesh, 'memory', new RegExp(`joinMesh takes an object, got 5; ${remedy}`));
  await misuse(joinMesh({ url, memory: { a: 0 } }), 'memory.a', /whole number from 1/);
  await misuse(connect(ANY, { share: 5 as never }), 'share', /connect takes an object, got 5/);
  await misuse(connect(ANY, { share: { a: 0 } }), 'share.a', /whole number from 1/);
  await misuse(share(ANY, 5 as never), 'regions', /share takes an object, got 5; pass/);
  const text = /joinMesh and .* take text of 1 to 128 characters, valid, got 5$/;
  await misuse(joinMesh({ url, room: 5 as never }), 'room', text);
});

test('share has no limits of its own: a timeout or signal is refused with what bounds it', async () => {
  for (const name of ['timeout', 'signal', 'reconnect']) {
    const text = new RegExp(
      `share has no ${name}: .*server.close\\(\\) ends .*connect has ${name}`,
    );
    await misuse(share(ANY, { a: 8 }, { [name]: 5 } as never), name, text);
  }
});

test('a first delay of reconnect beyond the longest one is refused with both', async () => {
  const reconnect = { delayMillis: 500, delayMaxMillis: 20 };
  const text = /connect: 500 ms exceed delayMaxMillis, 20 ms; raise delayMaxMillis or lower/;
  await misuse(connect(ANY, { reconnect }), 'reconnect.delayMillis', text);
});

test('an error of a layout names its region, and has the error as its cause', async () => {
  const shape = { rows: 2, columns: 2, elementBytes: 8 };
  const name = 'regions.view.layout';
  const wrong: readonly [layout: (bases: never) => unknown, text: RegExp][] = [
    [() => undefined, /share: must return a list of entries, got undefined; return that of/],
    [() => [undefined], /share: must return a list of entries, got undefined/],
    [({ none }) => matrixColumn(none, shape, 0), /share: /],
    [({ none }: { none: { addr: bigint } }) => [none.addr], /share: .*undefined.*addr/],
  ];
  for (const [layout, text] of wrong) {
    const regions = { table: 32, view: { layout } } as unknown as Regions;
    await misuse(share(ANY, regions), name, text);
    assert.ok(((await rejection(share(ANY, regions))) as Error).cause);
  }
  const alien = { table: 64, view: { layout: () => [{ addr: 0n, length: 8, lkey: 5 }] } };
  const text = /^regions.view.layout: share: setLayoutSg: entry 0 names a key that opens nothing/;
  const refused = await expectRejected(share(ANY, alien), 'EINVAL', text);
  assert.match((refused.cause as Error).message, /^setLayoutSg/);
});

test('a registered region that is deregistered, or of another device, is refused by name', async () => {
  const context = await openDevice({ address: ADDRESS, port: 0 });
  const pd = context.allocPd();
  const registered = pd.regMr(context.alloc(64), AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_READ);
  const regions = { own: { registered, rights: ['read'] } } as const;
  await (await share(ANY, regions, { pd })).close();
  const text = /share: key 0x[0-9a-f]+ is deregistered, or of another device; register the region/;
  const other = await openDevice({ address: '127.0.233.7', port: 0 });
  const apart = { pd: other.allocPd() };
  await misuse(share('rdma://127.0.233.7:0', regions, apart), 'regions.own.registered', text);
  registered.dereg();
  await misuse(share(ANY, regions, { pd }), 'regions.own.registered', text);
  await other.close();
  await context.close();
});

test('broadcast, group and wildcard addresses are refused as such', async () => {
  const addresses = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  // Of a network of this machine.
  const ofNetwork = addresses.flatMap(({ family, address, netmask }) => {
    if (family !== 'IPv4' || netmask === '255.255.255.255') return [];
    const mask = netmask.split('.').map(Number);
    return address
      .split('.')
      .map((byte, at) => Number(byte) | (~mask[at]! & 255))
      .join('.');
  });
  const broadcasts = ['255.255.255.255', ...ofNetwork];
  const kinds = broadcasts.map((address) => [address, 'a broadcast address'] as const);
  const others = [
    ['224.0.0.9', 'a multicast group'],
    ['0.0.0.0', 'the wildcard address'],
    ['[::]', 'the wildcard address'],
  ] as const;
  for (const [address, kind] of [...kinds, ...others]) {
    const text = new RegExp(`is ${kind}; name the address of a device$`);
    await misuse(connect(`rdma://${address}:7`), 'url', text);
    const cannot = new RegExp(`is ${kind} and cannot be bound: .*so choose one. This machine has`);
    await expectRejected(share(`rdma://${address}:0`, { a: 8 }), 'EADDRNOTAVAIL', cannot);
  }
});

test('a first connection that onClient ends is not called one to connect again', async () => {
  const errors: string[] = [];
  const onClient = (): void => {
    throw new Error('not this one');
  };
  const onError = (error: Error): void => void errors.push(error.message);
  const server = await share(ANY, { table: 64 }, { onClient, onError });
  for (const reconnect of [false, true]) {
    let remote: Remote | undefined;
    try {
      remote = await connect(server.url, { ...APART, reconnect: reconnect && { attempts: 1 } });
    } catch (error) {
      assert.instance(error, RemoteError);
      const text =
        /^connect: the peer ended the connection at once; see the errors of its onClient and/;
      assert.match((error as Error).message, text);
      assert.is((error as RemoteError).code, 'ECONNRESET');
    }
    // The description of the server may have arrived before its end.
    await remote?.destroy();
  }
  // The server may call onClient after this client has ended.
  await until(() => errors.length >= 2);
  assert.ok(
    errors.every((text) => text === 'not this one'),
    `${errors}`,
  );
  await server.close();
});

test.run();
