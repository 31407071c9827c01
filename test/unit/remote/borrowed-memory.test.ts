/** Memory of the caller that is changed, transferred or made smaller while a call uses it. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError, connect, share, type Remote } from '../../../host/index.js';
import { rejection } from '../../support/refusal.js';

const test = suite('unit/remote/borrowed-memory');
const ANY = 'rdma://127.0.199.1:0';
/** A client with a device of its own: packets travel. */
const APART = { device: { address: '127.0.199.2', port: 0 }, timeout: 20_000 };
const MEBI = 2 ** 20;

/** A client, and the server's end of its connection. */
async function connected(work: (remote: Remote, client: Remote) => Promise<void>): Promise<void> {
  const server = await share(ANY, { table: 2 * MEBI });
  const clients = server[Symbol.asyncIterator]();
  const remote = await connect(server.url, APART);
  try {
    await work(remote, (await clients.next()).value as Remote);
  } finally {
    await remote.close();
    await server.close();
  }
}

function transfer(bytes: Uint8Array): void {
  structuredClone(bytes.buffer, { transfer: [bytes.buffer as ArrayBuffer] });
}

async function misuse(work: Promise<unknown>, text: RegExp): Promise<void> {
  const error = await rejection(work);
  assert.instance(error, MisuseError, String(error));
  assert.match((error as Error).message, text);
}

for (const [what, change] of [
  ['overwritten', (bytes: Uint8Array) => void bytes.fill(66)],
  ['transferred', transfer],
] as const) {
  test(`a message that timed out arrives as it was, though its memory is ${what} then`, () =>
    connected(async (remote, client) => {
      for (let count = 0; count < 10; count++) await remote.send(Buffer.from('small'));
      const bytes = new Uint8Array(MEBI).fill(65);
      const error = await rejection(remote.send(bytes, { timeout: 300 }));
      assert.match((error as Error).message, /send/);
      change(bytes);
      let large: Uint8Array | undefined;
      for await (const message of client) {
        large = message;
        if (message.length > 5) break;
      }
      assert.is(large!.length, MEBI);
      assert.is(
        large!.findIndex((byte) => byte !== 65),
        -1,
      );
    }));
}

test('memory that was transferred before the call is refused, and the next call succeeds', () =>
  connected(async (remote, client) => {
    const { table } = remote.memory;
    for (const length of [0, 16, MEBI]) {
      const gone = new Uint8Array(length);
      transfer(gone);
      await misuse(remote.send(gone), /message.*send: was transferred/);
      await misuse(table!.write(0, gone), /was transferred/);
      await misuse(table!.write(0, gone.buffer), /was transferred/);
      await misuse(table!.readInto(0, gone), /was transferred/);
    }
    await remote.send(Buffer.from('still here'));
    for await (const message of client) {
      assert.is(String(Buffer.from(message)), 'still here');
      break;
    }
    await table!.write(0, Buffer.from('written'));
    assert.is(String(Buffer.from(await table!.read(0, 7))), 'written');
  }));

test('a read whose target is transferred or shrinks meanwhile rejects, and others succeed', () =>
  connected(async ({ memory: { table } }) => {
    // More than what is staged at a time: it cannot be complete when the call returns.
    const target = new Uint8Array(2 * MEBI);
    const gone = misuse(table!.readInto(0, target), /read of table: must not be transferred/);
    transfer(target);
    const Resizable = ArrayBuffer as unknown as new (
      length: number,
      options: { maxByteLength: number },
    ) => ArrayBuffer & { resize(length: number): void };
    const buffer = new Resizable(2 * MEBI, { maxByteLength: 2 * MEBI });
    const view = new Uint8Array(buffer, 0, 2 * MEBI);
    const small = misuse(table!.readInto(0, view), /must not be transferred or made smaller/);
    buffer.resize(4);
    const others = Array.from({ length: 50 }, (_, index) => table!.read(index, 8));
    await Promise.all([gone, small]);
    assert.is((await Promise.all(others)).length, 50);
  }));

test('a message whose memory is transferred while it waits ends the connection, not the process', () =>
  connected(async (remote) => {
    for (let count = 0; count < 10; count++) await remote.send(Buffer.from('small'));
    const bytes = new Uint8Array(MEBI).fill(65);
    const sent = rejection(remote.send(bytes));
    await new Promise((resolve) => setTimeout(resolve, 100));
    transfer(bytes);
    // The peer reads nothing, so the rest waits; closing ends it.
    const [error] = await Promise.all([sent, remote.close()]);
    assert.instance(error, Error);
  }));

test.run();
