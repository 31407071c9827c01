/** Our rpma and Debian's librpma over rxe, in both roles. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { WcOpcode, WcStatus, openDevice, rpma, type Context } from '../../host/index.js';
import { root } from '../support/paths.js';
import type { GuestGroup } from './group.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';

/** As rxe/rpma.c has them. */
const [BYTES, SAID_AT, HEARD_AT, WORD_AT, TEXT] = [4096, 1024, 64, 8, 64];
const [SEND_AT, RECV_AT, MR_AT] = [2048, 2056, 4];
const PORT = 7204;
const SECONDS = 60;
const { MrUsage, FlushType } = rpma;
const { COMPLETION_ALWAYS, COMPLETION_ON_ERROR } = rpma.Flag;
const EVERYTHING = 255 & ~MrUsage.FLUSH_TYPE_PERSISTENT;

const source = fileURLToPath(new URL('test/interop/rxe/rpma.c', root));

export const rpmaGroup: GuestGroup = {
  name: 'rpma',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    const program = await lab.compile(source);
    await report.check('our rpma: a client of librpma’s server', () => ask(lab, program));
    await report.check('our rpma: the server of librpma’s client', () => serve(lab, program));
  },
};

async function withPeer(lab: Lab, work: (peer: rpma.Peer) => Promise<void>): Promise<void> {
  const context: Context = await openDevice({ address: lab.ipv4, rdAtomicMax: 128 });
  try {
    await work(rpma.peerNew(context));
  } finally {
    await context.close();
  }
}

async function completed(conn: rpma.Conn, opcode: number): Promise<void> {
  for (;;) {
    const wc = await conn.getCq().next();
    assert.equal(wc.status, WcStatus.SUCCESS);
    if (wc.opcode === opcode) return;
  }
}

async function ask(lab: Lab, program: string): Promise<void> {
  const server = lab.guest.spawn(`${program} server ${lab.guest.ipv4} ${PORT}`);
  await server.printed(/listening/);
  await withPeer(lab, async (peer) => {
    const memory = peer.context.alloc(BYTES);
    const view = new DataView(memory.buffer, memory.byteOffset, BYTES);
    const mr = peer.mrReg(memory, EVERYTHING);
    const request = await peer.connReqNew(lab.guest.ipv4, PORT);
    request.recv(mr, RECV_AT, 8);
    const conn = request.connect();
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
    const remote = rpma.mrRemoteFromDescriptor(conn.getPrivateData().subarray(MR_AT));
    assert.equal(remote.getSize(), BYTES);
    assert.equal(conn.flushMethod, 'appliance');
    conn.read(mr, SAID_AT, remote, SAID_AT, TEXT, COMPLETION_ALWAYS);
    await completed(conn, WcOpcode.RDMA_READ);
    assert.equal(textAt(memory, SAID_AT), 'said by librpma');
    memory.set(new TextEncoder().encode('written by us'), HEARD_AT);
    const { VISIBILITY } = FlushType;
    conn.write(remote, HEARD_AT, mr, HEARD_AT, TEXT, COMPLETION_ON_ERROR);
    conn.flush(remote, HEARD_AT, TEXT, VISIBILITY, COMPLETION_ON_ERROR);
    const word = new Uint8Array(new BigUint64Array([0x1122334455667788n]).buffer);
    conn.atomicWrite(remote, WORD_AT, word, COMPLETION_ON_ERROR);
    conn.flush(remote, WORD_AT, 8, VISIBILITY, COMPLETION_ON_ERROR);
    view.setBigUint64(SEND_AT, 41n, true);
    conn.send(mr, SEND_AT, 8, COMPLETION_ON_ERROR);
    await completed(conn, WcOpcode.RECV);
    assert.equal(view.getBigUint64(RECV_AT, true), 42n);
    conn.disconnect();
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.CLOSED);
  });
  await server.printed(/heard 'written by us', word 1122334455667788, number 41/);
}

async function serve(lab: Lab, program: string): Promise<void> {
  await withPeer(lab, async (peer) => {
    const memory = peer.context.alloc(BYTES);
    const view = new DataView(memory.buffer, memory.byteOffset, BYTES);
    memory.set(new TextEncoder().encode('said by us'), SAID_AT);
    const mr = peer.mrReg(memory, EVERYTHING);
    const descriptor = mr.getDescriptor();
    const told = new Uint8Array(28);
    told.set([0, 0, descriptor.length, 0]);
    told.set(descriptor, MR_AT);
    const ep = await peer.epListen(lab.ipv4, PORT);
    const ended = lab.guest.run(`${program} client ${lab.ipv4} ${PORT}`, SECONDS);
    // Heard when it is waited for.
    ended.catch(() => {});
    const request = await ep.nextConnReq();
    request.recv(mr, RECV_AT, 8);
    const conn = request.connect(told);
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
    await completed(conn, WcOpcode.RECV);
    assert.equal(textAt(memory, HEARD_AT), 'written by librpma');
    assert.equal(view.getBigUint64(WORD_AT, true), 0x1122334455667788n);
    view.setBigUint64(SEND_AT, view.getBigUint64(RECV_AT, true) + 1n, true);
    conn.send(mr, SEND_AT, 8, COMPLETION_ALWAYS);
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.CLOSED);
    assert.match(`${await ended}`, /read 'said by us', answer 42/);
  });
}

function textAt(bytes: Uint8Array, offset: number): string {
  return new TextDecoder().decode(bytes.slice(offset, bytes.indexOf(0, offset)));
}
