/** The channel that is compared with: echoes, and acknowledgements of frames. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { EchoChannel, PIECE_BYTES, replyTo } from '../../../host/demo/echo-channel.js';

/** The asking side, and the messages that it sent. */
function channelOf(): { channel: EchoChannel; sent: Uint8Array[] } {
  const sent: Uint8Array[] = [];
  const channel = new EchoChannel(
    (message) => void sent.push(message.slice()),
    () => {},
  );
  return { channel, sent };
}

test('a frame is acknowledged by the number of its last piece, once it is there', async () => {
  const { channel, sent } = channelOf();
  const taking = channel.frame(4 * PIECE_BYTES, 1000);
  assert.equal(
    sent.map(({ length }) => length),
    [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES],
  );
  const replies = sent.map(replyTo);
  assert.equal(
    replies.map((reply) => reply?.length),
    [undefined, undefined, undefined, 64],
  );
  // A number that was not asked for acknowledges nothing.
  channel.receive(new Uint8Array(64).fill(9));
  channel.receive(replies[3]!);
  const millis = await taking;
  assert.ok(millis >= 0 && millis < 1000);
});

test('a frame that is not acknowledged in time took forever', async () => {
  const { channel } = channelOf();
  assert.is(await channel.frame(PIECE_BYTES, 20), Infinity);
});

test('a short message is echoed as it is', async () => {
  const { channel, sent } = channelOf();
  const taking = channel.trip(1000);
  assert.is(replyTo(sent[0]!), sent[0]);
  channel.receive(sent[0]!);
  assert.ok((await taking) < 1000);
});

test.run();
