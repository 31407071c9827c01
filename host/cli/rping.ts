/**
 * `verbena rping`: RDMA ping-pong over a connection of the connection manager, as rdma-core's rping
 * (man rping). In each turn the client advertises the memory of its message and the server READs
 * it; then the client advertises other memory and the server WRITEs the message back. An
 * advertisement has 16 bytes, big endian: address, key, size.
 */
import type {
  AuthOptions,
  CmId,
  CompletionQueue,
  Context,
  MemoryRegion,
  QueuePair,
  RdmaRequest,
  Sge,
} from '../index.js';
import { AccessFlag, SendFlag, WcStatus, WcStatusName, WrOpcode } from '../verbs/enums.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { connect } from '../remote/connect.js';
import { listen } from '../cm/connect.js';
import { openDevice } from '../verbs/open-device.js';
import { lookUp } from '../cm/address-info.js';
import { authOption, pskRefusal, readAuth, type PskOptions } from './base/psk-file.js';
import { Exit, printLine } from './base/report.js';
import {
  addressBeside,
  connectSentence,
  formatServerAddress,
  whileUnanswered,
} from './base/server-address.js';

export interface RpingOptions extends PskOptions {
  readonly server?: boolean;
  readonly client?: boolean;
  /** The server's address, ours or theirs. */
  readonly address: string;
  readonly port: number;
  readonly size: number;
  readonly count?: number;
  readonly verbose?: boolean;
  readonly validate?: boolean;
  /** Server: one client after the other. */
  readonly persistent?: boolean;
  readonly json?: boolean;
  /** UDP port of our device, and of the one there. */
  readonly udpPort: number;
  readonly peerUdpPort: number;
}

const INFO_BYTES = 16;
const SERVER_COMMAND = 'verbena rping -s';
/** Letters of the message: `A` to `z`, round and round. */
const FIRST_LETTER = 65;
const LAST_LETTER = 122;

/** An advertisement of the peer's memory. */
interface Remote {
  readonly remoteAddr: bigint;
  readonly rkey: number;
  readonly length: number;
}

/** Memory that both sides use: an inbox and an outbox of 16 bytes, and two buffers. */
class Buffers {
  readonly inbox: Uint8Array;
  readonly outbox: Uint8Array;
  readonly message: Uint8Array;
  readonly echo: Uint8Array;
  readonly #mr: MemoryRegion;

  constructor(id: CmId, size: number) {
    const memory = id.context.alloc(2 * INFO_BYTES + 2 * size);
    const cut = (from: number, length: number): Uint8Array => memory.subarray(from, from + length);
    this.inbox = cut(0, INFO_BYTES);
    this.outbox = cut(INFO_BYTES, INFO_BYTES);
    this.message = cut(2 * INFO_BYTES, size);
    this.echo = cut(2 * INFO_BYTES + size, size);
    const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = AccessFlag;
    this.#mr = id.pd.regMr(memory, LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE);
  }

  sge(part: Uint8Array, length = part.length): Sge {
    const addr = this.#mr.addr + BigInt(part.byteOffset - this.#mr.buffer.byteOffset);
    return { addr, length, lkey: this.#mr.lkey };
  }

  /** Writes into the outbox where the peer finds `part`. */
  describe(part: Uint8Array): void {
    const view = new DataView(this.outbox.buffer, this.outbox.byteOffset);
    view.setBigUint64(0, BigInt(this.sge(part).addr));
    view.setUint32(8, this.#mr.rkey);
    view.setUint32(12, part.length);
  }

  advertised(): Remote {
    const view = new DataView(this.inbox.buffer, this.inbox.byteOffset);
    return {
      remoteAddr: view.getBigUint64(0),
      rkey: view.getUint32(8),
      length: view.getUint32(12),
    };
  }
}

/** Queue pair and buffers of a side, with its steps. */
class Side {
  readonly buffers: Buffers;
  readonly #qp: QueuePair;
  readonly #sendCq: CompletionQueue;
  readonly #recvCq: CompletionQueue;

  constructor(id: CmId, qp: QueuePair, size: number) {
    this.buffers = new Buffers(id, size);
    this.#qp = qp;
    this.#sendCq = qp.sendCq;
    this.#recvCq = qp.recvCq;
    this.postReceive();
  }

  postReceive(): void {
    this.#qp.postRecv({ sgList: [this.buffers.sge(this.buffers.inbox)] });
  }

  /** The peer's message; undefined: the peer has disconnected. */
  async receive(): Promise<Remote | undefined> {
    const [completion] = await this.#recvCq.wait(1);
    if (!completion || completion.status === WcStatus.WR_FLUSH_ERR) return undefined;
    if (completion.status !== WcStatus.SUCCESS || completion.byteLen !== INFO_BYTES) {
      throw new RefusalError(
        'EPROTO',
        `rping: a message of ${completion.byteLen} bytes arrived in place of 16; ` +
          'start rping at the other side',
      );
    }
    const remote = this.buffers.advertised();
    this.postReceive();
    return remote;
  }

  async send(): Promise<void> {
    await this.#work(WrOpcode.SEND, this.buffers.sge(this.buffers.outbox));
  }

  async move(opcode: number, sge: Sge, remote: Remote): Promise<void> {
    await this.#work(opcode, sge, remote);
  }

  async #work(opcode: number, sge: Sge, remote?: Remote): Promise<void> {
    const sendFlags = SendFlag.SIGNALED;
    this.#qp.postSend({ opcode, sgList: [sge], sendFlags, ...(remote ? { rdma: remote } : {}) });
    const [completion] = await this.#sendCq.wait(1);
    // After the last message a peer may disconnect before it acknowledges; `receive` reports that.
    if (completion?.status === WcStatus.SUCCESS || completion?.status === WcStatus.WR_FLUSH_ERR) {
      return;
    }
    const why = completion ? WcStatusName[completion.status] : 'the device was closed';
    throw new RefusalError('EIO', `rping: ${why}`);
  }
}

/** `rdma-ping-N: ` and letters, each turn from the next one on; the last byte is 0. */
export function pingMessage(turn: number, size: number): Uint8Array {
  const letters = LAST_LETTER - FIRST_LETTER + 1;
  const prefix = `rdma-ping-${turn}: `;
  return Uint8Array.from({ length: size }, (_, at) => {
    if (at === size - 1) return 0;
    if (at < prefix.length) return prefix.charCodeAt(at);
    return FIRST_LETTER + ((at - prefix.length + turn) % letters);
  });
}

function textOf(message: Uint8Array): string {
  const end = message.indexOf(0);
  return Buffer.from(message.subarray(0, end < 0 ? message.length : end)).toString('latin1');
}

/** Where connections are made, and with which keys. */
interface Way {
  readonly context: Context;
  readonly auth?: AuthOptions;
}

const PARAM = { responderResources: 1, initiatorDepth: 1, retryCount: 7 };

async function serveOne(request: RdmaRequest, options: RpingOptions): Promise<void> {
  let side: Side | undefined;
  const connection = await request.accept(PARAM, (qp) => {
    side = new Side(request.id, qp, options.size);
  });
  try {
    await answer(side!, options);
  } finally {
    await connection.close();
  }
}

async function answer(side: Side, { size, verbose, json }: RpingOptions): Promise<void> {
  const { buffers } = side;
  for (let source = await side.receive(); source; source = await side.receive()) {
    if (source.length > size) {
      throw new RefusalError(
        'EPROTO',
        `rping: the client has ${source.length} bytes, not ${size}; start both sides ` +
          'with the same -S',
      );
    }
    await side.move(WrOpcode.RDMA_READ, buffers.sge(buffers.message, source.length), source);
    const text = textOf(buffers.message);
    if (json) await printLine(JSON.stringify({ event: 'ping', bytes: source.length, text }));
    else if (verbose) await printLine(`server ping data: ${text}`);
    await side.send();
    const sink = await side.receive();
    if (!sink) return;
    const length = Math.min(textOf(buffers.message).length + 1, source.length);
    await side.move(WrOpcode.RDMA_WRITE, buffers.sge(buffers.message, length), sink);
    await side.send();
  }
}

async function runServer(options: RpingOptions, way: Way): Promise<void> {
  const { context } = way;
  const { address, port, persistent, json } = options;
  const listener = await listen({ address, port }, way);
  const udpPort = context.local.port;
  const place = `rping: listening on ${address}:${port}, UDP port ${udpPort}`;
  const event = { event: 'listening', address, port, udpPort };
  await printLine(json ? JSON.stringify(event) : place);
  for await (const request of listener) {
    await serveOne(request, options);
    if (!persistent) return;
  }
}

async function runClient(options: RpingOptions, way: Way): Promise<void> {
  const { address, port, size, count, verbose, validate, peerUdpPort, json } = options;
  const server = { host: address, port };
  const connecting = connect({ address, port }, { ...PARAM, ...way, udpPort: peerUdpPort });
  const place = formatServerAddress(server);
  const connection = await whileUnanswered('rping', place, SERVER_COMMAND, connecting).catch(
    (error: unknown) => {
      throw connectSentence(pskRefusal(error, place), server, SERVER_COMMAND);
    },
  );
  try {
    const side = new Side(connection.id, connection.qp, size);
    for (let turn = 0; count === undefined || turn < count; turn++) {
      const { buffers } = side;
      const message = pingMessage(turn, size);
      buffers.message.set(message);
      for (const part of [buffers.message, buffers.echo]) {
        buffers.describe(part);
        await side.send();
        if (!(await side.receive())) {
          throw new RefusalError(
            'ECONNRESET',
            'rping: the server disconnected; see its error line',
          );
        }
      }
      const same = Buffer.compare(message, buffers.echo) === 0;
      if (validate && !same)
        throw new RefusalError(
          'EIO',
          `rping: the bytes of turn ${turn} differ from those sent; check the network ` +
            'with a capture (--pcap)',
        );
      const text = textOf(buffers.echo);
      if (json) await printLine(JSON.stringify({ event: 'ping', turn, bytes: size, same, text }));
      else if (verbose) await printLine(`ping data: ${text}`);
    }
  } finally {
    await connection.close();
  }
}

export async function rping(options: RpingOptions): Promise<number> {
  const { server, client, address, udpPort } = options;
  if (!server === !client)
    throw new MisuseError(
      '-s or -c',
      'is required: -s for the server, -c for the client (verbena rping --help)',
    );
  const local = server ? address : await addressBeside(await lookUp(address));
  const auth = await readAuth(options);
  const context = await openDevice({ address: local, port: udpPort });
  try {
    const way = { context, ...authOption(auth) };
    await (server ? runServer(options, way) : runClient(options, way));
  } finally {
    await context.close();
  }
  return Exit.OK;
}
