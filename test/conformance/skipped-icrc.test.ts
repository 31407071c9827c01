/**
 * Packets without an ICRC between Verbena peers whose link keeps bytes whole, and the agreement
 * between both sides: real sockets, and bits that flip on a link without integrity.
 */
import * as assert from 'uvu/assert';
import { test } from 'uvu';
import { Opcode } from '#build/abi.js';
import {
  SendFlag,
  WcStatus,
  WrOpcode,
  connect,
  faultLink,
  listen,
  openDevice,
  type Context,
} from '../../host/index.js';
import { UdpLink } from '../../host/link/udp/udp.js';
import { onWire, pattern, type Wire } from '../support/wire.js';
import { ALL_ACCESS } from '../support/pair.js';

const SKIPS = { skipIcrc: true };

function write(wire: Wire, index: number): Uint8Array {
  const fields = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200 + index, ackRequest: 1 };
  return wire.packet({ ...fields, ...wire.reth(index * 64, 64) }, pattern(64, index + 1));
}

test('requests, responses and acknowledgements of such a path have 0 for the ICRC', () =>
  onWire(SKIPS, (wire) => {
    // Each packet that leaves is looked at by the test's side of the wire.
    wire.post(WrOpcode.RDMA_WRITE, 5000, { sendFlags: SendFlag.SIGNALED });
    assert.is(wire.takePackets().length, 5);
    wire.deliver(write(wire, 0));
    wire.expectPacket({ opcode: Opcode.RC_ACKNOWLEDGE, psn: 0x200 });
    const read = { opcode: Opcode.RC_RDMA_READ_REQUEST, psn: 0x201, ...wire.reth(0, 3000) };
    wire.sendPacket(read);
    assert.is(wire.takePackets().length, 3);
  }));

test('short packets of one length, and longer ones between them, each have 0', () =>
  onWire(SKIPS, (wire) => {
    for (let index = 0; index < 40; index++) {
      wire.post(WrOpcode.RDMA_WRITE, index % 7 === 6 ? 1000 : 64);
    }
    assert.is(wire.takePackets().length, 40);
  }));

test('a packet with the right ICRC is taken as well, one with a wrong ICRC is dropped', () =>
  onWire({}, (sealing) =>
    onWire(SKIPS, (wire) => {
      const { qpNum } = wire.qp;
      const bytes = write(wire, 0);
      new DataView(bytes.buffer).setUint32(bytes.length - 4, 0x12345678, true);
      wire.expectCounted({ dropIcrc: 1 }, () => wire.deliver(bytes));
      const fields = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200, targetQp: qpNum };
      const sealed = sealing.packet({ ...fields, ...wire.reth(0, 64) }, 64);
      wire.deliver(sealed);
      wire.deliver(write(wire, 1));
      const { icrcExact, icrcSkipped } = wire.context.counters();
      assert.equal([icrcExact, icrcSkipped], [1n, 1n]);
    }),
  ));

test('where nothing was agreed a packet without an ICRC is dropped', () =>
  onWire(SKIPS, (bare) =>
    onWire({}, (wire) => {
      const fields = { opcode: Opcode.RC_RDMA_WRITE_ONLY, psn: 0x200, targetQp: wire.qp.qpNum };
      const bytes = bare.packet({ ...fields, ...wire.reth(0, 64) }, 64);
      wire.expectCounted({ dropIcrc: 1 }, () => wire.deliver(bytes));
    }),
  ));

interface Way {
  readonly server: Context;
  readonly client: Context;
}

const WHERE = { address: '127.0.0.1', port: 7001 };
const BYTES = 256 * 1024;

/** A WRITE and a READ of 256 KiB between the two devices; both sides' counters afterwards. */
async function writeAndRead({ server, client }: Way) {
  const source = client.alloc(BYTES);
  const target = server.alloc(BYTES);
  const back = client.alloc(BYTES);
  source.set(pattern(BYTES, 7));
  const listener = await listen(WHERE, { context: server });
  const accepted = (async () => {
    const request = (await listener.getRequest())!;
    const mr = request.id.pd.regMr(target, ALL_ACCESS);
    const privateData = Buffer.alloc(12);
    privateData.writeBigUInt64BE(mr.addr);
    privateData.writeUInt32BE(mr.rkey, 8);
    return request.accept({ privateData });
  })();
  const udpPort = server.local.port;
  const connection = await connect(WHERE, { context: client, udpPort });
  const peer = await accepted;
  const told = Buffer.from(connection.param.privateData!);
  const rdma = { remoteAddr: told.readBigUInt64BE(), rkey: told.readUInt32BE(8) };
  for (const [opcode, memory] of [
    [WrOpcode.RDMA_WRITE, source],
    [WrOpcode.RDMA_READ, back],
  ] as const) {
    const mr = connection.pd.regMr(memory, ALL_ACCESS);
    const sgList = [{ addr: mr.addr, length: BYTES, lkey: mr.lkey }];
    connection.qp.postSend({ opcode, sgList, rdma, sendFlags: SendFlag.SIGNALED });
    const [completion] = await connection.sendCq.wait(1);
    assert.is(completion!.status, WcStatus.SUCCESS);
  }
  assert.is(Buffer.compare(target, source), 0);
  assert.is(Buffer.compare(back, source), 0);
  const counters = [server.counters(), client.counters()];
  await connection.disconnect();
  await peer.disconnected;
  await listener.close();
  return counters;
}

const open = (icrc?: 'always') =>
  openDevice({ port: 0, memoryBytes: 8 * 2 ** 20, ...(icrc && { icrc }) });

async function between(server: Context, client: Context) {
  try {
    return await writeAndRead({ server, client });
  } finally {
    await client.close();
    await server.close();
  }
}

test('two devices of this host agree, and their data has no ICRC', async () => {
  for (const { icrcSkipped, dropIcrc } of await between(await open(), await open())) {
    assert.ok(icrcSkipped >= 60n, `${icrcSkipped} packets`);
    assert.is(dropIcrc, 0n);
  }
});

test("one side's icrc: 'always' is enough for ICRCs in both directions", async () => {
  for (const [server, client] of [
    [await open('always'), await open()],
    [await open(), await open('always')],
  ] as const) {
    for (const { icrcSkipped } of await between(server, client)) assert.is(icrcSkipped, 0n);
  }
});

test('bits that flip on a link that promises nothing are caught', async () => {
  const faulty = () =>
    openDevice({
      link: faultLink(new UdpLink({ address: '127.0.0.1', port: 0 }), {
        seed: 5,
        corruption: 0.02,
      }),
      memoryBytes: 8 * 2 ** 20,
    });
  const all = await between(await faulty(), await faulty());
  assert.ok(all[0]!.dropIcrc + all[1]!.dropIcrc > 0n);
  for (const { icrcSkipped } of all) assert.is(icrcSkipped, 0n);
});

test('icrc takes two values', async () => {
  try {
    await openDevice({ port: 0, icrc: 'never' as 'always' });
    assert.unreachable();
  } catch (error) {
    assert.match((error as Error).message, `icrc: must be 'needed' or 'always', got "never"`);
  }
});

test('short packets with an ICRC have it when packets without one leave between them', () =>
  onWire({}, (wire) => {
    const { pd, cq } = wire;
    const bare = pd.createQp({ sendCq: cq, recvCq: cq });
    wire.connect({ skipIcrc: true }, bare);
    const post = (qp: typeof bare): void => {
      const rdma = { remoteAddr: 0x10000n, rkey: 0x77 };
      qp.postSend({ opcode: WrOpcode.RDMA_WRITE, sgList: wire.sge(0, 64), rdma });
    };
    // The buffers of a slow socket: all that is posted meanwhile leaves in one.
    wire.link.holds = true;
    for (let index = 0; index < 16; index++) post(wire.qp);
    for (let index = 0; index < 4; index++) for (const qp of [wire.qp, bare]) post(qp);
    wire.link.release();
    let sealed = 0;
    for (const { bytes } of wire.link.sent.splice(0)) {
      const isBare = new DataView(bytes.buffer).getUint32(bytes.length - 4) === 0;
      if (isBare) continue;
      wire.link.sent.push({ bytes, destination: wire.peer });
      assert.ok(wire.takePacket(), 'its ICRC is right');
      sealed++;
    }
    assert.is(sealed, 20);
  }));

test.run();
