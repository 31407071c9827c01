/** Attacks on established connections, packet by packet, against real processes. */
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import { QpState, QpType, WrOpcode, connect, openDevice } from '../../host/index.js';
import type { RdmaConnection } from '../../host/index.js';
import type * as ManagerModule from '../../host/cm/manager.js';
import { freshName, Member } from '../support/member.js';
import { Attacker } from './attacker.js';
import type { Attack } from './attack.js';

const SERVICE = 7472;
const IN_FLIGHT = 64;
const MESSAGE_BYTES = 64;
const PSNS = 2 ** 24;
/** Packets that are kept ahead of the expected one. */
const KEPT = 128;
const GUESSES = 1000;
const CAP = { maxSendWr: 256, maxRecvWr: 256, reorderPackets: 128 };

/** Attacker's knowledge of a server's connection: more than a real one has, except the PSNs. */
interface Target {
  readonly server: Member;
  readonly address: string;
  readonly connection: RdmaConnection;
  /** Numbers of both queue pairs. */
  readonly serverQpn: number;
  /** Sends with the client's address, from another port. */
  readonly attacker: Attacker;
}

/** A server in a process of its own, and a client in this one, connected. */
async function withConnection(
  address: string,
  from: string,
  work: (target: Target) => Promise<void>,
  qpType: number = QpType.RC,
): Promise<number> {
  const server = await Member.open({ name: freshName(), address });
  try {
    await server.run(
      async ({ verbena, context, kept }, at, port, type, cap) => {
        const qp = { qpType: type, cap };
        const listener = await verbena.listen({ address: at, port }, { context });
        void (async () => {
          for await (const { qp: made } of listener.connections({ qp })) kept.qp = made;
        })();
      },
      address,
      SERVICE,
      qpType,
      CAP,
    );
    const context = await openDevice({ address: from, port: 0 });
    const attacker = await Attacker.open(from);
    try {
      const connection = await connect(
        { address, port: SERVICE },
        { context, qp: { qpType, cap: CAP } },
      );
      const serverQpn = await server.run(async ({ context, load, kept }) => {
        const { Manager } = (await load('build/host/cm/manager.js')) as typeof ManagerModule;
        while (!kept.qp) await new Promise((resolve) => setTimeout(resolve, 10));
        return [...Manager.of(context).core.connections.values()][0]!.localQpn;
      });
      await work({ server, address, connection, serverQpn, attacker });
    } finally {
      attacker.close();
      await context.close();
    }
    return attacker.sent;
  } finally {
    server.kill();
    await server.ended;
  }
}

/** Receives of a message each at the server, in `kept.memory` one after the other. */
function postReceives(server: Member): Promise<void> {
  return server.run(
    ({ context, kept }, count, bytes) => {
      kept.memory = context.alloc(count * bytes);
      const { addr, lkey } = kept.qp.pd.regMr(kept.memory, 1);
      for (let wrId = 0; wrId < count; wrId++) {
        const at = addr + BigInt(wrId * bytes);
        kept.qp.postRecv({ wrId, sgList: [{ addr: at, length: bytes, lkey }] });
      }
    },
    2 * KEPT,
    MESSAGE_BYTES,
  );
}

/** A packet for the server's queue pair, as its peer would send it. */
function packetFor(
  { attacker, address, serverQpn }: Target,
  opcode: number,
  psn: number,
  rest: Uint8Array = new Uint8Array(0),
): Buffer {
  const packet = Buffer.alloc(12 + rest.length + 4);
  packet[0] = opcode;
  packet.writeUInt16BE(0xffff, 2);
  packet.writeUInt32BE(serverQpn, 4);
  packet.writeUInt32BE(psn & (PSNS - 1), 8);
  packet.set(rest, 12);
  return attacker.sealed(packet, address);
}

/** A syndrome, and MSN 0: what a young connection's peer has counted. */
function aeth(syndrome: number): Uint8Array {
  return Uint8Array.of(syndrome, 0, 0, 0);
}

export const TRANSPORT_ATTACKS: readonly Attack[] = [
  {
    name: 'a NAK for one PSN of each 64, all round the circle, ends no queue pair',
    position: 'forged source',
    run: () =>
      withConnection('127.1.22.1', '127.1.22.2', async (target) => {
        const { server, attacker, connection, address } = target;
        // Requests that stay in flight: no receive is posted for them.
        await server.run(
          ({ verbena, context, kept }, count, bytes) => {
            const memory = context.alloc(bytes);
            const { addr, lkey } = kept.qp.pd.regMr(memory, 0);
            for (let wrId = 0; wrId < count; wrId++) {
              const sgList = [{ addr, length: bytes, lkey }];
              kept.qp.postSend({ wrId, opcode: verbena.WrOpcode.SEND, sgList });
            }
          },
          IN_FLIGHT,
          MESSAGE_BYTES,
        );
        const first = Math.floor(Math.random() * PSNS);
        const nak = (index: number): Buffer | undefined =>
          index * IN_FLIGHT < PSNS
            ? packetFor(
                target,
                Opcode.RC_ACKNOWLEDGE,
                first + index * IN_FLIGHT,
                aeth(NakCode.REMOTE_ACCESS_ERROR),
              )
            : undefined;
        await attacker.flood(address, nak, { perSecond: 50_000 });
        const memory = connection.context.alloc(IN_FLIGHT * MESSAGE_BYTES);
        const { addr, lkey } = connection.qp.pd.regMr(memory, 1);
        for (let wrId = 0; wrId < IN_FLIGHT; wrId++) {
          const at = addr + BigInt(wrId * MESSAGE_BYTES);
          connection.qp.postRecv({ wrId, sgList: [{ addr: at, length: MESSAGE_BYTES, lkey }] });
        }
        let received = 0;
        for (let turn = 0; turn < 500 && received < IN_FLIGHT; turn++) {
          received += connection.recvCq.poll(IN_FLIGHT).length;
          await sleep(10);
        }
        assert.is(received, IN_FLIGHT, 'messages that arrive after the sweep');
      }),
  },
  {
    name: 'a SEND for one PSN of each 128 ahead of the expected one is delivered to no application',
    position: 'forged source',
    run: () =>
      withConnection('127.1.22.3', '127.1.22.4', async (target) => {
        const { server, attacker, connection, address } = target;
        await postReceives(server);
        const first = connection.qp.query().sqPsn! + KEPT / 2;
        const forged = Buffer.alloc(MESSAGE_BYTES, 'forged');
        const send = (index: number): Buffer | undefined =>
          index * KEPT < PSNS
            ? packetFor(target, Opcode.RC_SEND_ONLY, first + index * KEPT, forged)
            : undefined;
        await attacker.flood(address, send, { perSecond: 50_000 });
        const memory = connection.context.alloc(MESSAGE_BYTES);
        memory.set(Buffer.alloc(MESSAGE_BYTES, 'honest'));
        const { addr, lkey } = connection.qp.pd.regMr(memory, 0);
        const sgList = [{ addr, length: MESSAGE_BYTES, lkey }];
        for (let wrId = 0; wrId < 2 * KEPT; wrId++) {
          connection.qp.postSend({ wrId, opcode: WrOpcode.SEND, sgList });
        }
        const texts = await server.run(
          async ({ kept, verbena }, count, bytes) => {
            const found = new Map<string, number>();
            for (let turn = 0, seen = 0; turn < 500 && seen < count; turn++) {
              const completions = kept.qp.recvCq.poll(64);
              seen += completions.length;
              for (const { wrId, status } of completions) {
                const at = Number(wrId) * bytes;
                const text = Buffer.from(kept.memory.subarray(at, at + 6)).toString();
                const told = status === verbena.WcStatus.SUCCESS ? text : `status ${status}`;
                found.set(told, (found.get(told) ?? 0) + 1);
              }
              await new Promise((resolve) => setTimeout(resolve, 10));
            }
            return [...found];
          },
          2 * KEPT,
          MESSAGE_BYTES,
        );
        assert.equal(texts, [['honest', 2 * KEPT]]);
      }),
  },
  {
    name: 'UC: WRITEs with 1,000 guessed keys reach at most 16 of them',
    position: 'forged source',
    run: () =>
      withConnection(
        '127.1.22.5',
        '127.1.22.6',
        async (target) => {
          const { server, attacker, address } = target;
          const key = await server.run(({ verbena, context, kept }) => {
            kept.memory = context.alloc(4096);
            const { LOCAL_WRITE, REMOTE_WRITE } = verbena.AccessFlag;
            const mr = kept.qp.pd.regMr(kept.memory, LOCAL_WRITE | REMOTE_WRITE);
            return { addr: String(mr.addr), rkey: mr.rkey };
          });
          // The right key comes last: an attacker with more patience than luck.
          const write = (index: number): Buffer | undefined => {
            if (index >= GUESSES) return undefined;
            const rest = Buffer.alloc(16 + MESSAGE_BYTES, 'forged');
            rest.writeBigUInt64BE(BigInt(key.addr), 0);
            rest.writeUInt32BE((key.rkey ^ ((GUESSES - 1 - index) << 8)) >>> 0, 8);
            rest.writeUInt32BE(MESSAGE_BYTES, 12);
            return packetFor(target, Opcode.UC_RDMA_WRITE_ONLY, index, rest);
          };
          await attacker.flood(address, write, { perSecond: 20_000 });
          await sleep(500);
          const text = await server.run(({ kept }) => kept.memory.slice(16, 22).join());
          assert.is(text, '0,0,0,0,0,0', 'memory behind a guessed key');
        },
        QpType.UC,
      ),
  },
  {
    name: 'a peer that requests a READ of 16 MiB and is silent gets 4 MiB',
    position: 'peer',
    run: () =>
      withConnection('127.1.22.7', '127.1.22.8', async (target) => {
        const { server, attacker, connection, address } = target;
        const bytes = 16 * 2 ** 20;
        const key = await server.run(({ verbena, context, kept }, length) => {
          const mr = kept.qp.pd.regMr(context.alloc(length), verbena.AccessFlag.REMOTE_READ);
          return { addr: String(mr.addr), rkey: mr.rkey };
        }, bytes);
        const rest = Buffer.alloc(16);
        rest.writeBigUInt64BE(BigInt(key.addr), 0);
        rest.writeUInt32BE(key.rkey, 8);
        rest.writeUInt32BE(bytes, 12);
        const psn = connection.qp.query().sqPsn!;
        // The peer's own engine answers probes: it is taken away, and its address kept.
        connection.qp.modify({ qpState: QpState.ERR });
        const sentBytes = (): Promise<number> =>
          server.run(({ context }) => Number(context.counters().sentBytes));
        const before = await sentBytes();
        await attacker.send(packetFor(target, Opcode.RC_RDMA_READ_REQUEST, psn, rest), address);
        await sleep(1500);
        const answered = (await sentBytes()) - before;
        assert.ok(answered > 0, 'the READ is answered');
        assert.ok(answered < 5 * 2 ** 20, `${answered} bytes for one packet`);
      }),
  },
  {
    name: 'RNR NAKs for a READ end the connection that they come over, at once',
    position: 'peer',
    run: () =>
      withConnection('127.1.22.9', '127.1.22.10', async (target) => {
        const { server, attacker, connection, address } = target;
        // The peer's engine is silent, and the attacker speaks for it.
        const psn = await server.run(({ kept }) => kept.qp.query().sqPsn!);
        connection.qp.modify({ qpState: QpState.ERR });
        await server.run(({ verbena, context, kept }) => {
          const { addr, lkey } = kept.qp.pd.regMr(context.alloc(64), 1);
          kept.qp.postSend({
            wrId: 1,
            opcode: verbena.WrOpcode.RDMA_READ,
            sgList: [{ addr, length: 64, lkey }],
            rdma: { remoteAddr: 0n, rkey: 1 },
            sendFlags: verbena.SendFlag.SIGNALED,
          });
        });
        const rnr = packetFor(target, Opcode.RC_ACKNOWLEDGE, psn, aeth(0x20));
        for (let time = 0; time < 20; time++) {
          await attacker.send(rnr, address);
          await sleep(20);
        }
        const status = await server.run(
          ({ kept, verbena }) => verbena.WcStatusName[kept.qp.sendCq.poll(1)[0]?.status ?? -1],
        );
        assert.is(status, 'BAD_RESP_ERR');
      }),
  },
];
