/** The method of a flush: by the kind of peer, the region's usage bits, and the set method. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { Endpoint, MisuseError, WcStatus, openDevice, rpma } from '../../../host/index.js';
import { LoopbackNetwork } from '../../../host/link/loopback.js';
import { pcapLink, readPcap } from '../../../host/link/capture/pcap.js';
import { planFlush, type FlushMethod } from '../../../host/rpma/flush.js';
import { icrcMatches } from '../../support/icrc.js';

const { READ_SRC, WRITE_DST, FLUSH_TYPE_VISIBILITY, FLUSH_TYPE_PERSISTENT } = rpma.MrUsage;
const { VISIBILITY, PERSISTENT } = rpma.FlushType;
const FLUSHED = WRITE_DST | FLUSH_TYPE_VISIBILITY | FLUSH_TYPE_PERSISTENT;
const PEERS = {
  own: { isOwnKind: true, isRxe: false },
  rxe: { isOwnKind: false, isRxe: true },
  other: { isOwnKind: false, isRxe: false },
};

test('the kind of peer, the usage bits and the type of the flush select the method', () => {
  const rows: readonly [keyof typeof PEERS, number, number, FlushMethod | undefined, string][] = [
    ['own', FLUSHED, VISIBILITY, undefined, 'native'],
    ['own', FLUSHED | READ_SRC, PERSISTENT, undefined, 'native'],
    ['rxe', FLUSHED | READ_SRC, VISIBILITY, undefined, 'read 8'],
    ['rxe', FLUSHED | READ_SRC, PERSISTENT, undefined, 'read 8'],
    ['rxe', FLUSHED, VISIBILITY, undefined, 'read 0'],
    ['rxe', FLUSHED, PERSISTENT, undefined, 'native'],
    ['other', FLUSHED, VISIBILITY, undefined, 'read 8'],
    ['other', FLUSHED, PERSISTENT, undefined, 'read 8'],
    // A set method applies to every region and every peer.
    ['own', FLUSHED, VISIBILITY, 'appliance', 'read 8'],
    ['rxe', FLUSHED, VISIBILITY, 'native', 'native'],
    ['rxe', FLUSHED, VISIBILITY, 'appliance', 'read 8'],
    ['rxe', FLUSHED, PERSISTENT, 'appliance', 'read 8'],
    ['other', FLUSHED, PERSISTENT, 'native', 'native'],
  ];
  for (const [peer, usage, type, wanted, expected] of rows) {
    const plan = planFlush(PEERS[peer], usage, type, wanted);
    const said = plan.method === 'native' ? 'native' : `read ${plan.length}`;
    assert.is(said, expected, `${peer}, usage ${usage}, type ${type}, ${wanted ?? 'nothing'} set`);
  }
});

/** The FLUSH requests of a client; for each: is its ICRC the standard one? */
async function flushes(isDoubled: boolean | undefined): Promise<boolean[]> {
  const network = new LoopbackNetwork();
  const chunks: Uint8Array[] = [];
  const sink = {
    write(bytes: Uint8Array) {
      chunks.push(bytes.slice());
      return true;
    },
    close: () => Promise.resolve(),
  };
  const open = (address: string, tap = false) => {
    const link = network.link(Endpoint.parse(address, 4791));
    return openDevice({ link: tap ? pcapLink(link, sink) : link });
  };
  const [here, there] = [await open('10.88.0.2'), await open('10.88.0.3', true)];
  const [server, client] = [rpma.peerNew(here), rpma.peerNew(there)];
  const mr = server.mrReg(here.alloc(4096), WRITE_DST | FLUSH_TYPE_VISIBILITY);
  const ep = await server.epListen('10.88.0.2', 7471);
  const accepted = ep.nextConnReq().then((request) => request.connect(mr.getDescriptor()));
  const cfg = rpma.connCfgNew();
  cfg.setDoubledFlushIcrc(isDoubled);
  assert.is(cfg.getDoubledFlushIcrc(), isDoubled);
  const conn = (await client.connReqNew('10.88.0.2', 7471, cfg)).connect();
  assert.is(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
  await accepted;
  const remote = rpma.mrRemoteFromDescriptor(conn.getPrivateData());
  conn.flush(remote, 0, 64, VISIBILITY, rpma.Flag.COMPLETION_ALWAYS);
  assert.is((await conn.getCq().next()).status, WcStatus.SUCCESS);
  await there.close();
  await here.close();
  const file = Buffer.concat(chunks);
  return [...readPcap(file)]
    .filter(({ payload }) => payload[0] === Opcode.RC_FLUSH)
    .map((packet) => icrcMatches(file, packet));
}

test('setDoubledFlushIcrc chooses the ICRC of FLUSH requests; by default our own kind gets the standard’s', async () => {
  assert.equal(await flushes(undefined), [true]);
  assert.equal(await flushes(false), [true]);
  assert.equal(await flushes(true), [false]);
});

test('an invalid method or ICRC option is misuse, and the error names the value', () => {
  const cfg = rpma.connCfgNew();
  for (const wrong of [0, 'yes', null]) {
    const got = `got ${JSON.stringify(wrong)}`;
    assert.throws(
      () => cfg.setDoubledFlushIcrc(wrong as never),
      (error: unknown) => error instanceof MisuseError && error.message.includes(got),
    );
  }
  assert.is(cfg.getDoubledFlushIcrc(), undefined);
});

test.run();
