/** A client of `verbena serve` that says what a test wants. */
import { connect, openDevice, type ConnectError, type Context } from '../../host/index.js';
import { Channel, FILE_SERVICE } from '../../host/transfer/channel.js';
import type { Message, PutMessage } from '../../host/transfer/messages.js';
import { eventually } from './receiver.js';

export interface ServerPlace {
  readonly host: string;
  readonly port: number;
}

/** A request in order, with changes. `transfer`: its first byte. */
export function request(changes: Partial<PutMessage> = {}, transfer = 0): PutMessage {
  const version = { name: 'file', size: 1000n, mtimeNs: 1n, pieceBytes: 65536 };
  return { kind: 'PUT', ...version, transfer: new Uint8Array(16).fill(transfer), ...changes };
}

/** To be closed by `closeAll`. */
const open = new Set<PutClient>();

export class PutClient {
  readonly heard: Message[] = [];
  isOver = false;
  readonly #context: Context;
  readonly #ownsContext: boolean;
  readonly #channel: Channel;

  private constructor(context: Context, ownsContext: boolean, channel: Channel) {
    this.#context = context;
    this.#ownsContext = ownsContext;
    this.#channel = channel;
    open.add(this);
    void channel
      .run((message) => this.heard.push(message))
      .catch(() => undefined)
      .then(() => (this.isOver = true));
  }

  /** `from`: an address, which gets a device; or a device. */
  static async open({ host, port }: ServerPlace, from: string | Context): Promise<PutClient> {
    const isOwn = typeof from === 'string';
    const context = isOwn ? await openDevice({ address: from, port: 0 }) : from;
    try {
      return new PutClient(
        context,
        isOwn,
        await Channel.connect(context, { host, port }, undefined),
      );
    } catch (error) {
      if (isOwn) await context.close();
      throw error;
    }
  }

  say(message: Message): void {
    this.#channel.send(message);
  }

  /** The server's first message, as text for comparisons; '' if the connection ended without. */
  async answer(message: Message): Promise<string> {
    this.say(message);
    await eventually(() => this.heard.length > 0 || this.isOver);
    const [first] = this.heard;
    return first?.kind === 'FAILED' ? first.text : (first?.kind ?? '');
  }

  /** After a test, also one that fails: an open device keeps a process alive. */
  static async closeAll(): Promise<void> {
    for (const client of open) await client.close();
  }

  async close(): Promise<void> {
    open.delete(this);
    this.#channel.break();
    await eventually(() => this.isOver);
    this.#channel.close();
    if (this.#ownsContext) await this.#context.close();
  }
}

/** The text in the REJ for a request with this private data. */
export async function refusedGreeting(
  { host, port }: ServerPlace,
  text: string,
  context: Context,
): Promise<string> {
  const how = { context, udpPort: port, privateData: Buffer.from(text) };
  try {
    await connect({ address: host, port: FILE_SERVICE }, how);
    return 'accepted';
  } catch (error) {
    return Buffer.from((error as ConnectError).privateData).toString();
  }
}
