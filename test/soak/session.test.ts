/** A session whose peer dies between the acknowledgement of a message and its answer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  UdpLink,
  createFmrPool,
  faultLink,
  listen,
  openDevice,
} from '../../host/index.js';
import type { Random } from '../simulation/random.js';
import { MESSAGE_BYTES } from './service.js';
import { Session } from './session.js';

const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = AccessFlag;
/** Of a session's works, the one that asks for an answer. */
const ECHO = 4;

test('a session that waits for the answer of a dead peer notices it, and ends', async () => {
  const wire = faultLink(new UdpLink({ address: '127.0.0.1', port: 0 }), { seed: 1 });
  await using there = await openDevice({ link: wire });
  await using here = await openDevice({ link: new UdpLink({ address: '127.0.0.1', port: 0 }) });
  const listener = await listen('127.0.0.1:0', { context: there });
  const pd = there.allocPd();
  const mr = pd.regMr(there.alloc(4096), LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
  const privateData = Buffer.alloc(4 * 12);
  for (const at of [0, 12, 24, 36]) {
    privateData.writeBigUInt64BE(BigInt(mr.addr), at);
    privateData.writeUInt32BE(mr.rkey, at + 8);
  }
  const dying = (async () => {
    const request = (await listener.getRequest())!;
    const sgList = [{ addr: mr.addr + 2048n, length: MESSAGE_BYTES, lkey: mr.lkey }];
    const { recvCq } = await request.accept({ pd, privateData }, (qp) => qp.postRecv({ sgList }));
    const [received] = await recvCq.wait(1);
    // A message sent before arrives: it was acknowledged.
    await new Promise((resolve) => setTimeout(resolve, 50));
    wire.change({ loss: 1 });
    return received?.status;
  })();
  const said: string[] = [];
  const events = {
    done: (what: string) => said.push(what),
    ...{ acknowledged: () => {}, found: () => {} },
    violation: (sentence: string) => said.push(sentence),
  };
  const place = {
    member: 1,
    incarnation: 0,
    port: listener.port,
    udpPort: there.local.port,
    qpn: 0,
  };
  const random = { below: () => ECHO } as unknown as Random;
  const pool = createFmrPool(here, undefined, { maxLength: 4096, mrsMax: 4 });
  await Session.run(here, pool, place, 0, random, events, () => false);
  assert.is(await dying, 0);
  assert.equal(said, ['connect']);
});

test.run();
