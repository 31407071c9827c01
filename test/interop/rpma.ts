/**
 * Our rpma over rxe, in both roles: with Debian's librpma 1.2, which flushes by a READ, and with a
 * program that sends the packets of librpma 1.3: native FLUSH, and regions without READ access
 * (rxe/rpma-native.c).
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
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
const nativeSource = fileURLToPath(new URL('test/interop/rxe/rpma-native.c', root));
/** Offsets in the message buffer, which has memory of its own. */
const [OUT_AT, IN_AT] = [0, 8];
/** A flush of visibility, and one of persistence. */
const SENTENCE = 'written by us';
const WORD = 0x1122334455667788n;

export const rpmaGroup: GuestGroup = {
  name: 'rpma',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    const program = await lab.compile(source);
    await report.check('our rpma: a client of librpma’s server', () => ask(lab, program));
    await report.check(
      'our rpma: a client of librpma’s server, with a region without READ usage',
      () => ask(lab, program, 'flush-only'),
    );
    await report.check('our rpma: the server of librpma’s client', () => serve(lab, program));
    const native = await lab.compile(nativeSource);
    await lab.guest.run('persistent-memory');
    const clients: readonly [what: string, server: string, method?: 'native'][] = [
      ['visible', 'server'],
      ['visible, native', 'server', 'native'],
      ['persistent', 'server-persistent'],
    ];
    for (const [what, server, method] of clients) {
      await report.check(`our rpma: a client of librpma 1.3’s server, ${what}`, () =>
        askNative(lab, native, server, method),
      );
    }
    for (const isPersistent of [false, true]) {
      const what = isPersistent ? 'persistent' : 'visible';
      await report.check(`our rpma: the server of librpma 1.3’s client, ${what}`, () =>
        serveNative(lab, native, isPersistent),
      );
    }
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

/** A client of a librpma 1.3 server with a region without READ access. */
async function askNative(
  lab: Lab,
  program: string,
  role: string,
  method?: rpma.FlushMethod,
): Promise<void> {
  const server = lab.guest.spawn(`${program} ${role} ${lab.guest.ipv4} ${PORT}`);
  await server.printed(/listening/);
  await withPeer(lab, async (peer) => {
    const memory = peer.context.alloc(BYTES);
    const view = new DataView(memory.buffer, memory.byteOffset, BYTES);
    const mr = peer.mrReg(memory, EVERYTHING);
    const request = await peer.connReqNew(lab.guest.ipv4, PORT);
    request.recv(mr, RECV_AT, 8);
    const conn = request.connect();
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
    const told = conn.getPrivateData();
    const remote = rpma.mrRemoteFromDescriptor(told.subarray(MR_AT));
    conn.applyRemotePeerCfg(rpma.peerCfgFromDescriptor(told.subarray(MR_AT + told[2]!)));
    if (method) conn.flushMethod = method;
    const isPersistent = (remote.getFlushType() & MrUsage.FLUSH_TYPE_PERSISTENT) !== 0;
    const type = isPersistent ? FlushType.PERSISTENT : FlushType.VISIBILITY;
    memory.set(new TextEncoder().encode(SENTENCE), HEARD_AT);
    conn.write(remote, HEARD_AT, mr, HEARD_AT, TEXT, COMPLETION_ON_ERROR);
    conn.flush(remote, HEARD_AT, TEXT, type, COMPLETION_ALWAYS, 1);
    const flushed = await conn.getCq().next();
    assert.equal(flushed.status, WcStatus.SUCCESS);
    assert.equal(flushed.wrId, 1n);
    const word = new Uint8Array(new BigUint64Array([WORD]).buffer);
    conn.atomicWrite(remote, WORD_AT, word, COMPLETION_ON_ERROR);
    conn.flush(remote, WORD_AT, 8, type, COMPLETION_ON_ERROR);
    view.setBigUint64(SEND_AT, 41n, true);
    conn.send(mr, SEND_AT, 8, COMPLETION_ON_ERROR);
    await completed(conn, WcOpcode.RECV);
    assert.equal(view.getBigUint64(RECV_AT, true), 42n);
    conn.disconnect();
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.CLOSED);
  });
  await server.printed(/heard 'written by us', word 1122334455667788, number 41/);
  assert.equal((await server.ended).code, 0);
}

/** A server for a librpma 1.3 client, with a region without READ access. */
async function serveNative(lab: Lab, program: string, isPersistent: boolean): Promise<void> {
  await withPeer(lab, async (peer) => {
    const path = join(lab.folder, 'rpma-native.pmem');
    const pmem = isPersistent
      ? await peer.context.openPmem(path, { bytes: BYTES, store: 'file' })
      : undefined;
    const memory = pmem?.buffer ?? peer.context.alloc(BYTES);
    const { WRITE_DST, FLUSH_TYPE_PERSISTENT, FLUSH_TYPE_VISIBILITY } = MrUsage;
    const type = isPersistent ? FLUSH_TYPE_PERSISTENT : FLUSH_TYPE_VISIBILITY;
    const mr = peer.mrReg(memory, WRITE_DST | type);
    const messages = peer.context.alloc(64);
    const messageMr = peer.mrReg(messages, MrUsage.SEND | MrUsage.RECV);
    const descriptor = mr.getDescriptor();
    const pcfg = rpma.peerCfgNew();
    pcfg.setDirectWriteToPmem(isPersistent);
    const told = new Uint8Array(28);
    told.set([0, 0, descriptor.length, pcfg.getDescriptorSize()]);
    told.set(descriptor, MR_AT);
    told.set(pcfg.getDescriptor(), MR_AT + descriptor.length);
    const ep = await peer.epListen(lab.ipv4, PORT);
    const ended = lab.guest.run(`${program} client ${lab.ipv4} ${PORT}`, SECONDS);
    // Heard when it is waited for.
    ended.catch(() => {});
    const request = await ep.nextConnReq();
    request.recv(messageMr, IN_AT, 8);
    const conn = request.connect(told);
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
    await completed(conn, WcOpcode.RECV);
    assert.equal(textAt(memory, HEARD_AT), 'written by librpma 1.3');
    const view = new DataView(memory.buffer, memory.byteOffset, BYTES);
    assert.equal(view.getBigUint64(WORD_AT, true), WORD);
    const words = new DataView(messages.buffer, messages.byteOffset, messages.length);
    words.setBigUint64(OUT_AT, words.getBigUint64(IN_AT, true) + 1n, true);
    conn.send(messageMr, OUT_AT, 8, COMPLETION_ALWAYS);
    assert.equal(await conn.nextEvent(), rpma.ConnEvent.CLOSED);
    assert.match(
      `${await ended}`,
      isPersistent ? /to be persistent, answer 42/ : /to be visible, answer 42/,
    );
    conn.delete();
    mr.dereg();
    await pmem?.close();
  });
}

async function ask(lab: Lab, program: string, usage = ''): Promise<void> {
  const server = lab.guest.spawn(`${program} server ${lab.guest.ipv4} ${PORT} ${usage}`);
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
