/** Our half of connections.c: connections one after the other, a message there and back on each. */
import assert from 'node:assert/strict';
import {
  ConnectError,
  connect,
  type Context,
  type QueuePair,
  type RdmaConnection,
  type RdmaListener,
} from '../../../host/index.js';
import { Mailbox, inTime } from './cm-peer.js';

const SMALL = { cap: { maxSendWr: 2, maxRecvWr: 2 } };
/** Of a listener's program. */
export const PORT = 7175;
/** Text of the refusal, which both `connections refuse` and Verbena send. */
export const REFUSAL = 'not today';

export type Role = 'listen' | 'refuse' | 'connect';

/** The command for the guest. `address`: of the listener. */
export function connectionsCommand(
  program: string,
  role: Role,
  address: string,
  count: number,
  bytes: number,
  quiet = false,
): string {
  return `${program} ${role} ${address} ${PORT} ${count} ${bytes}${quiet ? ' quiet' : ''}`;
}

function messageOf(index: number, bytes: number): Uint8Array {
  return Uint8Array.from({ length: bytes }, (_, at) => index + 7 * at);
}

/** Makes the connection, its message goes there and back, and it ends. */
export async function makeOne(
  context: Context,
  address: string,
  index: number,
  bytes: number,
): Promise<void> {
  let mailbox: Mailbox | undefined;
  const prepare = (qp: QueuePair): void => {
    mailbox = new Mailbox(qp, 1, bytes);
  };
  const connecting = connect({ address, port: PORT }, { context, qp: SMALL }, prepare);
  let connection: RdmaConnection | undefined;
  try {
    connection = await inTime('connect', connecting);
    await mailbox!.send(messageOf(index, bytes));
    await mailbox!.receive();
    assert.deepEqual(mailbox!.received(0).slice(), messageOf(index, bytes));
    await inTime('disconnect', connection.disconnect());
  } finally {
    await connection?.close();
    mailbox?.close();
  }
}

/** Takes the next request, gives its message back, and waits for its end. */
export async function takeOne(listener: RdmaListener, index: number, bytes: number): Promise<void> {
  const request = (await inTime('a request', listener.getRequest()))!;
  let mailbox: Mailbox | undefined;
  let connection: RdmaConnection | undefined;
  try {
    const accepting = request.accept({ qp: SMALL }, (qp) => {
      mailbox = new Mailbox(qp, 1, bytes);
    });
    connection = await inTime('accept', accepting);
    await mailbox!.receive();
    const message = mailbox!.received(0).slice();
    assert.deepEqual(message, messageOf(index, bytes));
    await mailbox!.send(message);
    await inTime('the end', connection.disconnected);
  } finally {
    await connection?.close();
    mailbox?.close();
  }
}

/** The peer refuses: returns the reason, and what it says. */
export async function beRefused(
  context: Context,
  address: string,
): Promise<{ readonly reason: number; readonly said: string }> {
  const connecting = connect({ address, port: PORT }, { context, qp: SMALL });
  try {
    const connection = await inTime('connect', connecting);
    await connection.close();
  } catch (error) {
    if (!(error instanceof ConnectError)) throw error;
    const text = Buffer.from(error.privateData).toString('latin1');
    return { reason: error.reason, said: text.slice(0, Math.max(text.indexOf('\0'), 0)) };
  }
  throw new Error('the peer did not refuse');
}

export async function refuseOne(listener: RdmaListener): Promise<void> {
  const request = (await inTime('a request', listener.getRequest()))!;
  request.reject(new TextEncoder().encode(`${REFUSAL}\0`));
}
