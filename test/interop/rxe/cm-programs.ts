/** Our half of rdma-core's examples: ucmatose, udaddy, rdma_client and rdma_server. */
import assert from 'node:assert/strict';
import {
  CmEventType,
  PortSpace,
  SendFlag,
  WcFlag,
  WrOpcode,
  connect,
  createEventChannel,
  listen,
  openDevice,
  type AddressHandle,
  type CmEvent,
  type CmId,
  type Context,
  type EventChannel,
  type RdmaConnection,
} from '../../../host/index.js';
import { Mailbox, inTime } from './cm-peer.js';

export const UDADDY_PORT = 7174;
/** ucmatose and rdma_server. */
export const SERVER_PORT = 7471;
const SERVER_MESSAGE_BYTES = 16;
const GRH_BYTES = 40;
const DEVICE_BYTES = 32 * 2 ** 20;

export interface Exchange {
  readonly connections: number;
  /** On each, each way. */
  readonly messages: number;
  /** Of a message. */
  readonly bytes: number;
}

/** Our half of a program. `address`: of the server. `ready`: we listen. */
export type Half = (
  context: Context,
  address: string,
  exchange: Exchange,
  ready: () => void,
) => Promise<void>;

/** With a device of its own, at our address. */
export async function withDevice<T>(
  address: string,
  use: (context: Context) => Promise<T>,
): Promise<T> {
  const context = await openDevice({ address, memoryBytes: DEVICE_BYTES });
  try {
    return await use(context);
  } finally {
    await context.close();
  }
}

interface Talk {
  readonly connection: RdmaConnection;
  readonly mailbox: Mailbox;
}

function capOf({ messages }: Exchange): { maxSendWr: number; maxRecvWr: number } {
  const entries = Math.max(messages, 1);
  return { maxSendWr: entries, maxRecvWr: entries };
}

async function takeConnections(
  context: Context,
  target: { address: string; port: number },
  exchange: Exchange,
  ready: () => void,
): Promise<Talk[]> {
  const listener = await listen(target, { context });
  ready();
  const talks: Promise<Talk>[] = [];
  try {
    for (let index = 0; index < exchange.connections; index++) {
      const request = (await inTime('a request', listener.getRequest()))!;
      let mailbox: Mailbox | undefined;
      const accepted = request.accept({ qp: { cap: capOf(exchange) } }, (qp) => {
        mailbox = new Mailbox(qp, exchange.messages, exchange.bytes);
      });
      talks.push(accepted.then((connection) => ({ connection, mailbox: mailbox! })));
    }
    return await inTime('connections', Promise.all(talks));
  } finally {
    await listener.close();
  }
}

async function makeConnections(
  context: Context,
  target: { address: string; port: number },
  exchange: Exchange,
): Promise<Talk[]> {
  const make = async (): Promise<Talk> => {
    let mailbox: Mailbox | undefined;
    const options = { context, qp: { cap: capOf(exchange) } };
    const connection = await connect(target, options, (qp) => {
      mailbox = new Mailbox(qp, exchange.messages, exchange.bytes);
    });
    return { connection, mailbox: mailbox! };
  };
  return inTime('connections', Promise.all(Array.from({ length: exchange.connections }, make)));
}

async function hangUp(talks: readonly Talk[]): Promise<void> {
  for (const { connection, mailbox } of talks) {
    await inTime('the end', connection.close());
    mailbox.close();
  }
}

function letters(bytes: number): Uint8Array {
  return Uint8Array.from({ length: bytes }, (_, at) => 65 + (at % 26));
}

/** ucmatose: the server sends first, on all connections, and disconnects at the end. */
export const serveUcmatose: Half = async (context, address, exchange, ready) => {
  const talks = await takeConnections(context, { address, port: SERVER_PORT }, exchange, ready);
  const message = letters(exchange.bytes);
  await Promise.all(talks.map(({ mailbox }) => mailbox.send(message, exchange.messages)));
  await Promise.all(talks.map(({ mailbox }) => mailbox.receive()));
  await hangUp(talks);
};

export const askUcmatose: Half = async (context, address, exchange) => {
  const talks = await makeConnections(context, { address, port: SERVER_PORT }, exchange);
  await Promise.all(talks.map(({ mailbox }) => mailbox.receive()));
  const message = letters(exchange.bytes);
  await Promise.all(talks.map(({ mailbox }) => mailbox.send(message, exchange.messages)));
  await inTime('the end', Promise.all(talks.map(({ connection }) => connection.disconnected)));
  await hangUp(talks);
};

/** rdma_server: a message of 16 bytes, and one back. It looks at neither. */
export const serveRdmaServer: Half = async (context, address, exchange, ready) => {
  const talks = await takeConnections(context, { address, port: SERVER_PORT }, exchange, ready);
  for (const { mailbox } of talks) {
    await mailbox.receive();
    await mailbox.send(letters(SERVER_MESSAGE_BYTES));
  }
  await hangUp(talks);
};

export const askRdmaServer: Half = async (context, address, exchange) => {
  const talks = await makeConnections(context, { address, port: SERVER_PORT }, exchange);
  for (const { mailbox } of talks) {
    await mailbox.send(letters(SERVER_MESSAGE_BYTES));
    await mailbox.receive();
  }
  await hangUp(talks);
};

/** One datagram end. */
class Datagrams {
  readonly mailbox: Mailbox;
  readonly #id: CmId;

  constructor(id: CmId, exchange: Exchange) {
    this.#id = id;
    const { context } = id;
    const cap = capOf(exchange);
    const sendCq = context.createCq(cap.maxSendWr);
    const recvCq = context.createCq(cap.maxRecvWr);
    const qp = id.createQp({ sendCq, recvCq, cap });
    this.mailbox = new Mailbox(qp, exchange.messages, exchange.bytes, GRH_BYTES);
  }

  /** With our queue pair's number as immediate data: the answer goes to it. */
  async send(ah: AddressHandle, qpNum: number, qkey: number, exchange: Exchange): Promise<void> {
    await this.mailbox.send(letters(exchange.bytes), exchange.messages, {
      opcode: WrOpcode.SEND_WITH_IMM,
      immData: this.mailbox.qp.qpNum,
      sendFlags: SendFlag.SIGNALED,
      ud: { ah, remoteQpn: qpNum, remoteQkey: qkey },
    });
    ah.destroy();
  }

  close(): void {
    const { sendCq, recvCq } = this.mailbox.qp;
    this.mailbox.close();
    this.#id.destroy();
    sendCq.destroy();
    recvCq.destroy();
  }
}

async function next(channel: EventChannel, wanted: number): Promise<CmEvent> {
  const event = await inTime('an event', channel.getEvent());
  assert.equal(event?.event, wanted, `${event?.name} ${event?.status}`);
  return event!;
}

/** The Q_Key of PortSpace.UDP. */
const QKEY = 0x01234567;

export const serveUdaddy: Half = async (context, _, exchange, ready) => {
  const channel = createEventChannel(context);
  const listener = channel.createId(PortSpace.UDP);
  listener.bindAddr({ port: UDADDY_PORT });
  listener.listen();
  ready();
  const ends: Datagrams[] = [];
  for (let index = 0; index < exchange.connections; index++) {
    const { id } = await next(channel, CmEventType.CONNECT_REQUEST);
    ends.push(new Datagrams(id, exchange));
    id.accept();
  }
  for (const end of ends) {
    const [first] = await end.mailbox.receive();
    assert.equal(first!.wcFlags & (WcFlag.WITH_IMM | WcFlag.GRH), WcFlag.WITH_IMM | WcFlag.GRH);
    assert.equal(first!.immData, first!.srcQp);
    const grh = end.mailbox.received(Number(first!.wrId)).subarray(0, GRH_BYTES);
    const ah = end.mailbox.qp.pd.createAhFromWc(first!, grh);
    await end.send(ah, first!.immData, QKEY, exchange);
  }
  for (const end of ends) end.close();
  channel.destroy();
};

export const askUdaddy: Half = async (context, address, exchange) => {
  const channel = createEventChannel(context);
  const ends: Datagrams[] = [];
  for (let index = 0; index < exchange.connections; index++) {
    const id = channel.createId(PortSpace.UDP);
    id.resolveAddr({ address, port: UDADDY_PORT });
    await next(channel, CmEventType.ADDR_RESOLVED);
    id.resolveRoute();
    await next(channel, CmEventType.ROUTE_RESOLVED);
    const end = new Datagrams(id, exchange);
    ends.push(end);
    id.connect();
    const { ud } = await next(channel, CmEventType.ESTABLISHED);
    assert.equal(ud!.qkey, QKEY);
    const ah = end.mailbox.qp.pd.createAh(ud!.ahAttr);
    await end.send(ah, ud!.qpNum, ud!.qkey, exchange);
  }
  for (const end of ends) await end.mailbox.receive();
  for (const end of ends) end.close();
  channel.destroy();
};
