/**
 * Attacks on authenticated connections by a relay on the path (host/guide/CONNECTIONS.md). The
 * relay has seen all packets and computes right ICRCs; it lacks the pre-shared key.
 */
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { NakCode, Opcode } from '#build/abi.js';
import type { Message } from '../../host/cm/mad.js';
import type { Attack } from './attack.js';
import { isData, messageOf, onPath, PSK, type OnPath, type Seen } from './relay.js';
import { until } from '../support/until.js';

const [BTH, ICRC, TRAILER, TAG] = [12, 4, 24, 16];
/** Byte of the BTH with FECN and BECN: a router changes it, and the tag leaves it out. */
const CONGESTION = 4;
const QPN = 5;
const ROUNDS = 60;
/** Of the packets that are changed: the others let the exchange go on. */
const CHANCE = 0.1;

/** Flips one bit from byte `first` on; the ICRC is made anew at delivery. */
function flipped({ relay }: OnPath, packet: Buffer, first: number): Buffer {
  const changed = Buffer.from(packet);
  let at = CONGESTION;
  while (at === CONGESTION) at = first + relay.random.below(packet.length - ICRC - first);
  changed[at]! ^= 1 << relay.random.below(8);
  return changed;
}

function withoutTrailer(packet: Buffer): Buffer {
  return Buffer.from(packet.subarray(0, -TRAILER));
}

function to(packet: Buffer, qpn: number): Buffer {
  const changed = Buffer.from(packet);
  changed.writeUIntBE(qpn, QPN, 3);
  return changed;
}

/** A connected client; the exchange before the attack has nothing wrong with it. */
async function connected(scene: OnPath, encrypt?: boolean): Promise<void> {
  const choice = encrypt === undefined ? {} : { encrypt };
  assert.is(await scene.connect({ psk: PSK, ...choice }), undefined);
  await scene.exchange(0, 4);
  assert.is((await scene.dropped()).tags, 0, 'dropped packets before the attack');
}

/** Runs the exchange while packets of data are delivered as `forge` says. */
function duringExchange(
  net: number,
  forge: (scene: OnPath, seen: Seen) => readonly Buffer[],
  least: 'tags' | 'replays',
  encrypt = false,
): () => Promise<number> {
  return () =>
    onPath(net, { psk: PSK, encrypt }, async (scene) => {
      const { relay } = scene;
      await connected(scene);
      relay.tamper = (seen) => (isData(seen.packet) ? forge(scene, seen) : [seen.packet]);
      await scene.exchange(0, ROUNDS);
      await sleep(50);
      await scene.judge(0);
      const dropped = await scene.dropped();
      assert.ok(dropped[least] > 0, `nothing was dropped: ${JSON.stringify(dropped)}`);
      assert.is(dropped.ended, 0, 'connections that ended');
    });
}

/** State of the server once it has accepted `least` connections: RTUs may be in flight for 5 s. */
async function stateAfter(scene: OnPath, least: number) {
  const end = performance.now() + 5000;
  for (;;) {
    const state = await scene.call('server', 'state');
    if (state.accepted >= least || performance.now() > end) return state;
    await sleep(20);
  }
}

function mayForge({ relay }: OnPath): boolean {
  const isNow = relay.random.chance(CHANCE);
  if (isNow) relay.forged++;
  return isNow;
}

/** Forgeries of an attacker without the key, for a connection that it has watched. */
function madeUp({ relay }: OnPath, { packet }: Seen): Buffer[] {
  const bare = (opcode: number, rest: Uint8Array): Buffer => {
    const made = Buffer.concat([packet.subarray(0, BTH), rest, Buffer.alloc(ICRC)]);
    made[0] = opcode;
    made.writeUIntBE((packet.readUIntBE(9, 3) + 1) & 0xffffff, 9, 3);
    return made;
  };
  const aeth = (syndrome: number): Uint8Array => Uint8Array.of(syndrome, 0, 0, 1);
  const forged = [
    bare(Opcode.RC_ACKNOWLEDGE, aeth(0x1f)),
    bare(Opcode.RC_ACKNOWLEDGE, aeth(NakCode.REMOTE_ACCESS_ERROR)),
    bare(Opcode.RC_SEND_ONLY, Buffer.alloc(64, 'forged')),
    bare(Opcode.CNP, new Uint8Array(16)),
  ];
  // With a trailer: a tag of zeros, one of chance, and a number far ahead that must move no window.
  for (const number of [0xffn, 2n ** 40n, 2n ** 64n - 1n]) {
    for (const tag of [Buffer.alloc(TAG), randomBytes(TAG)]) {
      const counter = Buffer.alloc(8);
      counter.writeBigUInt64LE(number);
      for (const one of forged.slice(0, 4)) {
        const body = one.subarray(0, -ICRC);
        forged.push(Buffer.concat([body, counter, tag, Buffer.alloc(ICRC)]));
      }
    }
  }
  relay.forged += forged.length;
  return forged;
}

/** The same relay reaches its aim where nothing is authenticated: the attacks below are real. */
function control(net: number): Promise<number> {
  return onPath(net, {}, async (scene) => {
    assert.is(await scene.connect({}), undefined);
    await scene.exchange(0, 4);
    scene.relay.tamper = ({ packet }) => {
      const changed = Buffer.from(packet);
      const at = packet.indexOf('write ');
      if (at >= 0) changed.write('WRITE', at);
      return [changed];
    };
    const memory = await scene.call('server', 'memoryOf', 0);
    const fault = await scene.call('client', 'rounds', 0, memory, 4, 1);
    assert.is(fault, 'round 4: READ WRITE 4');
  });
}

const PACKETS: readonly Attack[] = [
  {
    name: 'one changed bit of an authenticated packet, wherever it is, has no effect',
    position: 'on path',
    run: async () => {
      await control(37);
      return duringExchange(
        1,
        (scene, { packet }) => [mayForge(scene) ? flipped(scene, packet, 0) : packet],
        'tags',
      )();
    },
  },
  {
    name: 'one changed bit of an encrypted packet, wherever it is, has no effect',
    position: 'on path',
    run: duringExchange(
      3,
      (scene, { packet }) => [mayForge(scene) ? flipped(scene, packet, 0) : packet],
      'tags',
      true,
    ),
  },
  {
    name: 'an authenticated packet without its trailer has no effect',
    position: 'on path',
    run: duringExchange(
      5,
      (scene, { packet }) => [mayForge(scene) ? withoutTrailer(packet) : packet],
      'tags',
    ),
  },
  {
    name: 'authenticated packets that are replayed, early or late, are executed once',
    position: 'on path',
    run: duringExchange(
      7,
      ({ relay }, { from, packet }) => {
        const past = relay.seen.filter((one) => one.from === from && isData(one.packet));
        relay.forged += 3;
        return [packet, packet, relay.random.pick(past).packet, relay.random.pick(past).packet];
      },
      'replays',
    ),
  },
  {
    name: 'authenticated packets that are reflected to their sender have no effect',
    position: 'on path',
    run: () =>
      onPath(9, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        await connected(scene);
        const numbers = {
          client: await scene.call('client', 'qpNum', 0),
          server: await scene.call('server', 'qpNum', 0),
        };
        relay.tamper = ({ from, packet }) => {
          if (isData(packet)) {
            relay.inject(to(packet, numbers[from]), from === 'client' ? 'server' : 'client');
          }
          return [packet];
        };
        await scene.exchange(0, ROUNDS);
        assert.ok((await scene.dropped()).tags > ROUNDS, 'reflected packets that were dropped');
      }),
  },
  {
    name: 'a packet of one authenticated connection has no effect on another one',
    position: 'on path',
    run: () =>
      onPath(11, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        for (let count = 0; count < 2; count++) {
          assert.is(await scene.connect({ psk: PSK }), undefined);
          await scene.exchange(count, 4);
        }
        const pairs = new Map<number, number>();
        for (const side of ['client', 'server'] as const) {
          const [one, two] = [
            await scene.call(side, 'qpNum', 0),
            await scene.call(side, 'qpNum', 1),
          ];
          pairs.set(one, two).set(two, one);
        }
        relay.tamper = ({ from, packet }) => {
          const other = isData(packet) ? pairs.get(packet.readUIntBE(QPN, 3)) : undefined;
          if (other !== undefined) relay.inject(to(packet, other), from);
          return [packet];
        };
        for (let turn = 0; turn < 4; turn++) await scene.exchange(turn % 2, ROUNDS / 4);
        for (const index of [0, 1]) await scene.judge(index);
        assert.ok((await scene.dropped()).tags > ROUNDS / 2, 'swapped packets that were dropped');
      }),
  },
  {
    name: 'an attacker that has seen all packets of an authenticated connection makes up none',
    position: 'on path',
    run: duringExchange(13, (scene, seen) => [...madeUp(scene, seen), seen.packet], 'tags'),
  },
  {
    name: 'packets of a key that was rotated away, replayed, have no effect',
    position: 'on path',
    run: () =>
      onPath(15, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        await connected(scene);
        for (let turn = 0; turn < 4; turn++) {
          const past = relay.seen.filter(({ packet }) => isData(packet));
          await scene.call('client', 'rotateKey', 0);
          await scene.exchange(0, 8);
          for (const { packet, from } of past) relay.inject(packet, from);
          await scene.exchange(0, 8);
        }
        const { replays, ended } = await scene.dropped();
        assert.ok(replays > 0, 'replayed packets that were dropped');
        assert.is(ended, 0);
      }),
  },
];

const HANDSHAKE: readonly Attack[] = [
  {
    name: 'without its nonces or its tag no REQ gets an authenticated peer to fall back',
    position: 'on path',
    run: () =>
      onPath(21, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        // A REQ without its trailer, and one in place of the AUTH_REQ; the next ones pass.
        const stripped = new Set<string>();
        relay.tamper = ({ packet }) => {
          const name = messageOf(packet)?.name;
          if (!name || stripped.has(name)) return [packet];
          stripped.add(name);
          if (packet.length <= 280) return name.startsWith('AUTH') ? [] : [packet];
          relay.forged++;
          return [Buffer.from(packet.subarray(0, 280))];
        };
        assert.is(await scene.connect({ psk: PSK }), undefined);
        assert.ok(stripped.has('REQ') && stripped.has('REP') && stripped.has('RTU'));
        await scene.exchange(0, 8);
        for (const side of ['client', 'server'] as const) {
          assert.is(await scene.call(side, 'isAuthenticated', 0), true, side);
        }
        assert.ok((await scene.dropped()).messages > 0, 'messages without a tag');
      }),
  },
  {
    name: 'a forged AUTH_REP that asks for no authentication gets no REQ without it',
    position: 'on path',
    run: () =>
      onPath(23, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        for (const reason of [0xff01, 0xff02, 0xff03, 1, 28]) {
          relay.tamper = ({ packet }) => {
            if (messageOf(packet)?.name !== 'AUTH_REP') return [packet];
            const forged = Buffer.from(packet);
            forged.writeUInt16BE(reason, 20 + 24 + 8);
            relay.forged++;
            return [forged];
          };
          assert.ok((await scene.connect({ psk: PSK }, 1)) !== undefined, `reason ${reason}`);
        }
        const requests = relay.seen.filter(({ packet }) => messageOf(packet)?.name === 'REQ');
        assert.is(requests.length, 0, 'REQs of the client');
        assert.is((await scene.call('server', 'state')).accepted, 0);
      }),
  },
  {
    name: 'a cleared wish to encrypt leads to no packet in plain text',
    position: 'on path',
    run: async () => {
      let forged = 0;
      for (const [index, [ours, theirs]] of [
        [true, false],
        [false, true],
      ].entries()) {
        forged += await onPath(25 + 2 * index, { psk: PSK, encrypt: theirs! }, async (scene) => {
          const { relay } = scene;
          relay.tamper = ({ packet }) => {
            const message = messageOf(packet);
            const changed = Buffer.from(packet);
            // The last bit of byte 32 of an AUTH_REQ, of byte 12 of an AUTH_REP.
            const at = message?.name === 'AUTH_REQ' ? 32 : 12;
            if (message?.name.startsWith('AUTH')) changed[20 + 24 + at]! &= 0xfe;
            if (!changed.equals(packet)) relay.forged++;
            return [changed];
          };
          const failed = await scene.connect({ psk: PSK, encrypt: ours! }, 1);
          if (failed === undefined) await scene.exchange(0, 8);
          const readable = relay.seen.filter(({ packet }) => packet.includes('write '));
          assert.is(readable.length, 0, 'packets with plain text');
        });
      }
      assert.ok(forged > 0);
      return forged;
    },
  },
  {
    name: 'a recorded authenticated connection, sent again from its first message on, opens nothing',
    position: 'on path',
    run: () =>
      onPath(29, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        await connected(scene);
        await scene.exchange(0, 8);
        await scene.call('client', 'disconnect', 0);
        await until(() => relay.seen.some(({ packet }) => messageOf(packet)?.name === 'DREP'));
        const recorded = relay.seen.filter(({ from }) => from === 'client');
        // The client no longer takes part.
        relay.tamper = () => [];
        for (let turn = 0; turn < 3; turn++) {
          for (const { packet } of recorded) relay.inject(packet, 'client');
          await sleep(500);
        }
        await scene.judge(0);
        const { accepted } = await scene.call('server', 'state');
        assert.is(accepted, 1, 'accepted connections');
      }),
  },
  {
    name: 'a client with another pre-shared key, or with none, connects to no authenticated listener',
    position: 'any host',
    unit: 'connections',
    run: async () => {
      const keys = [undefined, 'another key of 32 random bytes..', `${PSK} `, PSK.slice(0, -1)];
      await onPath(31, { psk: PSK }, async (scene) => {
        for (const psk of keys) {
          const failed = await scene.connect(psk === undefined ? {} : { psk }, 2);
          assert.is(failed, 'EACCES', `with ${psk}`);
        }
        assert.is(await scene.connect({ psk: PSK }), undefined);
        const { accepted, unauthentic } = await stateAfter(scene, 1);
        assert.is(accepted, 1);
        assert.ok(unauthentic > 0);
      });
      return keys.length;
    },
  },
  {
    name: 'the key id of an honest client, on the wire of a client without its key, connects nothing',
    position: 'on path',
    run: () =>
      onPath(39, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        await connected(scene);
        const known = relay.seen.map(({ packet }) => messageOf(packet));
        const honest = known.find((message) => message?.name === 'AUTH_REQ')!;
        const [inRequest, inTrailer] = [20 + 24 + 24, 20 + 256];
        relay.tamper = ({ from, packet }) => {
          const name = messageOf(packet)?.name;
          if (from === 'server' || (name !== 'AUTH_REQ' && name !== 'REQ')) return [packet];
          const forged = Buffer.from(packet);
          const at = name === 'REQ' ? inTrailer : inRequest;
          forged.writeBigUInt64BE((honest as Message<'AUTH_REQ'>).keyId, at);
          relay.forged++;
          return [forged];
        };
        const other = 'another key of 32 random bytes..';
        assert.ok((await scene.connect({ psk: other }, 1)) !== undefined);
        assert.ok(relay.forged >= 2, 'AUTH_REQ and REQ in the name of the honest key');
        assert.is((await stateAfter(scene, 1)).accepted, 1);
      }),
  },
  {
    name: 'a listener without the key, at the address of the server, gets no REQ of the client',
    position: 'on path',
    run: () =>
      onPath(33, { psk: 'the key of an impostor, 32 bytes' }, async (scene) => {
        const { relay } = scene;
        assert.is(await scene.connect({ psk: PSK }, 2), 'EACCES');
        // It claims to know the key: its nonce leads the client to a REQ, and its REP has no tag.
        relay.tamper = ({ from, packet }) => {
          if (messageOf(packet)?.name !== 'AUTH_REP' || from !== 'server') return [packet];
          const forged = Buffer.from(packet);
          forged.writeUInt16BE(0, 20 + 24 + 8);
          relay.forged++;
          return [forged];
        };
        assert.ok((await scene.connect({ psk: PSK }, 2)) !== undefined);
        assert.is((await scene.call('server', 'state')).accepted, 0);
        assert.is((await scene.call('client', 'state')).accepted, 0);
      }),
  },
  {
    name: 'a DREQ, REJ or RTU without a tag, with the ids of an authenticated connection, ends nothing',
    position: 'on path',
    run: () =>
      onPath(35, { psk: PSK }, async (scene) => {
        const { relay } = scene;
        await connected(scene);
        const ready = relay.seen.find(({ packet }) => messageOf(packet)?.name === 'RTU')!.packet;
        const [REJ, RTU, DREQ, DREP] = [0x12, 0x14, 0x15, 0x16];
        const serverQpn = await scene.call('server', 'qpNum', 0);
        for (const attribute of [REJ, RTU, DREQ, DREP]) {
          for (const length of [280, ready.length]) {
            const forged = Buffer.from(ready.subarray(0, length));
            forged.writeUInt16BE(attribute, 20 + 16);
            // A DREQ names the queue pair behind the ids.
            if (attribute === DREQ) forged.writeUIntBE(serverQpn, 20 + 24 + 8, 3);
            relay.inject(forged, 'client');
          }
        }
        await sleep(1000);
        await scene.exchange(0, 8);
        const { messages, ended } = await scene.dropped();
        assert.ok(messages >= 7, `${messages} messages without a tag`);
        assert.is(ended, 0);
      }),
  },
];

export const AUTHENTICATED_ATTACKS: readonly Attack[] = [...PACKETS, ...HANDSHAKE];
