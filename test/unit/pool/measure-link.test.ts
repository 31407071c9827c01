/** The speed of a connection over UDP on this machine, and the regions that it needs. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { AccessFlag, measureLink, regionsFor } from '../../../host/index.js';
import { PATIENT, connect, openSide, type Side } from '../../support/pair.js';
import { expectRejected } from '../../support/refusal.js';

const BYTES = 16384;

const LOOPBACK = { address: '127.0.0.1', port: 0 };
const SIDE = { bytes: BYTES, access: AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE, cqe: 64 };

/** Two connected sides, closed in the end. */
async function inPair(work: (a: Side, b: Side) => Promise<void>): Promise<void> {
  const [a, b] = [await openSide(LOOPBACK, SIDE), await openSide(LOOPBACK, SIDE)];
  try {
    connect(a.qp, b, 1, 2, PATIENT);
    connect(b.qp, a, 2, 1, PATIENT);
    await work(a, b);
  } finally {
    await a.context.close();
    await b.context.close();
  }
}

test('measureLink measures speed and round trip; regionsFor has the number of regions from them', () =>
  inPair(async (a, b) => {
    a.buffer.fill(7);
    const source = { addr: Number(a.mr.addr), length: BYTES, lkey: a.mr.lkey };
    const remote = { remoteAddr: b.mr.addr, rkey: b.mr.rkey };
    const speed = await measureLink({ qp: a.qp, source, remote, millis: 50, depth: 8 });
    assert.ok(
      b.buffer.every((byte) => byte === 7),
      'the bytes arrived',
    );
    assert.is(speed.requestBytes, BYTES);
    assert.ok(speed.roundTripMicros > 0);
    // No faster than memory.
    assert.ok(speed.linkBytesPerSecond > 0 && speed.linkBytesPerSecond < 1e11);
    const few = regionsFor({ ...speed, responseMicros: 1000 });
    const many = regionsFor({ ...speed, responseMicros: 8000 });
    assert.ok(few >= 1 && many >= few && many <= few * 8, `${few}, ${many}`);
    const wrong = { ...remote, rkey: remote.rkey ^ 0x100 };
    await expectRejected(measureLink({ qp: a.qp, source, remote: wrong }), 'EIO');
  }));

test.run();
