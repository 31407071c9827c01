/**
 * librpma's own examples between two Linux machines, and the same through our API: the same messages
 * in the same order, with the same bytes, but for numbers that chance decides.
 */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode, OpcodeName } from '#build/abi.js';
import { parseMad } from '../../../host/cm/mad.js';
import { Endpoint, openDevice, rpma, type Context } from '../../../host/index.js';
import { LoopbackNetwork } from '../../../host/link/loopback.js';
import { pcapLink, readPcap } from '../../../host/link/capture/pcap.js';
import { vectors } from '../../support/paths.js';

const { COMPLETION_ALWAYS, COMPLETION_ON_ERROR } = rpma.Flag;
const { MrUsage, FlushType } = rpma;
/** As in the captures. */
const SERVER = '10.88.0.2';
const CLIENT = '10.88.0.3';
const PORT = 7471;
const BTH = 12;
const DETH = 8;
const AETH = 4;
const RETH = 16;
const ICRC = 4;
/** Of a REQ's private data: rdma_cm's own. */
const IP_CM = 36;
const HELLO = 1024;

/** Fields of a connection message that are neither random nor an address. */
const SAID = [
  'responderResources',
  'initiatorDepth',
  'flowControl',
  'retryCount',
  'rnrRetryCount',
  'pathMtu',
  'maxCmRetries',
  'remoteCmResponseTimeout',
  'localCmResponseTimeout',
  'primaryLocalAckTimeout',
  'targetAckDelay',
  'failoverAccepted',
  'srq',
  'pkey',
];

/**
 * One line for each message, acknowledgements left out: they come when they like. A packet of a
 * connection has one line, even if a busy machine retransmits it.
 */
function story(pcap: Uint8Array): string[] {
  const lines: string[] = [];
  const seen = new Set<string>();
  for (const { payload, source } of readPcap(pcap)) {
    const opcode = payload[0]!;
    if (opcode === Opcode.RC_ACKNOWLEDGE) continue;
    // Of the BTH; the AckReq bit between them may differ.
    const [number, psn] = [payload.subarray(5, 8), payload.subarray(9, 12)];
    const packet = [opcode, ...number, ...psn].join();
    if (opcode !== Opcode.UD_SEND_ONLY && seen.has(packet)) continue;
    seen.add(packet);
    const from = source.gid.toString().includes('10.88.0.2') ? 'server' : 'client';
    lines.push(`${from} ${OpcodeName[opcode]} ${tell(opcode, payload)}`);
  }
  return lines;
}

function tell(opcode: number, payload: Uint8Array): string {
  const end = payload.length - ICRC - ((payload[1]! >> 4) & 3);
  const hex = (from: number): string => Buffer.from(payload.subarray(from, end)).toString('hex');
  const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
  switch (opcode) {
    case Opcode.UD_SEND_ONLY:
      return tellMad(payload.subarray(BTH + DETH, end));
    case Opcode.RC_RDMA_READ_REQUEST:
      return `${view.getUint32(BTH + 12)} bytes`;
    case Opcode.RC_RDMA_WRITE_ONLY:
      return hex(BTH + RETH);
    case Opcode.RC_RDMA_READ_RESPONSE_ONLY:
      return hex(BTH + AETH);
    default:
      return hex(BTH);
  }
}

function tellMad(mad: Uint8Array): string {
  const message = parseMad(mad);
  if (typeof message === 'string') throw new Error(message);
  const fields = message as unknown as Record<string, number>;
  const said = SAID.filter((name) => fields[name] !== undefined).map(
    (name) => `${name} ${fields[name]}`,
  );
  const own = message.name === 'REQ' ? message.privateData.slice(IP_CM) : message.privateData;
  // Addresses and keys are random: descriptors are masked.
  const told = own[2] === rpma.MR_DESCRIPTOR_SIZE ? maskDescriptor(own) : own;
  const text = Buffer.from(told ?? []).toString('hex');
  return `${message.name} ${said.join(' ')} ${text.replace(/(00)+$/, '')}`;
}

function maskDescriptor(bytes: Uint8Array): Uint8Array {
  const masked = bytes.slice();
  masked.fill(0xaa, 4, 12).fill(0xaa, 20, 24);
  return masked;
}

function capture(name: string): Uint8Array {
  return readFileSync(new URL(`linux/rpma-${name}.pcap`, vectors));
}

interface Ends {
  readonly server: rpma.Peer;
  readonly client: rpma.Peer;
  readonly connect: (options: ConnectOptions) => Promise<{ server: rpma.Conn; client: rpma.Conn }>;
}

interface ConnectOptions {
  readonly said?: Uint8Array;
  readonly asked?: Uint8Array;
  readonly cfg?: rpma.ConnCfg;
  readonly prepare?: (request: rpma.ConnReq) => void;
}

/** Plays an example; returns its story. */
async function play(work: (ends: Ends) => Promise<void>): Promise<string[]> {
  const network = new LoopbackNetwork();
  const chunks: Uint8Array[] = [];
  const sink = {
    write(bytes: Uint8Array) {
      chunks.push(bytes.slice());
      return true;
    },
    close: () => Promise.resolve(),
  };
  const open = (address: string, isTapped: boolean): Promise<Context> => {
    const link = network.link(Endpoint.parse(address, 4791));
    return openDevice({ link: isTapped ? pcapLink(link, sink) : link, rdAtomicMax: 128 });
  };
  // One side sees the whole exchange.
  const [here, there] = [await open(SERVER, true), await open(CLIENT, false)];
  const [server, client] = [rpma.peerNew(here), rpma.peerNew(there)];
  const ep = await server.epListen(SERVER, PORT);
  await work({
    server,
    client,
    async connect({ said, asked, cfg, prepare }) {
      const accepted = ep.nextConnReq(cfg).then((request) => {
        prepare?.(request);
        return request.connect(said);
      });
      const request = await client.connReqNew(SERVER, PORT, cfg);
      const made = { client: request.connect(asked), server: await accepted };
      for (const conn of [made.client, made.server]) {
        assert.is(await conn.nextEvent(), rpma.ConnEvent.ESTABLISHED);
        conn.flushMethod = 'appliance';
      }
      return made;
    },
  });
  await there.close();
  await here.close();
  return story(Buffer.concat(chunks));
}

async function end(first: rpma.Conn, second: rpma.Conn): Promise<void> {
  first.disconnect();
  assert.is(await second.nextEvent(), rpma.ConnEvent.CLOSED);
  assert.is(await first.nextEvent(), rpma.ConnEvent.CLOSED);
}

function text(string: string): Uint8Array {
  return new TextEncoder().encode(`${string}\0`);
}

function commonData(dataOffset: number, mr: Uint8Array, pcfg?: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(28);
  bytes.set([dataOffset, 0, mr.length, pcfg?.length ?? 0]);
  bytes.set(mr, 4);
  if (pcfg) bytes.set(pcfg, 4 + mr.length);
  return bytes;
}

test('01: a connection, and its private data', async () => {
  const said = await play(async ({ connect }) => {
    const { server, client } = await connect({
      said: text('Hello client!'),
      asked: text('Hello server!'),
    });
    await end(server, client);
  });
  assert.equal(said, story(capture('01-connection')));
});

test('05: write, and flush by the appliance method', async () => {
  const said = await play(async ({ server, client, connect }) => {
    const target = server.context.alloc(HELLO);
    const mr = server.mrReg(target, MrUsage.WRITE_DST | MrUsage.FLUSH_TYPE_VISIBILITY);
    const pcfg = rpma.peerCfgNew();
    const data = commonData(0, mr.getDescriptor(), pcfg.getDescriptor());
    const conn = await connect({ said: data });
    const source = client.context.alloc(HELLO);
    source.set(text('Hello world!'));
    const src = client.mrReg(source, MrUsage.WRITE_SRC);
    const told = conn.client.getPrivateData();
    conn.client.applyRemotePeerCfg(rpma.peerCfgFromDescriptor(told.subarray(25)));
    const dst = rpma.mrRemoteFromDescriptor(told.subarray(4, 25));
    conn.client.write(dst, 0, src, 0, HELLO, COMPLETION_ON_ERROR);
    conn.client.flush(dst, 0, HELLO, FlushType.VISIBILITY, COMPLETION_ALWAYS, 7);
    assert.is((await conn.client.getCq().next()).wrId, 7n);
    await end(conn.client, conn.server);
  });
  assert.equal(said, story(capture('05-flush-to-persistent')));
});

test('07: words behind a tail that moves by a fenced inline write', async () => {
  const recorded = story(capture('07-atomic-write'));
  // The words are what the capture has: WRITEs of other than 8 bytes.
  const written = recorded.filter((line) => line.includes('WRITE_ONLY'));
  const words = written
    .map((line) => Buffer.from(line.split(' ')[2]!, 'hex').toString())
    .filter((_, index) => index % 2 === 0)
    .map((word) => word.replace(/\0$/, ''));
  const said = await play(async ({ server, client, connect }) => {
    const log = server.context.alloc(16 + HELLO);
    log[8] = 16;
    const usage = MrUsage.WRITE_DST | MrUsage.READ_SRC | MrUsage.FLUSH_TYPE_VISIBILITY;
    const conn = await connect({ said: commonData(8, server.mrReg(log, usage).getDescriptor()) });
    const local = client.context.alloc(HELLO);
    const mr = client.mrReg(local, MrUsage.WRITE_SRC | MrUsage.READ_DST);
    const told = conn.client.getPrivateData();
    const remote = rpma.mrRemoteFromDescriptor(told.subarray(4, 25));
    const cq = conn.client.getCq();
    conn.client.read(mr, 0, remote, 8, 8, COMPLETION_ALWAYS);
    await cq.next();
    const used = local.slice(0, 8);
    const { VISIBILITY } = FlushType;
    for (const word of words) {
      const bytes = text(word);
      local.set(bytes);
      conn.client.write(remote, used[0]!, mr, 0, bytes.length, COMPLETION_ON_ERROR);
      conn.client.flush(remote, used[0]!, bytes.length, VISIBILITY, COMPLETION_ON_ERROR);
      used[0]! += bytes.length;
      conn.client.atomicWrite(remote, 8, used, COMPLETION_ON_ERROR);
      conn.client.flush(remote, 8, 8, VISIBILITY, COMPLETION_ALWAYS);
      await cq.next();
    }
    await end(conn.client, conn.server);
  });
  // A READ of the appliance method returns arbitrary bytes.
  assert.equal(said.map(withoutRead), recorded.map(withoutRead));
});

test('09: the general-purpose method: a protobuf message each way', async () => {
  const said = await play(async ({ server, client, connect }) => {
    const target = server.context.alloc(HELLO);
    const mr = server.mrReg(target, MrUsage.WRITE_DST | MrUsage.FLUSH_TYPE_VISIBILITY);
    const messages = (peer: rpma.Peer) =>
      peer.mrReg(peer.context.alloc(HELLO), MrUsage.SEND | MrUsage.RECV);
    const [there, here] = [messages(server), messages(client)];
    const cfg = rpma.connCfgNew();
    cfg.setRcqSize(1);
    const size = rpma.GPSPM_MESSAGE_BYTES;
    const places = { sendOffset: 0, recvOffset: size };
    const conn = await connect({
      cfg,
      said: commonData(0, mr.getDescriptor()),
      prepare: (request) => request.recv(there, size, size),
    });
    const source = client.context.alloc(HELLO);
    source.set(text('Hello world!'));
    const src = client.mrReg(source, MrUsage.WRITE_SRC);
    const dst = rpma.mrRemoteFromDescriptor(conn.client.getPrivateData().subarray(4, 25));
    conn.client.write(dst, 0, src, 0, HELLO, COMPLETION_ON_ERROR);
    const flushed = rpma.requestFlush(conn.client, { mr: here, ...places }, 0, HELLO, 0xf01dn);
    const wc = await conn.server.getRcq()!.next();
    const received = there.getPtr().slice(size, size + wc.byteLen);
    const persisted: number[][] = [];
    await rpma.answerFlushRequest(
      conn.server,
      { mr: there, ...places },
      received,
      HELLO,
      async (offset, length) => void persisted.push([offset, length]),
    );
    await flushed;
    assert.equal(persisted, [[0, HELLO]]);
    await end(conn.client, conn.server);
  });
  assert.equal(said, story(capture('09-flush-to-persistent-GPSPM')));
});

test('descriptors in captures are read, and written again as they were', () => {
  for (const name of [
    '05-flush-to-persistent',
    '07-atomic-write',
    '09-flush-to-persistent-GPSPM',
  ]) {
    const reply = [...readPcap(capture(name))]
      .filter(({ payload }) => payload[0] === Opcode.UD_SEND_ONLY)
      .map(({ payload }) => parseMad(payload.subarray(BTH + DETH, payload.length - ICRC)))
      .find((message) => typeof message !== 'string' && message.name === 'REP');
    const told = (reply as { privateData: Uint8Array }).privateData;
    const remote = rpma.mrRemoteFromDescriptor(told.subarray(4, 25));
    assert.is(remote.getSize() >= HELLO, true, name);
    assert.ok(remote.getFlushType() > 0, name);
    const pcfg = rpma.peerCfgFromDescriptor(told.subarray(25));
    assert.equal(pcfg.getDescriptor(), told.slice(25, 26));
  }
});

function withoutRead(line: string): string {
  return line.replace(/(READ_RESPONSE_ONLY) .*/, '$1');
}

test.run();
