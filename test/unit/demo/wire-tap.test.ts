/** The demo's wire: packets are seen as they are, and killed as told. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Opcode } from '#build/abi.js';
import { CopiedBatch } from '../../../host/link/faults/copied-batch.js';
import { createLoopbackPair } from '../../../host/link/loopback.js';
import { WireTap } from '../../../host/demo/wire-tap.js';

/** Of a BTH and an AETH as much as matters here. */
function packet(opcode: number, psn: number, syndrome = 0): Uint8Array {
  const bytes = new Uint8Array(20);
  bytes[0] = opcode;
  bytes[11] = psn;
  bytes[12] = syndrome;
  return bytes;
}

async function inWorld(
  work: (tap: WireTap, send: (...packets: Uint8Array[]) => Promise<number[]>) => Promise<void>,
): Promise<void> {
  const { a, b } = createLoopbackPair();
  const tap = new WireTap(a);
  const arrived: number[] = [];
  await tap.open({ packet: () => {}, flush: () => {}, failed: () => {} });
  const { local } = await b.open({
    packet: (bytes) => void arrived.push(bytes[11]!),
    flush: () => {},
    failed: () => {},
  });
  await work(tap, async (...packets) => {
    arrived.length = 0;
    tap.send(new CopiedBatch(packets.map((bytes) => ({ bytes, destination: local }))));
    await new Promise((resolve) => setTimeout(resolve, 5));
    return [...arrived];
  });
  await tap.close();
  await b.close();
}

test('passing packets are kept, with their kind', () =>
  inWorld(async (tap, send) => {
    const ack = Opcode.RC_ACKNOWLEDGE;
    const sent = [packet(Opcode.RC_RDMA_WRITE_ONLY, 1), packet(ack, 2, 0x1f), packet(ack, 3, 0x60)];
    assert.equal(await send(...sent, packet(ack, 4, 0x20), packet(0x7f, 5)), [1, 2, 3, 4, 5]);
    const kept = tap.latest(10);
    const kinds = kept.map(({ kind }) => kind);
    assert.equal(kinds, ['WRITE ONLY', 'ACK', 'NAK', 'RNR NAK', 'opcode 127']);
    assert.equal(kept[1]!.bytes, sent[1]);
    assert.is(kept[1]!.psn, 2);
  }));

test('the next of a kind is killed, or all of them, and nothing else', () =>
  inWorld(async (tap, send) => {
    const batch = (): Uint8Array[] => [
      packet(Opcode.RC_SEND_ONLY, 1),
      packet(Opcode.RC_RDMA_WRITE_ONLY, 2),
      packet(Opcode.RC_SEND_ONLY, 3),
      packet(Opcode.RC_RDMA_WRITE_ONLY, 4),
    ];
    tap.kill('WRITE ONLY', 'next');
    assert.equal(await send(...batch()), [1, 3, 4]);
    assert.equal(await send(...batch()), [1, 2, 3, 4]);
    tap.kill('SEND ONLY', 'all');
    assert.equal(await send(...batch()), [2, 4]);
    assert.equal(await send(...batch()), [2, 4]);
    tap.kill('SEND ONLY', 'none');
    assert.equal(await send(...batch()), [1, 2, 3, 4]);
    assert.is(tap.killed, 5);
  }));

test('noise is named, not understood', () =>
  inWorld(async (tap, send) => {
    await send(new Uint8Array(1), new Uint8Array(12).fill(255));
    assert.equal(
      tap.latest(2).map(({ kind }) => kind),
      ['malformed', 'malformed'],
    );
  }));

test('the tap keeps at most its limit of packets', () =>
  inWorld(async (tap, send) => {
    for (let round = 0; round < 30; round++) {
      await send(...Array.from({ length: 50 }, () => packet(Opcode.RC_SEND_ONLY, round)));
    }
    assert.is(tap.count, 1500);
    assert.ok(tap.latest(5000).length <= 1024);
  }));

test.run();
