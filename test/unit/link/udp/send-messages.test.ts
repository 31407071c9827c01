/** Answers to sendmmsg that loopback never gives, from a simulated kernel. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Endpoint, Gid } from '../../../../host/link/endpoint.js';
import type { Posix } from '../../../../host/link/posix.js';
import { SendMessages, type SendCounters } from '../../../../host/link/udp/send-messages.js';
import { pattern, TestBatch, type TestPacket } from '../../../support/batch.js';

const ERRNO = {
  EPERM: 1,
  EINTR: 4,
  EBADF: 9,
  EAGAIN: 11,
  EMSGSIZE: 90,
  ENOBUFS: 105,
  EIO: 5,
  EINVAL: 22,
};
type Answer = number | keyof typeof ERRNO;

const peer = Endpoint.parse('127.0.0.1', 4791);
const HEADER_BYTES = 64;

/** Answers calls in turn: how many messages are taken, or an errno; then all are taken. */
class ScriptedKernel {
  /** First message and count of every call. */
  readonly calls: [first: number, count: number][] = [];
  waits = 0;
  /** How many descriptors ppoll finds ready. */
  readonly ready: number;
  readonly #answers: Answer[];
  #headers = 0;

  constructor(answers: Answer[], ready: number) {
    this.#answers = answers;
    this.ready = ready;
  }

  socketAddress = (): Uint8Array => new Uint8Array(16);
  addressOf = (): number => 2 ** 40;

  sendMessages = (_fd: number, headers: number, count: number): number => {
    this.#headers ||= headers;
    this.calls.push([(headers - this.#headers) / HEADER_BYTES, count]);
    const answer = this.#answers.shift() ?? count;
    return typeof answer === 'number' ? answer : -ERRNO[answer];
  };

  pollDescriptors = (): number => {
    this.waits++;
    return this.ready;
  };

  errnoName = (errno: number): string =>
    Object.entries(ERRNO).find(([, number]) => number === errno)![0];
}

function send(answers: Answer[], lengths: number[], segments = false, ready = 1) {
  const kernel = new ScriptedKernel(answers, ready);
  const counters: SendCounters = {
    sent: 0,
    sentBytes: 0,
    sendCalls: 0,
    sentMessages: 0,
    sendErrors: new Map(),
  };
  const sender = new SendMessages({
    posix: kernel as unknown as Posix,
    fd: 3,
    gid: Gid.parse('127.0.0.1'),
    zone: '',
    flows: [],
    canSegment: true,
    memory: new Uint8Array(SendMessages.BYTES),
    base: 2 ** 41,
    address: 0,
    counters,
  });
  sender.setPeerSegments(peer, segments);
  const packets: TestPacket[] = lengths.map((length) => ({ bytes: pattern(length, 1), to: peer }));
  const again = (): void => sender.send(new TestBatch(packets));
  again();
  const { calls } = kernel;
  return { kernel, calls, counters, again, errors: [...counters.sendErrors] };
}

test('messages that the kernel did not accept are passed to it again', () => {
  const { calls, counters, errors } = send([2, 1], [10, 20, 30, 40, 50]);
  assert.equal(calls, [
    [0, 5],
    [2, 3],
    [3, 2],
  ]);
  assert.equal(errors, []);
  assert.equal([counters.sent, counters.sentBytes, counters.sentMessages], [5, 150, 5]);
});

test('a refused message is counted, and those behind it are sent', () => {
  const { calls, counters, errors } = send([1, 'EPERM', 'ENOBUFS'], [10, 20, 30, 40]);
  assert.equal(calls, [
    [0, 4],
    [1, 3],
    [2, 2],
    [3, 1],
  ]);
  assert.equal(errors, [
    ['EPERM', 1],
    ['ENOBUFS', 1],
  ]);
  assert.equal([counters.sent, counters.sentBytes], [2, 50]);
});

test('a full send buffer is waited for once per message, then the message is lost', () => {
  const { kernel, counters, errors } = send(['EAGAIN', 1, 'EAGAIN', 'EAGAIN'], [10, 20, 30]);
  assert.is(kernel.waits, 2);
  assert.equal(errors, [['EAGAIN', 1]]);
  assert.equal([counters.sent, counters.sentBytes], [2, 40]);
});

test('a send buffer that does not drain is waited for once per batch', () => {
  const answers: Answer[] = ['EAGAIN', 'EAGAIN', 'EAGAIN', 'EAGAIN'];
  const { kernel, counters, errors } = send(answers, [10, 20, 30, 40], false, 0);
  assert.is(kernel.waits, 1);
  assert.equal(errors, [['EAGAIN', 3]]);
  assert.is(counters.sent, 1);
});

test('a signal is no answer', () => {
  const { calls, errors } = send(['EINTR', 'EINTR'], [10]);
  assert.is(calls.length, 3);
  assert.equal(errors, []);
});

test('a refused run counts all its packets', () => {
  const { counters, errors } = send(['EPERM'], [100, 100, 100, 200, 200], true);
  assert.equal(errors, [['EPERM', 3]]);
  assert.equal([counters.sent, counters.sentBytes, counters.sentMessages], [2, 400, 1]);
});

test('a run that the device cannot cut up goes one by one; the peer gets no more runs', () => {
  const answers: Answer[] = ['EIO', 1, 'ENOBUFS', 1];
  const { counters, calls, again } = send(answers, [100, 100, 60], true);
  assert.equal([...counters.sendErrors], [['ENOBUFS', 1]]);
  assert.equal([counters.sent, counters.sentBytes, counters.sentMessages], [2, 160, 2]);
  again();
  assert.equal(calls.at(-1), [0, 3]);
});

test('a kernel that takes runs of 64 gets runs of 64 from then on', () => {
  const lengths = Array.from({ length: 129 }, () => 100);
  const { counters, calls, again, errors } = send(['EINVAL'], lengths, true);
  assert.equal(errors, []);
  assert.equal([counters.sent, counters.sentMessages, counters.sendCalls], [129, 3, 4]);
  again();
  assert.equal(calls.at(-1), [0, 3]);
});

test('a kernel that takes no runs at all, after a long one, gets each packet', () => {
  const lengths = Array.from({ length: 100 }, () => 100);
  const { counters, again, errors } = send(['EINVAL', 'EIO'], lengths, true);
  assert.equal(errors, []);
  assert.equal([counters.sent, counters.sentBytes], [100, 10_000]);
  // The first 64 by themselves, the others in one run: it was found out too late for those.
  assert.is(counters.sentMessages, 65);
  again();
  assert.is(counters.sentMessages, 165);
});

test('a run of packets that are all too long does not take runs from the peer', () => {
  const answers: Answer[] = ['EMSGSIZE', 'EMSGSIZE', 'EMSGSIZE'];
  const { calls, again, errors } = send(answers, [100, 100], true);
  assert.equal(errors, [['EMSGSIZE', 2]]);
  again();
  assert.equal(calls.at(-1), [0, 1]);
});

test.run();
