/** `verbena perf` and what is no perftest, over TCP and over the connection manager. */
import { connect as connectTcp } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { encodeDestination, encodeNote, encodeVersion } from '../../host/cli/perf/exchange.js';
import {
  AccessFlag,
  Gid,
  SendFlag,
  WrOpcode,
  connect,
  type RdmaConnection,
} from '../../host/index.js';
import { startPerfServer, wordsOf } from '../support/perf.js';
import { Workspace } from '../support/processes.js';

const test = suite('cli/perf-strangers');
/** Of this file alone: packets go to and from UDP port 4791. */
const SERVER = '127.0.94.1';
const STRANGER = '127.0.94.3';

const TERMS = {
  verb: 'write',
  test: 'bw',
  connection: 'RC',
  all: false,
  size: 65536,
  iters: 5000,
  duration: 0,
  qp: 1,
  bidirectional: false,
  warmUp: -1,
};

/** A note with the version of our implementation in front. */
function saying(note: Buffer): Buffer {
  return Buffer.concat([encodeVersion(), note]);
}

const GARBAGE: readonly [name: string, bytes: Buffer, what: RegExp][] = [
  ['a web browser', Buffer.from('GET / HTTP/1.1\r\n'), /is not perftest: it sends "GET/],
  ['an old perftest', Buffer.from('4.5\0'.padEnd(16, '\0')), /is perftest 4.5; it must be/],
  ['control characters', Buffer.alloc(16, 27), /is not perftest/],
  ['no note', saying(Buffer.alloc(1024, 1)), /invalid note from peer/],
  [
    'other terms',
    saying(encodeNote({ terms: { verb: { toString: 1 } } })),
    /the options differ: verb/,
  ],
  [
    'no terms',
    saying(encodeNote({ terms: 'write' })),
    /verb is write here and nothing at the peer/,
  ],
  ['no port', saying(encodeNote({ terms: TERMS, step: 1, port: 0 })), /invalid port from peer/],
  ['no step', saying(encodeNote({ terms: TERMS, step: 1e300, port: 1 })), /invalid step from peer/],
];

for (const [name, bytes, what] of GARBAGE) {
  test(`what is no perftest over TCP is refused in one line: ${name}`, () =>
    Workspace.use(async (space) => {
      const server = await startPerfServer(space, SERVER, ...wordsOf('write bw --exchange tcp'));
      const socket = connectTcp(18515, SERVER);
      socket.on('error', () => undefined);
      socket.write(bytes);
      const { code, stderr } = await server.ended;
      assert.is(code, 1);
      assert.match(stderr, what, stderr);
      assert.match(stderr, /^verbena perf: [\x20-\x7e’]*\n$/);
      socket.destroy();
    }));
}

test('a peer that hangs up early, and one that sends too much, are refused over TCP', () =>
  Workspace.use(async (space) => {
    for (const [bytes, what] of [
      [Buffer.from('6.06\0'), /has disconnected/],
      [Buffer.alloc(100_000), /sends more than was requested/],
    ] as const) {
      const server = await startPerfServer(space, SERVER, ...wordsOf('write bw --exchange tcp'));
      const socket = connectTcp(18515, SERVER);
      socket.on('error', () => undefined);
      socket.end(bytes);
      const { code, stderr } = await server.ended;
      assert.is(code, 1);
      assert.match(stderr, what, stderr);
      socket.destroy();
    }
  }));

/** Connects to a server by the connection manager, and says these messages. */
async function sayTo(messages: readonly Buffer[]): Promise<RdmaConnection> {
  const device = { address: STRANGER, port: 0 };
  const target = { address: SERVER, port: 18515 };
  const connection = await connect(target, { device }, (qp) => {
    const memory = qp.pd.context.alloc(8192);
    const { addr, lkey } = qp.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
    for (let index = 0; index < 8; index++) {
      qp.postRecv({ sgList: [{ addr: addr + BigInt(1024 * index), length: 1024, lkey }] });
    }
  });
  const memory = connection.context.alloc(4096);
  const { addr, lkey } = connection.pd.regMr(memory, AccessFlag.LOCAL_WRITE);
  for (const message of messages) {
    memory.set(message);
    const sgList = [{ addr, length: message.length, lkey }];
    connection.qp.postSend({ opcode: WrOpcode.SEND, sendFlags: SendFlag.SIGNALED, sgList });
    await connection.sendCq.wait(1);
  }
  return connection;
}

test('what is no perftest over the connection manager is refused in one line', () =>
  Workspace.use(async (space) => {
    const destination = { outs: 0, qpn: 0, psn: 0, rkey: 0, vaddr: 0n, gid: Gid.parse('::') };
    const perftest = Buffer.alloc(16);
    perftest.write('6.06');
    const number = Buffer.alloc(4);
    const cases: [readonly Buffer[], RegExp][] = [
      [[Buffer.from('6.0')], /says 3 bytes where 16 are due/],
      [[Buffer.alloc(16, 0xff)], /is not perftest/],
      [[Buffer.alloc(1500)], /has disconnected/],
      [[perftest, number, number, Buffer.from('9\0')], /invalid path MTU from peer/],
      [[perftest, number, number, number], /says 4 bytes where 2 are due/],
      [[perftest, encodeDestination(destination)], /says 56 bytes where 4 are due/],
    ];
    for (const [messages, what] of cases) {
      const server = await startPerfServer(space, SERVER, 'write', 'bw');
      const connection = await sayTo(messages);
      const { code, stderr } = await server.ended;
      assert.is(code, 1);
      assert.match(stderr, what, stderr);
      assert.match(stderr, /^verbena perf: .*\n$/);
      await connection.close();
    }
  }));

test.run();
