/** Where the sender of a datagram is to be answered. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  WcFlag,
  createLoopbackPair,
  openDevice,
  type Gid,
  type WorkCompletion,
} from '../../../../host/index.js';
import { expectMisuse } from '../../../support/refusal.js';

const DATAGRAM: WorkCompletion = {
  wrId: 0n,
  status: 0,
  opcode: 128,
  byteLen: 40,
  qpNum: 2,
  srcQp: 3,
  srcPort: 40000,
  wcFlags: WcFlag.GRH,
  immData: 0,
  invalidatedRkey: 0,
  vendorErr: 0,
  timestampMicros: 0,
};

/** Zeros, then an IPv4 header from 192.0.2.7. */
const IPV4 = Uint8Array.from([
  ...new Uint8Array(20),
  0x45,
  ...new Uint8Array(11),
  192,
  0,
  2,
  7,
  0,
  0,
  0,
  0,
]);
/** An IPv6 header from fd77::9. */
const IPV6 = Uint8Array.from([
  0x60,
  ...new Uint8Array(7),
  0xfd,
  0x77,
  ...new Uint8Array(13),
  9,
  ...new Uint8Array(16),
]);

test('the address is in the header, IPv4 or IPv6; the port is the one it was sent from', async () => {
  await using context = await openDevice({ link: createLoopbackPair().a, memoryBytes: 2 ** 24 });
  const cases: [grh: Uint8Array, srcPort: number, answer: string][] = [
    [IPV4, 40000, '192.0.2.7 40000'],
    [IPV6, 40000, 'fd77::9 40000'],
    [IPV4, 4791, '192.0.2.7 4791'],
    // RoCEv2 spreads flows over these source ports.
    [IPV4, 0xbfff, '192.0.2.7 49151'],
    [IPV4, 0xc000, '192.0.2.7 4791'],
    [IPV6, 0xffff, 'fd77::9 4791'],
    [IPV6, 0, 'fd77::9 4791'],
  ];
  const pd = context.allocPd();
  for (const [grh, srcPort, answer] of cases) {
    const wc = { ...DATAGRAM, srcPort };
    const { dgid, port } = context.initAhFromWc(1, wc, grh);
    assert.is(`${dgid as Gid} ${port}`, answer);
    const ah = pd.createAhFromWc(wc, grh);
    assert.is(`${ah.destination.gid} ${ah.destination.port}`, answer);
    ah.destroy();
  }
});

test('a completion without datagram, half a header, and a wrong port are misuse', async () => {
  await using context = await openDevice({ link: createLoopbackPair().a, memoryBytes: 2 ** 24 });
  expectMisuse(() => context.initAhFromWc(1, { ...DATAGRAM, wcFlags: 0 }, IPV4));
  expectMisuse(() => context.initAhFromWc(1, DATAGRAM, IPV4.subarray(1)));
  expectMisuse(() => context.initAhFromWc(2, DATAGRAM, IPV4));
});

test('an address handle without ICRC is refused: packets of UD always have one', async () => {
  const { a } = createLoopbackPair();
  await using context = await openDevice({ link: a, memoryBytes: 2 ** 24 });
  const pd = context.allocPd();
  const { gid, port } = context.local;
  expectMisuse(() => pd.createAh({ dgid: gid, port, skipIcrc: true }));
  pd.createAh({ dgid: gid, port, skipIcrc: false }).destroy();
});

test.run();
