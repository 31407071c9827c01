/** Messages in flight to a peer: by port, and by pair of ports. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { OutgoingMessage, toSendAgain } from '../../../../host/rds/protocol/message.js';
import { Flows, TransmitWindows } from '../../../../host/rds/protocol/transmit-windows.js';

const WINDOW = 112;

function message(source: number, destination: number, sequence: number): OutgoingMessage {
  const buffer = { payload: new Uint8Array(8), free: () => {} };
  const made = new OutgoingMessage(undefined, { source, destination }, buffer);
  made.sequence = sequence;
  return made;
}

test('a window is full at 112 messages, and worth another try when half of them are there', () => {
  const transmitWindows = new TransmitWindows();
  for (let round = 0; round < 3; round++) {
    for (const port of [7, 8]) {
      for (let count = 0; count < WINDOW; count++) {
        assert.not(transmitWindows.isFull(port));
        transmitWindows.sent(port, 8);
      }
      assert.ok(transmitWindows.isFull(port));
    }
    for (const port of [7, 8]) {
      const tries = Array.from({ length: WINDOW }, () => transmitWindows.left(port, 8));
      assert.equal(
        tries.flatMap((isWorth, index) => (isWorth ? [index + 1] : [])),
        [WINDOW / 2],
      );
      assert.not(transmitWindows.isFull(port));
    }
  }
});

test('a message names the one before it on another connection, unless the peer has that', () => {
  const flows = new Flows();
  const [first, second, third] = [message(1, 2, 10), message(1, 2, 20), message(1, 2, 30)];
  assert.is(flows.numbered(0, first), undefined);
  assert.is(flows.numbered(0, second), undefined, 'the same connection keeps order by itself');
  assert.equal(flows.numbered(1, third), { connectionIndex: 0, sequence: 20 });
  for (const one of [first, second, third]) flows.left(one);
  // All have arrived: the next one waits for none, whatever connection it takes.
  const fourth = message(1, 2, 40);
  assert.is(flows.numbered(0, fourth), undefined);
  flows.left(fourth);
  assert.is(flows.numbered(2, message(1, 2, 50)), undefined);
  assert.equal(flows.numbered(0, message(1, 2, 60)), { connectionIndex: 2, sequence: 50 });
});

test('pairs of ports without messages in flight are independent of each other', () => {
  const flows = new Flows();
  for (let port = 1; port <= 5; port++) {
    const one = message(port, 9, port);
    assert.is(flows.numbered(port % 3, one), undefined);
    flows.left(one);
  }
  for (let port = 1; port <= 5; port++) {
    assert.is(flows.numbered((port + 1) % 3, message(port, 9, 100 + port)), undefined);
  }
});

test('memory is free when the peer has the message, or, sent again, when it has left as well', () => {
  for (const isAgain of [false, true]) {
    let freed = 0;
    const buffer = { payload: new Uint8Array(5), free: () => freed++ };
    const sent = new OutgoingMessage(undefined, { source: 1, destination: 2 }, buffer);
    const post = (): void => {
      sent.posted++;
      sent.held++;
    };
    post();
    if (isAgain) {
      sent.letGo();
      assert.equal(toSendAgain([sent]), [sent]);
      post();
    }
    sent.acknowledged();
    assert.is(freed, isAgain ? 0 : 1);
    if (isAgain) sent.letGo();
    assert.is(freed, 1);
  }
});

test.run();
