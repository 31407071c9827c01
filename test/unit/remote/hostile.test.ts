/** Peers that break the protocol of host/remote: the server goes on, its memory is untouched. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import {
  SendFlag,
  WrOpcode,
  connect,
  openDevice,
  share,
  type Context,
  type RdmaConnection,
  type RemoteServer,
} from '../../../host/index.js';
import { PROTOCOL } from '../../../host/remote/hello.js';
import { Random } from '../../simulation/random.js';

const test = suite('unit/remote/hostile');
const ANY = 'rdma://127.0.144.1:0';
const HELLO_END = 6;
const encode = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));
const HELLO = { id: '0', messageBytesMax: 1000, regions: [], wanted: [] };

/** A connection with the private data of the protocol, and receives for its answers. */
async function knock(server: RemoteServer, context: Context): Promise<RdmaConnection> {
  const [, address, port, udp = '4791'] = /rdma:\/\/([^:]+):(\d+)(?:\?udp=(\d+))?/.exec(
    server.url,
  )!;
  const options = { context, udpPort: Number(udp), privateData: PROTOCOL, keepAliveMillis: 0 };
  const target = { address: address!, port: Number(port) };
  const connection = await connect(target, { ...options, qp: { cap: { maxInlineData: 512 } } });
  const inbox = context.alloc(8192 * 16);
  const mr = connection.id.regMsgs(inbox);
  for (let slot = 0; slot < 16; slot++) {
    connection.id.postRecv(slot, inbox.subarray(slot * 8192, (slot + 1) * 8192), mr);
  }
  return connection;
}

function sendFrame({ qp }: RdmaConnection, kind: number, bytes: Uint8Array, credits = 0): void {
  const immData = ((kind << 16) | credits) >>> 0;
  const sendFlags = SendFlag.SIGNALED | SendFlag.INLINE;
  qp.postSend({ opcode: WrOpcode.SEND_WITH_IMM, sendFlags, immData, inline: bytes });
}

async function withServer(
  work: (server: RemoteServer, context: Context, errors: Error[]) => Promise<void>,
): Promise<void> {
  const errors: Error[] = [];
  const server = await share(ANY, { table: 4096 }, { onError: (error) => errors.push(error) });
  const context = await openDevice({ address: '127.0.144.2', port: 0 });
  try {
    await work(server as RemoteServer, context, errors);
    // An honest client is served.
    const remote = await connect(server.url, { timeout: 20_000 });
    await remote.memory['table']!.write(0, Uint8Array.of(1));
    await remote.close();
  } finally {
    await context.close();
    await server.close();
  }
}

/** The server reports an error when it has released the connection. */
async function reported(errors: readonly Error[]): Promise<void> {
  while (errors.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
}

const GARBAGE: Readonly<Record<string, (connection: RdmaConnection) => void>> = {
  'a hello that is no JSON': (it) => sendFrame(it, HELLO_END, Uint8Array.of(1, 2, 3)),
  'a hello with odd regions': (it) =>
    sendFrame(it, HELLO_END, encode({ ...HELLO, regions: [['a', 'zz', 1, 1, 1]] })),
  'a message before its hello': (it) => sendFrame(it, 2, Uint8Array.of(1)),
  'a frame of an unknown kind': (it) => sendFrame(it, 0x7777, Uint8Array.of(1)),
  'a hello that has no end': (it) => {
    for (let count = 0; count < 20; count++) sendFrame(it, 5, new Uint8Array(512));
  },
  'more credits than there are': (it) => sendFrame(it, 0, new Uint8Array(0), 1),
  'a SEND without immediate data': ({ qp }) =>
    qp.postSend({ opcode: WrOpcode.SEND, inline: new Uint8Array(8), sendFlags: SendFlag.INLINE }),
};
for (const [what, send] of Object.entries(GARBAGE)) {
  test(`${what} ends its connection, and no other one`, () =>
    withServer(async (server, context, errors) => {
      const connection = await knock(server, context);
      send(connection);
      await connection.disconnected;
      await reported(errors);
      assert.is(errors[0]!.name, 'RemoteError', errors[0]!.stack);
      assert.is(server.clients.size, 0);
      await connection.close();
    }));
}

const LATER: Readonly<Record<string, (connection: RdmaConnection) => void>> = {
  'a second hello': (it) => sendFrame(it, HELLO_END, encode(HELLO)),
  'more frames than it has credits for': (it) => {
    for (let count = 0; count < 17; count++) sendFrame(it, 2, Uint8Array.of(count));
  },
  'part of a message that is no full frame': (it) => sendFrame(it, 1, Uint8Array.of(1)),
};
for (const [what, send] of Object.entries(LATER)) {
  test(`${what}, from a client that was served, ends that client`, () =>
    withServer(async (server, context) => {
      const connection = await knock(server, context);
      sendFrame(connection, HELLO_END, encode(HELLO));
      const { value: client } = await server[Symbol.asyncIterator]().next();
      send(connection);
      assert.is((await client!.closed)?.code, 'EPROTO');
      await connection.close();
    }));
}

test('random frames end the connection or are ignored; nothing else happens', () =>
  withServer(async (server, context) => {
    const random = new Random(11);
    for (let count = 0; count < 20; count++) {
      const connection = await knock(server, context);
      if (random.below(2) === 0) sendFrame(connection, HELLO_END, encode(HELLO));
      for (let frames = random.below(8); frames >= 0; frames--) {
        const bytes = new Uint8Array(random.below(64)).map(() => random.below(256));
        try {
          sendFrame(connection, random.below(16), bytes, random.below(3));
        } catch {
          // The server has ended the connection.
        }
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
      await connection.close();
    }
    assert.ok((server.memory as { table: Uint8Array }).table.every((byte) => byte === 0));
  }));

test('a server that closes does not wait for a client that is silent', async () => {
  const server = await share(ANY, { table: 64 });
  const context = await openDevice({ address: '127.0.144.2', port: 0 });
  const connection = await knock(server as RemoteServer, context);
  const begin = performance.now();
  await server.close();
  assert.ok(performance.now() - begin < 15_000, `${performance.now() - begin} ms`);
  await connection.close();
  await context.close();
});

test('a client that never describes itself is disconnected', () =>
  withServer(async (server, context, errors) => {
    const connection = await knock(server, context);
    await connection.disconnected;
    await reported(errors);
    assert.match(errors[0]!.message, /accept: no answer came within 5000 ms/);
    await connection.close();
  }));

test.run();
