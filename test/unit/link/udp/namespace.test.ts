/**
 * Links on a real kernel: interfaces that go down, away and come back, a packet filter, a smaller
 * MTU. In a network namespace of the test's own, in which this file runs itself.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Mtu, WcStatus } from '../../../../host/index.js';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import { keepsBytes } from '../../../../host/link/integrity.js';
import { lostAddress } from '../../../../host/link/interface.js';
import type { Link, LinkInfo } from '../../../../host/link/link.js';
import type { LinkError } from '../../../../host/errors/errors.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { UdpLink } from '../../../../host/link/udp/udp.js';
import { TestBatch } from '../../../support/batch.js';
import { LEAST_PATH_MTU, forgeFragmentationNeeded } from '../../../support/forged-icmp.js';
import { eventually, RecordingReceiver } from '../../../support/receiver.js';
import { packets, repeat } from '../../../support/link-ends.js';
import { expectRefusal } from '../../../support/refusal.js';
import { over, UdpPair } from '../../../support/udp-pair.js';

const ADDRESS = '10.99.0.1';
/** Behind the interface, without a host. */
const FAR = Endpoint.parse('10.99.0.9', 4791);
const INSIDE = 'VERBENA_TEST_NAMESPACE';
const LIMIT_MILLIS = 100_000;
const MTU = 1400;
/** Retries go on for longer than a busy machine takes to bring an interface back. */
const PATIENT = 15;

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: 'pipe' });
}

function nft(...commands: string[]): void {
  for (const command of commands) execFileSync('nft', command.split(' '), { stdio: 'pipe' });
}

/** A pair of interfaces: packets to other machines leave by the one and end in the other. */
function plugIn(): void {
  ip('link', 'add', 'test0', 'type', 'veth', 'peer', 'name', 'test1');
  ip('addr', 'add', `${ADDRESS}/24`, 'dev', 'test0');
  ip('link', 'set', 'test0', 'up');
  ip('link', 'set', 'test1', 'up');
}

function unplug(): void {
  ip('link', 'del', 'test0');
}

type AnyLink = UdpLink | UdpBatchLink;
const LINKS = [UdpLink, UdpBatchLink];

const test = suite('link: a kernel that takes things away');
let links: AnyLink[] = [];
let pairs: UdpPair[] = [];
let told: string[] = [];

process.on('warning', (warning) => {
  if (warning.name === 'VerbenaWarning') told.push(warning.message);
});

test.after.each(async () => {
  for (const pair of pairs) await pair.close();
  for (const link of links) await link.close();
  [links, pairs, told] = [[], [], []];
});

interface Opened {
  readonly link: AnyLink & Link;
  readonly receiver: RecordingReceiver;
  readonly local: Endpoint;
}

async function openLink(
  Made: (typeof LINKS)[number],
  address = ADDRESS,
  port = 0,
): Promise<Opened> {
  const link: AnyLink & Link = new Made({ address, port });
  links.push(link);
  const receiver = new RecordingReceiver();
  const { local } = await link.open(receiver);
  return { link, receiver, local };
}

async function openPair(Made: (typeof LINKS)[number], timeout: number): Promise<UdpPair> {
  const make = (): AnyLink => new Made({ address: ADDRESS, port: 0 });
  const pair = await UdpPair.open({ open: over(make, links), mtu: Mtu.MTU_1024, timeout });
  pairs.push(pair);
  return pair;
}

/** The interface has had its address for a moment only. */
async function openOnce(Made: (typeof LINKS)[number], address: string): Promise<Opened> {
  for (let attempt = 0; ; attempt++) {
    try {
      return await openLink(Made, address, 4791);
    } catch (error) {
      if (attempt === 100) throw error;
      await sleep(20);
    }
  }
}

/** Sends, and waits until each packet is counted one way or the other. */
async function send(link: AnyLink, to: Endpoint, lengths: number[]): Promise<void> {
  const { counters } = link;
  const counted = (): number =>
    counters.sent + [...counters.sendErrors.values()].reduce((sum, count) => sum + count, 0);
  const wanted = counted() + lengths.length;
  link.send(new TestBatch(packets(to, lengths)));
  await eventually(() => counted() === wanted);
  assert.is(counted(), wanted);
}

/** All refusals that the link reported, once each. */
async function toldOnce(code: string): Promise<void> {
  await eventually(() => told.some((text) => text.includes(code)));
  assert.is(told.filter((text) => text.includes(code)).length, 1, told.join('\n'));
}

for (const Made of LINKS) {
  test(`${Made.name}: an interface goes away and comes back, and so do packets`, async () => {
    const { link, receiver } = await openLink(Made);
    await send(link, FAR, [100]);
    assert.is(link.counters.sendErrors.size, 0);
    ip('link', 'set', 'test0', 'down');
    await send(link, FAR, [100, 100]);
    unplug();
    await send(link, FAR, [100, 100, 100]);
    assert.equal([...link.counters.sendErrors], [['ENETUNREACH', 5]]);
    await toldOnce('ENETUNREACH');
    plugIn();
    await send(link, FAR, [100]);
    assert.is(link.counters.sent, 2);
    assert.is(link.counters.sendErrors.get('ENETUNREACH'), 5);
    assert.equal(receiver.failures, []);
  });

  test(`${Made.name}: what was under way arrives when the interface is back`, async () => {
    const pair = await openPair(Made, PATIENT);
    pair.a.buffer.fill(1);
    assert.is(await pair.write(100_000), WcStatus.SUCCESS);
    pair.a.buffer.fill(2);
    unplug();
    const writing = pair.write(100_000);
    await sleep(10);
    plugIn();
    assert.is(await writing, WcStatus.SUCCESS);
    assert.is(pair.b.buffer.lastIndexOf(2), 99_999);
    assert.ok(links[0]!.counters.sendErrors.get('ENETUNREACH')! > 0);
  });

  test(`${Made.name}: an interface that stays away ends in RETRY_EXC_ERR, no sooner`, async () => {
    const pair = await openPair(Made, 10);
    unplug();
    try {
      assert.is(await pair.write(100), WcStatus.RETRY_EXC_ERR);
      assert.ok(links[0]!.counters.sendErrors.get('ENETUNREACH')! >= 8, 'first try and 7 retries');
      await toldOnce('ENETUNREACH');
    } finally {
      plugIn();
    }
  });

  test(`${Made.name}: an address that is gone cannot be opened, and is named`, async () => {
    unplug();
    try {
      await openLink(Made);
      assert.unreachable('there is no such address');
    } catch (error) {
      assert.is((error as LinkError).code, 'EADDRNOTAVAIL');
      assert.match((error as LinkError).message, ADDRESS);
    } finally {
      links = [];
      plugIn();
    }
  });

  test(`${Made.name}: packets longer than a smaller MTU are EMSGSIZE, shorter ones leave`, async () => {
    const { link } = await openLink(Made);
    if (link instanceof UdpBatchLink) link.setPeerSegments(FAR, true);
    ip('link', 'set', 'test0', 'mtu', String(MTU));
    try {
      await send(link, FAR, repeat(2000, 3));
      assert.equal([...link.counters.sendErrors], [['EMSGSIZE', 3]]);
      await toldOnce('EMSGSIZE');
      await send(link, FAR, repeat(1000, 3));
      assert.is(link.counters.sent, 3);
    } finally {
      ip('link', 'set', 'test0', 'mtu', '1500');
    }
  });

  test(`${Made.name}: a device opened over a small MTU sends no packet that is too long`, async () => {
    ip('link', 'set', 'test0', 'mtu', String(MTU));
    try {
      const { link } = await openLink(Made);
      const { packetSizeMax } = link.info;
      assert.is(packetSizeMax, MTU - 28);
      await send(link, FAR, [packetSizeMax, packetSizeMax + 1]);
      assert.equal([link.counters.sent, link.counters.sendErrors.get('EMSGSIZE')], [1, 1]);
    } finally {
      ip('link', 'set', 'test0', 'mtu', '1500');
    }
  });

  test(`${Made.name}: a forged ICMP message about the path MTU keeps no packet back`, async () => {
    const [ours, peer] = ['127.1.29.3', '127.1.29.4'];
    const link = new Made({ address: ours, port: 0 });
    links.push(link);
    const { local } = await link.open(new RecordingReceiver());
    const to = Endpoint.parse(peer, 4791);
    await send(link, to, [4000]);
    forgeFragmentationNeeded({ address: ours, port: local.port }, { address: peer, port: 4791 });
    const path = (): string => execFileSync('ip', ['route', 'get', peer, 'from', ours]).toString();
    await eventually(() => path().includes(`mtu ${LEAST_PATH_MTU}`));
    assert.match(path(), `mtu ${LEAST_PATH_MTU}`, 'the kernel uses it');
    await send(link, to, [4000]);
    assert.equal([...link.counters.sendErrors], []);
    ip('route', 'flush', 'cache');
  });

  test(`${Made.name}: a packet filter forbids it for a while: EPERM, said once, nothing lost`, async () => {
    const pair = await openPair(Made, PATIENT);
    nft(
      'add table ip verbena',
      'add chain ip verbena out { type filter hook output priority 0 ; }',
      'add rule ip verbena out meta l4proto udp drop',
    );
    pair.a.buffer.fill(3);
    const writing = pair.write(200_000);
    await sleep(15);
    nft('delete table ip verbena');
    assert.is(await writing, WcStatus.SUCCESS);
    assert.is(pair.b.buffer.lastIndexOf(3), 199_999);
    assert.ok(links[0]!.counters.sendErrors.get('EPERM')! > 0);
    await toldOnce('EPERM');
  });
}

test('bytes stay whole at addresses of this host, as its interfaces have them now', () => {
  const info = { integrity: 'host' } as LinkInfo;
  const keeps = (...addresses: string[]): boolean[] =>
    addresses.map((address) => keepsBytes(info, Endpoint.parse(address, 4791)));
  const all = [ADDRESS, '127.0.0.1', '127.9.8.7', '::1', `${FAR.gid}`, '10.99.1.1', '::2'];
  assert.equal(keeps(...all), [true, true, true, true, false, false, false]);
  ip('link', 'set', 'lo', 'down');
  try {
    assert.equal(keeps('127.0.0.1', '127.9.8.7', '::1', ADDRESS), [false, false, false, true]);
  } finally {
    ip('link', 'set', 'lo', 'up');
  }
});

for (const address of [ADDRESS, 'fd99::1']) {
  test(`an interface of ${address} that is down, has no carrier or is gone is named so`, async () => {
    ip('-6', 'addr', 'add', 'fd99::1/64', 'dev', 'test0', 'nodad');
    const isGone = /^this machine no longer has the address .* or move this one/;
    const { local } = await openOnce(UdpLink, address);
    const info = { local, pseudoHeader: 'ip' } as LinkInfo;
    try {
      await eventually(() => lostAddress(info) === undefined);
      const isDown =
        /^the interface that has the address .* is down or has no carrier; bring it up/;
      ip('link', 'set', 'test1', 'down');
      await eventually(() => lostAddress(info) !== undefined);
      assert.match(lostAddress(info)!, isDown);
      ip('link', 'set', 'test0', 'down');
      // Linux takes its IPv6 addresses from an interface that is down.
      assert.match(lostAddress(info)!, address === ADDRESS ? isDown : isGone);
    } finally {
      unplug();
    }
    assert.match(lostAddress(info)!, isGone);
    plugIn();
  });
}

/** A carrier arrives later than the command ends: then there is a route to IPv6 groups. */
async function plugInEnds(names: readonly string[]): Promise<void> {
  for (const name of names) ip('link', 'set', `${name}-end`, 'up');
  const routes = (name: string): string =>
    execFileSync('ip', ['-6', 'route', 'show', 'table', 'local', 'dev', name], {
      encoding: 'utf8',
    });
  await eventually(() => names.every((name) => routes(name).includes('multicast ff00::/8')));
}

/** Sends from an address of test0 to a group at one of test1, by the wire between them. */
function plugInReceiver(): void {
  ip('addr', 'add', '10.98.0.1/24', 'dev', 'test1');
  for (const [address, name] of [
    ['fd99::1', 'test0'],
    ['fd98::1', 'test1'],
  ] as const) {
    ip('addr', 'add', `${address}/64`, 'dev', name, 'nodad');
  }
  // Otherwise packets from an address of this machine are not taken from a wire.
  for (const name of ['all', 'test1']) {
    writeFileSync(`/proc/sys/net/ipv4/conf/${name}/accept_local`, '1');
    writeFileSync(`/proc/sys/net/ipv4/conf/${name}/rp_filter`, '0');
  }
}

const GROUPS = [
  { from: ADDRESS, to: '10.98.0.1', group: Gid.parse('239.99.0.1') },
  { from: 'fd99::1', to: 'fd98::1', group: Gid.parse('ff0e::99:1') },
];

for (const Made of LINKS) {
  for (const { from, to, group } of GROUPS) {
    test(`${Made.name}: packets to ${group} leave by the interface of ${from}, and arrive`, async () => {
      plugInReceiver();
      const sender = await openLink(Made, from);
      const place = new Endpoint(group, sender.local.port);
      const member = await openLink(Made, to, sender.local.port);
      member.link.join(group);
      await send(sender.link, place, [100, 1000]);
      await received(member, 2);
      assert.ok(member.receiver.received.every(({ source }) => source.equals(sender.local)));
      unplug();
      plugIn();
    });
  }

  test(`${Made.name}: what arrives at another interface is not for its group`, async () => {
    plugInReceiver();
    const { group } = GROUPS[0]!;
    const sender = await openLink(Made, ADDRESS);
    const member = await openLink(Made, '10.98.0.1', sender.local.port);
    const apart = await openLink(Made, '127.0.0.1', sender.local.port);
    for (const { link } of [member, apart]) link.join(group);
    await send(sender.link, new Endpoint(group, sender.local.port), [100]);
    await received(member, 1);
    apart.link.poll?.();
    assert.is(apart.receiver.received.length, 0);
    unplug();
    plugIn();
  });

  for (const isEarly of [false, true]) {
    const when = isEarly ? ', also before it has a carrier' : '';
    test(`${Made.name}: a device has the IPv6 groups of its own interface${when}`, async () => {
      const names = ['left', 'right'] as const;
      for (const name of names) {
        ip('link', 'add', name, 'type', 'veth', 'peer', 'name', `${name}-end`);
        ip('-6', 'addr', 'add', `fd99:${name.length}::1/64`, 'dev', name, 'nodad');
        ip('link', 'set', name, 'up');
      }
      try {
        if (!isEarly) await plugInEnds(names);
        const group = Gid.parse('ff0e::99');
        const [a, b] = [await openOnce(Made, 'fd99:4::1'), await openOnce(Made, 'fd99:5::1')];
        for (const { link } of [a, b]) link.join(group);
        if (isEarly) await plugInEnds(names);
        const to = new Endpoint(group, 4791);
        for (const [sender, receiver, other] of [
          [a, a, b],
          [b, b, a],
        ] as const) {
          sender.link.send(new TestBatch(packets(to, [100])));
          await received(receiver, 1);
          assert.is(receiver.receiver.received.length, 1);
          other.link.poll?.();
          assert.is(other.receiver.received.length, sender === b ? 1 : 0);
        }
      } finally {
        for (const name of names) ip('link', 'del', name);
      }
    });
  }

  test(`${Made.name}: the limit of memberships is named`, async () => {
    const limit = '/proc/sys/net/ipv4/igmp_max_memberships';
    const before = readFileSync(limit, 'latin1');
    const { link } = await openLink(Made);
    writeFileSync(limit, '0');
    try {
      const pattern = /239\.99\.0\.1 .*raise net\.ipv4\.igmp_max_memberships/;
      expectRefusal(() => link.join(GROUPS[0]!.group), 'ENOBUFS', pattern);
    } finally {
      writeFileSync(limit, before);
    }
    link.join(GROUPS[0]!.group);
  });
}

async function received({ link, receiver }: Opened, count: number): Promise<void> {
  await eventually(() => {
    link.poll?.();
    return receiver.received.length >= count;
  });
}

/** Why this machine cannot do it. */
function whyNot(): string | undefined {
  if (process.platform !== 'linux') return `not for ${process.platform}`;
  const tool = ['ip', 'nft', 'unshare'].find((each) => spawnSync(each, ['-V']).error);
  if (tool !== undefined) return `${tool} is not installed`;
  const { status, stderr } = unshare(['true']);
  return status === 0 ? undefined : stderr.toString().trim();
}

/** With a /sys that shows the interfaces of the new namespace. */
function unshare(command: string[], env: NodeJS.ProcessEnv = process.env) {
  const asRoot = process.getuid?.() === 0 ? [] : ['--map-root-user'];
  const script = 'mount -t sysfs none /sys && exec "$@"';
  const args = ['--net', '--mount', ...asRoot, 'sh', '-c', script, 'sh', ...command];
  return spawnSync('unshare', args, { env, timeout: LIMIT_MILLIS });
}

if (process.env[INSIDE]) {
  ip('link', 'set', 'lo', 'up');
  plugIn();
  test.run();
} else {
  const reason = whyNot();
  if (reason === undefined) {
    const file = fileURLToPath(import.meta.url);
    const env = { ...process.env, [INSIDE]: '1' };
    const { status, stdout, stderr } = unshare([process.execPath, file], env);
    process.stdout.write(stdout);
    process.stderr.write(stderr);
    process.exitCode = status ?? 1;
  } else {
    console.log(`not run: a network namespace: ${reason}`);
    const other = suite('link: a kernel that takes things away, where there is no namespace');
    other('says why', () => assert.ok(reason));
    other.run();
  }
}
