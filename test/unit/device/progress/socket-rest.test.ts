/** Looks at a socket between messages of other contexts. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { SocketRest } from '../../../../host/device/progress/socket-rest.js';

/** How many of `count` looks reach the socket. */
function looks(rest: SocketRest, count: number, messageMicros?: number): number {
  let reached = 0;
  for (let index = 0; index < count; index++) {
    if (messageMicros !== undefined) rest.begin(1000 + index * messageMicros);
    if (!rest.leavesOut()) reached++;
  }
  return reached;
}

test('without messages each look reaches the socket', () => {
  assert.is(looks(new SocketRest(), 100), 100);
});

test('after a message 64 looks leave it out, under a stream 256 at most', () => {
  const rest = new SocketRest();
  rest.begin(1000);
  assert.is(looks(rest, 64), 0);
  assert.is(looks(rest, 10), 10);
  assert.is(looks(rest, 257 * 4, 0), 4);
});

test('messages that take long do not keep a socket waiting', () => {
  assert.is(looks(new SocketRest(), 1000, 1000), 500);
  assert.is(looks(new SocketRest(), 1020, 10), 170);
});

test.run();
