/** A system that refuses: said once, and nothing is lost that is not sent again. */
import { spawnSync } from 'node:child_process';
import { constants } from 'node:os';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { WcStatus } from '../../../../host/index.js';
import * as sys from '../../../../host/link/posix.js';
import { Refusals } from '../../../../host/link/udp/send-refusals.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { root } from '../../../support/paths.js';
import { eventually } from '../../../support/receiver.js';
import { over, UdpPair } from '../../../support/udp-pair.js';
import { LinkEnds } from '../../../support/link-ends.js';
import { WITHOUT_KOFFI } from '../../../support/without-koffi.js';

const test = suite('link: refusals');
const { posix } = await sys.loadPosix();
const { errno } = constants;
/** <asm/socket.h> */
const SO_NO_CHECK = 11;
const built = (path: string): string => new URL(`build/${path}`, root).href;

let pair: UdpPair | undefined;
let links: UdpBatchLink[] = [];
let told: string[] = [];
const ends = new LinkEnds();
const hear = (warning: Error): unknown =>
  warning.name === 'VerbenaWarning' && told.push(warning.message);

test.before.each(() => {
  told = [];
  process.on('warning', hear);
});

test.after.each(async () => {
  process.removeListener('warning', hear);
  if (posix) {
    // Removes the test's overrides of the class's methods.
    delete (posix as Partial<sys.Posix>).sendMessages;
    delete (posix as Partial<sys.Posix>).receiveMessages;
    delete (posix as Partial<sys.Posix>).receiveMessage;
    delete (posix as Partial<sys.Posix>).setOption;
  }
  await pair?.close();
  pair = undefined;
  links = [];
  await ends.close();
});

async function openPair(timeout = 14): Promise<UdpPair> {
  const make = (): UdpBatchLink => new UdpBatchLink({ address: '127.0.0.1', port: 0 });
  pair = await UdpPair.open({ open: over(make, links), timeout });
  return pair;
}

/** Writes 200 packets, three times, and looks at every byte. */
async function writes({ a, b }: UdpPair, length = 200_000): Promise<void> {
  for (let round = 1; round <= 3; round++) {
    for (let at = 0; at < length; at++) a.buffer[at] = Math.imul(at + round, 167) >> 5;
    assert.is(await pair!.write(length), WcStatus.SUCCESS);
    const wrong = b.buffer.subarray(0, length).findIndex((byte, at) => byte !== a.buffer[at]);
    assert.is(wrong, -1, `round ${round}`);
  }
}

test('a refusal is explained once per link and errno', async () => {
  const [one, other] = [new Refusals('192.0.2.1'), new Refusals('192.0.2.2')];
  for (let packet = 0; packet < 3; packet++) {
    for (const code of ['EPERM', 'ENETUNREACH', 'EINVAL', 'EAGAIN']) one.tell(code);
  }
  other.tell('EPERM');
  await eventually(() => told.length === 3);
  assert.is(told.length, 3, told.join('\n'));
  assert.match(told[0]!, /192\.0\.2\.1 .*EPERM.*packet filter/);
  assert.match(told[1]!, /192\.0\.2\.1 .*ENETUNREACH.*interface gone/);
  assert.match(told[2]!, /192\.0\.2\.2 .*EPERM/);
});

for (const code of ['EPERM', 'ENOBUFS', 'EMSGSIZE', 'ECONNREFUSED', 'ENETUNREACH'] as const) {
  // Not every third: on a busy machine a packet and its answer are two calls, so each new packet
  // would wait for a timeout, and no round trip would be measured that is not one.
  test(`every fifth system call refused with ${code}: all packets arrive`, async () => {
    const both = await openPair();
    let calls = 0;
    const { sendMessages } = posix!;
    posix!.sendMessages = function (fd, headers, count) {
      return ++calls % 5 === 0 ? -errno[code] : sendMessages.call(this, fd, headers, count);
    };
    const { sendErrors } = links[0]!.counters;
    const refused = (): number => sendErrors.get(code) ?? 0;
    // A call carries as many packets as a busy machine lets wait, so calls are counted, not writes.
    for (let turn = 0; refused() <= 3; turn++) {
      assert.ok(turn < 50, `${refused()} refusals`);
      await writes(both);
    }
    assert.equal([...sendErrors.keys()], [code]);
    // ECONNREFUSED is about the peer: retransmissions handle it.
    const saying = code === 'ECONNREFUSED' ? 0 : 1;
    const mine = told.filter((text) => text.includes(code));
    assert.ok(mine.length >= saying && mine.length <= 2 * saying, mine.join('\n'));
  });
}

test('refused for a while with EPERM, then not: the connection goes on', async () => {
  const both = await openPair(13);
  await writes(both);
  const { sendMessages } = posix!;
  // By calls, not by time: a busy machine may post the first packet after any time.
  let refusals = 3;
  posix!.sendMessages = function (fd, headers, count) {
    if (refusals-- > 0) return -errno.EPERM;
    return sendMessages.call(this, fd, headers, count);
  };
  await writes(both);
  assert.ok(links[0]!.counters.sendErrors.get('EPERM')! > 0);
  assert.ok(refusals < 0, 'the system sends again');
});

const RUN_OPTIONS = { UDP_SEGMENT: sys.UDP_SEGMENT, UDP_GRO: sys.UDP_GRO };
for (const missing of [['UDP_SEGMENT'], ['UDP_GRO'], ['UDP_SEGMENT', 'UDP_GRO']] as const) {
  test(`a kernel without ${missing.join(' and ')} carries everything`, async () => {
    const options = new Set<number>(missing.map((name) => RUN_OPTIONS[name]));
    const { setOption } = posix!;
    posix!.setOption = function (fd, level, option, value) {
      if (level === sys.SOL_UDP && options.has(option)) {
        throw new sys.PosixError('setsockopt', 'ENOPROTOOPT');
      }
      return setOption.call(this, fd, level, option, value);
    };
    const both = await openPair();
    await writes(both);
    const { counters, info } = links[0]!;
    const granted = info.socketOptions!.filter((option) => option.granted);
    for (const name of missing) assert.not(granted.some((option) => option.name === name));
    assert.is(counters.sendErrors.size, 0);
    if (options.has(sys.UDP_SEGMENT)) assert.is(counters.sentMessages, counters.sent);
    else assert.ok(counters.sentMessages < counters.sent, 'runs leave as one');
    const { receivedMessages, received } = links[1]!.counters;
    if (options.has(sys.UDP_GRO)) assert.is(receivedMessages, received);
  });
}

for (const code of ['EIO', 'EINVAL', 'EOPNOTSUPP'] as const) {
  test(`a kernel that refuses runs with ${code} when they are sent loses no packet`, async () => {
    const both = await openPair();
    const { sendMessages } = posix!;
    let refused = 0;
    posix!.sendMessages = function (fd, headers, count) {
      return refused++ === 0 ? -errno[code] : sendMessages.call(this, fd, headers, count);
    };
    await writes(both);
    const { counters } = links[0]!;
    assert.equal([...counters.sendErrors], []);
    const joined = counters.sent - counters.sentMessages;
    assert.ok(joined < 20, `${joined}: no runs but those that were made by then`);
    await writes(both);
    assert.is(counters.sent - counters.sentMessages, joined);
    assert.equal([...counters.sendErrors], []);
  });
}

test('a device that cannot cut up runs for want of checksums gets packets one by one', async () => {
  const both = await openPair();
  await writes(both);
  const { counters, socketDescriptor } = links[0]!;
  const before = counters.sentMessages - counters.sent;
  assert.ok(before < 0, 'there were runs');
  posix!.setOption(socketDescriptor, sys.SOL_SOCKET, SO_NO_CHECK, 1);
  await writes(both);
  assert.equal([...counters.sendErrors], []);
  assert.is(counters.sentMessages - counters.sent, before, 'none since');
});

test('an ICMP error of a peer does not fail the link; errors in a row do, once', async () => {
  const { link, receiver } = await ends.open();
  let code: 'ECONNREFUSED' | 'EHOSTUNREACH' | 'EINTR' | 'ENOMEM' = 'ECONNREFUSED';
  posix!.receiveMessages = posix!.receiveMessage = () => -errno[code];
  for (code of ['ECONNREFUSED', 'EHOSTUNREACH', 'EINTR'] as const) {
    for (let turn = 0; turn < 100; turn++) assert.is(link.poll(), 0);
  }
  assert.equal(receiver.failures, []);
  assert.equal(
    [...link.counters.receiveErrors],
    [
      ['ECONNREFUSED', 100],
      ['EHOSTUNREACH', 100],
    ],
  );
  code = 'ENOMEM';
  for (let turn = 0; turn < 100; turn++) link.poll();
  assert.is(receiver.failures.length, 1);
  assert.match(receiver.failures[0]!.message, /ENOMEM/);
});

test('without koffi a device falls back to node:dgram, warns once, and carries packets', () => {
  const { stdout, stderr } = spawnSync(
    process.execPath,
    [
      ...WITHOUT_KOFFI,
      '--input-type=module',
      '--eval',
      `const { openDevice } = await import('${built('host/index.js')}');
       const { UdpPair } = await import('${built('test/support/udp-pair.js')}');
       const pair = await UdpPair.open({ open: () => ({ address: '127.0.0.1', port: 0 }) });
       pair.a.buffer.fill(7);
       const status = await pair.write(300_000);
       const arrived = pair.b.buffer.lastIndexOf(7) + 1;
       const name = pair.a.context.device.info.name;
       await pair.close();
       const errors = [];
       for (const progress of ['thread', 'poll']) {
         const refused = (error) => errors.push([error.code, error.message]);
         await openDevice({ port: 0, progress }).catch(refused);
       }
       console.log(JSON.stringify({ name, status, arrived, errors }));`,
    ],
    { encoding: 'utf8', timeout: 60_000 },
  );
  assert.is(stderr.match(/VerbenaWarning/g)?.length, 1, stderr);
  assert.match(stderr, /koffi is not installed: npm install koffi/);
  const { name, status, arrived, errors } = JSON.parse(stdout) as {
    name: string;
    status: number;
    arrived: number;
    errors: [code: string, message: string][];
  };
  assert.equal([name, status, arrived], ['udp', WcStatus.SUCCESS, 300_000]);
  assert.is(errors.length, 2);
  for (const [code, message] of errors) {
    assert.is(code, 'EOPNOTSUPP');
    assert.match(message, 'npm install koffi');
  }
});

if (posix) {
  test.run();
} else {
  const other = suite('link: refusals, where system calls are not ours to make');
  other('says why', async () => assert.ok(await UdpBatchLink.missing()));
  other.run();
}
