import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair } from '../../../../host/link/loopback.js';
import { traceLink } from '../../../../host/link/capture/trace.js';
import { pattern, TestBatch } from '../../../support/batch.js';
import { RecordingReceiver } from '../../../support/receiver.js';

test('writes one line for every packet, with direction, time, peer and sentence', async () => {
  const { network, a, b } = createLoopbackPair({ auto: false });
  const lines: string[] = [];
  let now = 5_000_000;
  const traced = traceLink(a, (line) => lines.push(line), {
    explain: (bytes) => `starts\n  with ${bytes[0]}`,
    nowMicros: () => now,
  });
  await traced.open(new RecordingReceiver());
  await b.open(new RecordingReceiver());
  const to = b.info.local;
  now += 1;
  traced.send(
    new TestBatch([
      { bytes: Uint8Array.of(7, 0, 0), to },
      { bytes: Uint8Array.of(8), to },
    ]),
  );
  now += 2_000_000;
  b.send(new TestBatch([{ bytes: pattern(24, 0), to: a.info.local }]));
  network.deliver();
  assert.equal(lines, [
    '0.000001 send 127.0.0.2:4791 3 B  starts with 7',
    '0.000001 send 127.0.0.2:4791 1 B  starts with 8',
    '2.000001 recv 127.0.0.2:4791 24 B  starts with 0',
  ]);
  assert.is(traced.info.name, 'trace(loopback)');
});

test('passes on a failure of the link', async () => {
  const { a } = createLoopbackPair();
  const receiver = new RecordingReceiver();
  let inner = new RecordingReceiver() as Parameters<typeof a.open>[0];
  const open = a.open.bind(a);
  a.open = (given) => {
    inner = given;
    return open(given);
  };
  await traceLink(a, () => undefined, { explain: () => '' }).open(receiver);
  inner.failed(new Error('gone'));
  assert.equal(
    receiver.failures.map(({ message }) => message),
    ['gone'],
  );
});

test.run();
