/** Floods and scans by hosts without a connection: size, destination and cost of the answers. */
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import {
  AccessFlag,
  QpType,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  openDevice,
  type Context,
  type RdmaConnection,
} from '../../host/index.js';
import type * as ManagerModule from '../../host/cm/manager.js';
import { freshName, Member } from '../support/member.js';
import { serveMemory } from '../support/serve-memory.js';
import { Random } from '../simulation/random.js';
import { Attacker, request } from './attacker.js';
import type { Attack } from './attack.js';

const SERVICE = 7476;
const PSK = 'a key of thirty-two random bytes';
const BYTES = 2 ** 20;

interface Scene {
  readonly server: Member;
  readonly address: string;
  readonly client: Context;
  readonly attacker: Attacker;
  connect(): Promise<RdmaConnection>;
}

/** A server at 127.1.30.net, an honest client at net + 1, the attacker at net + 2 or the server's. */
function flood(
  net: number,
  work: (scene: Scene) => Promise<void>,
  { isServers = false, auth = false } = {},
): () => Promise<number> {
  return async () => {
    const address = `127.1.30.${net}`;
    const server = await Member.open({ name: freshName(), address });
    const client = await openDevice({ address: `127.1.30.${net + 1}`, port: 0 });
    const attacker = await Attacker.open(`127.1.30.${net + (isServers ? 0 : 2)}`);
    try {
      await server.run(serveMemory, address, SERVICE, BYTES, auth ? PSK : '');
      const options = auth ? { auth: { psk: Buffer.from(PSK) } } : {};
      await work({
        ...{ server, address, client, attacker },
        connect: () => connect({ address, port: SERVICE }, { context: client, ...options }),
      });
      return attacker.sent;
    } finally {
      attacker.close();
      await client.close();
      server.kill();
      await server.ended;
    }
  };
}

/** Milliseconds of `count` WRITEs of 1 MiB, one after the other. */
async function writeMillis(
  { server }: Scene,
  { qp, pd, sendCq, context }: RdmaConnection,
  count: number,
): Promise<number> {
  const [addr, rkey] = await server.run(async ({ kept }) => {
    while (!kept.mr) await new Promise((resolve) => setTimeout(resolve, 10));
    return [String(kept.mr.addr), kept.mr.rkey] as const;
  });
  const mr = pd.regMr(context.alloc(BYTES), AccessFlag.LOCAL_WRITE);
  const began = performance.now();
  for (let index = 0; index < count; index++) {
    qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: mr.addr, length: BYTES, lkey: mr.lkey }],
      rdma: { remoteAddr: BigInt(addr), rkey },
    });
    const [completion] = await sendCq.wait();
    assert.is(WcStatusName[completion!.status], 'SUCCESS');
  }
  return performance.now() - began;
}

/** A packet for queue pair `qpn`, BTH and what follows. */
function packetFor(
  { attacker, address }: Scene,
  opcode: number,
  qpn: number,
  rest: Uint8Array,
  psn = 0,
): Buffer {
  const packet = Buffer.alloc(12 + rest.length + 4);
  packet[0] = opcode;
  packet.writeUInt16BE(0xffff, 2);
  packet.writeUInt32BE(qpn, 4);
  packet.writeUInt32BE(psn, 8);
  packet.set(rest, 12);
  return attacker.sealed(packet, address);
}

const NOTIFICATIONS_PER_SECOND = 5000;
const WRITES = 16;

/** Management datagrams of every class and method, to queue pairs 0 and 1. */
function datagrams(scene: Scene, random: Random, count: number): Buffer[] {
  return Array.from({ length: count }, (_, index) => {
    const length = index % 8 === 0 ? random.below(400) : 256;
    const rest = Buffer.alloc(8 + length);
    rest.writeUInt32BE(index % 3 === 0 ? random.u32() : 0x80010000, 0);
    rest.writeUInt32BE(random.below(3), 4);
    for (let at = 8; at < rest.length; at++) rest[at] = random.below(256);
    if (length >= 24 && index % 4 !== 0) {
      rest[8] = 1;
      // Subnet management, administration, performance, and any other class.
      rest[9] = random.pick([0x01, 0x81, 0x03, 0x04, 0x07, 0x07, random.below(256)]);
      rest[10] = rest[9] === 7 ? 2 : 1;
      rest[11] = random.pick([0x01, 0x02, 0x03, 0x81, random.below(256)]);
      if (rest[9] === 7) rest.writeUInt16BE(0x10 + random.below(16), 8 + 16);
    }
    return packetFor(scene, Opcode.UD_SEND_ONLY, random.below(2), rest);
  });
}

export const FLOOD_ATTACKS: readonly Attack[] = [
  {
    name: 'forged congestion notifications slow a connection by less than 20 times, and end nothing',
    position: 'forged source',
    run: flood(
      1,
      async (scene) => {
        const { attacker } = scene;
        const connection = await scene.connect();
        await writeMillis(scene, connection, 4);
        const before = await writeMillis(scene, connection, WRITES);
        const stop = new AbortController();
        // To the sender of the WRITEs, with the address of its peer.
        const { local } = connection.context;
        const cnp = Buffer.alloc(12 + 16 + 4);
        cnp[0] = Opcode.CNP;
        cnp.writeUInt16BE(0xffff, 2);
        cnp[4] = 0x40;
        cnp.writeUIntBE(connection.qp.qpNum, 5, 3);
        const packet = attacker.sealed(cnp, `${local.gid}`, local.port);
        const flooding = attacker.flood(`${local.gid}`, () => packet, {
          perSecond: NOTIFICATIONS_PER_SECOND,
          stop: stop.signal,
          port: local.port,
        });
        await sleep(200);
        const after = await writeMillis(scene, connection, WRITES);
        stop.abort();
        await flooding;
        const { cnpsReceived } = connection.context.counters();
        assert.ok(Number(cnpsReceived) > 100, `${cnpsReceived} notifications were taken`);
        // Measured: 30 to 45 ms, then 85 to 150 ms; the window is never less than four packets.
        assert.ok(after < 20 * before + 500, `${before} ms, then ${after} ms`);
        const later = await writeMillis(scene, connection, WRITES);
        assert.ok(later < 5 * before + 500, `${before} ms, afterwards ${later} ms`);
      },
      { isServers: true },
    ),
  },
  {
    name: 'datagrams of any class to queue pairs 0 and 1 bring no answer longer than themselves',
    position: 'any host',
    run: flood(5, async (scene) => {
      const { attacker, address, server } = scene;
      const packets = datagrams(scene, new Random(5), 6000);
      let [asked, answered] = [0, 0];
      attacker.onPacket = ({ length }) => void (answered += length);
      for (const { length } of packets) asked += length;
      await attacker.flood(address, (index) => packets[index], { perSecond: 10_000 });
      await sleep(1000);
      assert.ok(attacker.received < packets.length, `${attacker.received} answers`);
      assert.ok(answered < asked, `${answered} bytes for ${asked}`);
      const failure = await server.run(({ context }) => String(context.failure));
      assert.is(failure, 'undefined');
      await (await scene.connect()).close();
    }),
  },
  {
    name: 'no message of the connection manager brings more or longer ones to a forged source',
    position: 'forged source',
    run: flood(9, async (scene) => {
      const { attacker, address } = scene;
      const fields = request(attacker.address, { address, port: SERVICE });
      const names = 'REQ,MRA,REJ,REP,RTU,DREQ,DREP,LAP,APR,SIDR_REQ,SIDR_REP,AUTH_REQ,AUTH_REP';
      for (const name of names.split(',')) {
        const packet = attacker.message(address, name as 'REQ', { ...fields, localQpn: 0x9000 });
        let [answers, bytes] = [0, 0];
        attacker.onPacket = ({ length }) => void (answers++, (bytes += length));
        await attacker.send(packet, address);
        await sleep(400);
        // A REP is sent three times, in 2 to 4 s: its own attack counts them.
        assert.ok(answers <= 1, `${name}: ${answers} answers within 400 ms`);
        assert.ok(bytes <= packet.length, `${name}: ${bytes} bytes for ${packet.length}`);
      }
    }),
  },
  {
    name: 'a flood of AUTH_REQs keeps nothing at the listener, and honest clients connect meanwhile',
    position: 'any host',
    run: flood(
      13,
      async (scene) => {
        const { attacker, address, server } = scene;
        await (await scene.connect()).close();
        const kept = (): Promise<number> =>
          server.run(async ({ context, load }) => {
            const { Manager } = (await load('build/host/cm/manager.js')) as typeof ManagerModule;
            return Manager.of(context).core.connections.size;
          });
        const keyId = await server.run(async ({ load }, psk) => {
          const { checkAuth } = (await load('build/host/cm/auth-option.js')) as {
            checkAuth: (auth: object) => { keys: { id: bigint }[] };
          };
          return String(checkAuth({ psk: Buffer.from(psk) }).keys[0]!.id);
        }, PSK);
        const { serviceId } = request(attacker.address, { address, port: SERVICE });
        const packets = Array.from({ length: 64 }, (_, index) =>
          attacker.message(address, 'AUTH_REQ', {
            ...{ serviceId: serviceId!, keyId: BigInt(keyId), localCommId: index + 1 },
            nonce: crypto.getRandomValues(new Uint8Array(32)),
          }),
        );
        const stop = new AbortController();
        const flooding = attacker.flood(address, (index) => packets[index % 64], {
          perSecond: 10_000,
          stop: stop.signal,
        });
        const before = await kept();
        const times: number[] = [];
        for (let client = 0; client < 3; client++) {
          const began = performance.now();
          await (await scene.connect()).close();
          times.push(performance.now() - began);
        }
        assert.ok(attacker.received > 100, `${attacker.received} AUTH_REPs`);
        stop.abort();
        await flooding;
        assert.ok((await kept()) <= before + 3, 'connections that are kept');
        assert.ok(Math.max(...times) < 5000, `${times.map(Math.round)} ms`);
      },
      { auth: true },
    ),
  },
  {
    name: 'a scan of all queue pair numbers from another address gets no answer',
    position: 'any host',
    run: flood(17, async (scene) => {
      const { attacker, address, server } = scene;
      const connection = await scene.connect();
      const serverQpn = await server.run(async ({ kept }) => {
        while (!kept.qp) await new Promise((resolve) => setTimeout(resolve, 10));
        return kept.qp.qpNum;
      });
      const first = (serverQpn & 0xff0000) >>> 0;
      const opcodes = [Opcode.RC_SEND_ONLY, Opcode.RC_RDMA_READ_REQUEST, Opcode.RC_ACKNOWLEDGE];
      for (const opcode of opcodes) {
        const rest = Buffer.alloc(opcode === Opcode.RC_ACKNOWLEDGE ? 4 : 16);
        const scan = (index: number): Buffer | undefined =>
          index < 65_536 ? packetFor(scene, opcode, first + index, rest) : undefined;
        await attacker.flood(address, scan, { perSecond: 60_000 });
      }
      await sleep(300);
      assert.is(attacker.received, 0, 'answers');
      await writeMillis(scene, connection, 1);
    }),
  },
  {
    name: 'datagrams with guessed Q_Keys reach no UD queue pair, and get no answer',
    position: 'any host',
    run: flood(21, async (scene) => {
      const { attacker, address, server } = scene;
      const qkey = 0x1badcafe;
      const count = 2 ** 13;
      const qpn = await server.run(
        ({ verbena, context, kept }, type, key) => {
          const cq = context.createCq(64);
          const pd = context.allocPd();
          kept.qp = pd.createQp({ qpType: type, sendCq: cq, recvCq: cq });
          kept.qp.modify({ qpState: verbena.QpState.INIT, qkey: key, pkeyIndex: 0, portNum: 1 });
          kept.qp.modify({ qpState: verbena.QpState.RTR });
          const { addr, lkey } = pd.regMr(context.alloc(128), 1);
          kept.qp.postRecv({ wrId: 1, sgList: [{ addr, length: 128, lkey }] });
          return kept.qp.qpNum;
        },
        QpType.UD as number,
        qkey,
      );
      const to = (key: number): Buffer => {
        const rest = Buffer.alloc(8 + 16);
        rest.writeUInt32BE(key >>> 0, 0);
        return packetFor(scene, Opcode.UD_SEND_ONLY, qpn, rest);
      };
      const received = (): Promise<number> =>
        server.run(({ kept }) => kept.qp.recvCq.poll(4).length);
      const guess = (index: number): Buffer | undefined =>
        index < count ? to(qkey ^ (index + 1)) : undefined;
      await attacker.flood(address, guess, { perSecond: 20_000 });
      await sleep(200);
      assert.is(await received(), 0, 'datagrams with a wrong Q_Key');
      assert.is(attacker.received, 0);
      await attacker.send(to(qkey), address);
      await sleep(300);
      assert.is(await received(), 1, 'the datagram with the right one');
    }),
  },
];
