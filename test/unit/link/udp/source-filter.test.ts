/** The kernel's filter of sources, with real sockets. */
import { createSocket } from 'node:dgram';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid } from '../../../../host/link/endpoint.js';
import { AF_INET, AF_INET6, loadPosix, type Posix } from '../../../../host/link/posix.js';
import { UdpBatchLink } from '../../../../host/link/udp/udp-batch.js';
import { FILTERED_PEERS_MAX, sourceFilter } from '../../../../host/link/udp/source-filter.js';

const { posix } = await loadPosix();

/** A packet to queue pair `qpn`, the first byte of which is `mark`. */
function packet(mark: number, qpn: number, bytes = 16): Buffer {
  const made = Buffer.alloc(16);
  made[0] = mark;
  // The byte before the number is reserved, and not compared.
  made.writeUInt32BE((0xff000000 | qpn) >>> 0, 4);
  return made.subarray(0, bytes);
}

/** Marks of the datagrams that pass, in order. */
async function passing(
  calls: Posix,
  to: string,
  peers: readonly string[],
  datagrams: readonly (readonly [from: string, packet: Buffer])[],
): Promise<number[]> {
  const gid = Gid.parse(to);
  const receiver = calls.datagramSocket(gid.isIpv4 ? AF_INET : AF_INET6);
  calls.bind(receiver, gid, 0, '');
  const port = calls.localPort(receiver);
  calls.attachFilter(receiver, sourceFilter(peers.map(Gid.parse), gid.isIpv4));
  const taker = createSocket(gid.isIpv4 ? 'udp4' : 'udp6');
  await new Promise<void>((resolve) => taker.bind({ fd: receiver, exclusive: true }, resolve));
  const marks: number[] = [];
  taker.on('message', (message) => marks.push(message[0]!));
  for (const [from, bytes] of datagrams) {
    const sender = createSocket(gid.isIpv4 ? 'udp4' : 'udp6');
    await new Promise<void>((resolve) => sender.bind(0, from, resolve));
    await new Promise((resolve) => sender.send(bytes, port, to, resolve));
    sender.close();
  }
  // The loopback interface has queued all of them; the last one passes whatever its source.
  const end = createSocket(gid.isIpv4 ? 'udp4' : 'udp6');
  await new Promise((resolve) => end.send(packet(99, 1), port, to, resolve));
  while (!marks.includes(99)) await new Promise((resolve) => setTimeout(resolve, 1));
  end.close();
  taker.close();
  return marks.filter((mark) => mark !== 99);
}

if (posix) {
  test('of IPv4, datagrams of peers pass, and those of any source to queue pair 1', async () => {
    const datagrams = [
      ['127.1.64.2', packet(1, 0x123456)],
      ['127.1.64.3', packet(2, 0x123456)],
      ['127.1.64.3', packet(3, 1)],
      ['127.1.64.3', packet(4, 0x100001)],
      ['127.1.64.4', packet(5, 7)],
      ['127.1.64.2', packet(6, 7, 7)],
      ['127.1.64.3', packet(7, 1, 7)],
    ] as const;
    const marks = await passing(posix, '127.1.64.1', ['127.1.64.4', '127.1.64.2'], datagrams);
    assert.equal(marks, [1, 3, 5], 'the last two are shorter than their number');
  });

  test('of IPv6, all 16 bytes of a source are compared', async () => {
    const datagrams = [
      ['::1', packet(1, 7)],
      ['::1', packet(2, 1)],
    ] as const;
    const others = ['::2', '::1:0:1', '1::1', '0:0:1::1'];
    assert.equal(await passing(posix, '::1', others, datagrams), [2]);
    assert.equal(await passing(posix, '::1', [...others, '::1'], datagrams), [1, 2]);
  });

  test('where filters cannot be removed, one that passes everything takes their place', async () => {
    const detach = posix.detachFilter.bind(posix);
    posix.detachFilter = () => {
      throw new Error('refused');
    };
    const link = new UdpBatchLink({ address: '127.1.64.1', port: 0 });
    let packets = 0;
    await link.open({ packet: () => packets++, flush: () => {}, failed: () => {} });
    try {
      for (const peers of [[], undefined]) {
        link.setSourceFilter(peers);
        const sender = createSocket('udp4');
        await new Promise((resolve) => {
          sender.send(packet(1, 7), link.info.local.port, '127.1.64.1', resolve);
        });
        sender.close();
        link.poll();
        assert.is(packets, peers ? 0 : 1);
      }
    } finally {
      posix.detachFilter = detach;
      await link.close();
    }
  });

  test('the kernel takes a filter of as many peers as there may be', async () => {
    for (const [to, peer] of [
      ['127.1.64.1', (index: number) => `127.1.65.${index}`],
      ['::1', (index: number) => `fd00::${index}`],
    ] as const) {
      const peers = Array.from({ length: FILTERED_PEERS_MAX }, (_, index) => peer(index + 1));
      const from = to === '::1' ? '::1' : '127.1.65.128';
      const expected = to === '::1' ? [] : [1];
      assert.equal(await passing(posix, to, peers, [[from, packet(1, 7)]]), expected);
    }
  });
} else {
  console.log('not run: no filters of sockets without koffi');
}

test.run();
