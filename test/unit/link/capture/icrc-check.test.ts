import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { readPcap } from '../../../../host/index.js';
import { IcrcCheck } from '../../../../host/link/capture/icrc-check.js';
import { icrcMatches } from '../../../support/icrc.js';
import { vectors } from '../../../support/paths.js';

const judge = new IcrcCheck();

function* captures(): Generator<[name: string, bytes: Buffer]> {
  for (const folder of ['rxe/', 'linux/']) {
    const base = new URL(folder, vectors);
    for (const name of readdirSync(base).filter((entry) => entry.endsWith('.pcap'))) {
      yield [name, readFileSync(new URL(name, base))];
    }
  }
}

test('every packet of every capture gets the verdict that another implementation gives', () => {
  const counts = new Map<string, number>();
  for (const [name, bytes] of captures()) {
    for (const packet of readPcap(bytes)) {
      const verdict = judge.judge(packet);
      counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
      const right = icrcMatches(bytes, packet);
      const where = `${name} frame ${packet.frameNumber}`;
      if (right) assert.is(verdict, packet.ipId === 0 ? 'exact' : 'by IP id', where);
      else assert.is(verdict, 'FLUSH doubled', where);
      if (verdict === 'FLUSH doubled') assert.is(packet.payload[0], 0x1c, where);
    }
  }
  assert.is(counts.get('FLUSH doubled'), 10);
  assert.ok((counts.get('by IP id') ?? 0) > 100);
});

test('the identification that an ICRC covers is derived from the packet alone', () => {
  let found = 0;
  for (const [name, bytes] of captures()) {
    for (const packet of readPcap(bytes)) {
      const hidden = { ...packet, ipId: 0 };
      const id = judge.identificationOf(hidden);
      assert.is(id, packet.ipVersion === 4 ? packet.ipId : 0, `${name} ${packet.frameNumber}`);
      if (id !== 0) found++;
      const payload = Uint8Array.from(packet.payload);
      payload[9]! ^= 0x10;
      assert.is(
        judge.identificationOf({ ...hidden, payload }),
        0,
        'no identification explains the ICRC',
      );
    }
  }
  assert.ok(found > 800, `${found} packets with an identification`);
});

test('a flipped bit is wrong; what is no packet is not checked', () => {
  const bytes = readFileSync(new URL('rxe/rc_write_multi.pcap', vectors));
  const [packet] = readPcap(bytes);
  for (const at of [0, 1, 9, 30]) {
    const payload = Uint8Array.from(packet!.payload);
    payload[at]! ^= 0x10;
    assert.is(judge.judge({ ...packet!, payload }), 'wrong', `byte ${at}`);
  }
  const omitted = Uint8Array.from(packet!.payload).fill(0, -4);
  assert.is(judge.judge({ ...packet!, payload: omitted }), 'omitted');
  for (const length of [0, 1, 15, 17, 5000]) {
    assert.is(judge.judge({ ...packet!, payload: new Uint8Array(length) }), 'unchecked');
  }
});

test.run();
