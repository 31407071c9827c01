/** A second context of a device: takes part in the protection domain of the first by a handle. */
import type { RdmaConnection } from '../cm/connect.js';
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { SendFlag, WcStatus, WrOpcode } from '../verbs/enums.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { Role, check, type PeerKind } from './private-data.js';
import { MESSAGE_BYTES } from './messages.js';
import { writtenBy } from './endpoint.js';

/** Key of the shared domain; with another key the domain counts as unknown. */
export const SHARE_KEY = 0x5eed_0000n;

/** Share with which a second context joins; it can be posted to a Worker. */
export interface DomainShare {
  /** Of the domain, 32 bytes. */
  readonly handle: Uint8Array;
  /** The peer that is to WRITE, and the memory that the second context names. */
  readonly peer: string;
  readonly kind: PeerKind;
  readonly rkey: number;
  readonly addr: bigint;
}

/** Result of the request to the peer. */
export interface Asked {
  /** A WcStatus. */
  readonly status: number;
  /** Of the domain in its thread. */
  readonly instances: number;
}

/** A second context, in this Worker or in another one. */
export interface SharingContext {
  /** Was it refused with another key? */
  readonly isKept: boolean;
  /** Is it in a Worker of its own? */
  readonly isApart: boolean;
  /** Has the peer WRITE its line. */
  ask(): Promise<Asked>;
  leave(): Promise<void>;
}

/** Is taking part refused? */
export function isRefused(context: Context, handle: Uint8Array, key: bigint): boolean {
  try {
    context.sharePd(handle, key).dealloc();
    return false;
  } catch (error) {
    if (error instanceof RefusalError) return true;
    throw error;
  }
}

export class SecondContext implements SharingContext {
  readonly isApart = false;
  readonly #context: Context;
  readonly #pd: ProtectionDomain;
  readonly #connection: RdmaConnection;

  private constructor(
    context: Context,
    readonly isKept: boolean,
    pd: ProtectionDomain,
    connection: RdmaConnection,
  ) {
    this.#context = context;
    this.#pd = pd;
    this.#connection = connection;
  }

  /** Takes the context over. */
  static async open(context: Context, share: DomainShare): Promise<SecondContext> {
    const { handle, peer, kind, rkey, addr } = share;
    const isKept = isRefused(context, handle, SHARE_KEY + 1n);
    const pd = context.sharePd(handle, SHARE_KEY);
    const privateData = { role: Role.STAMP, kind, rkey, addr };
    return new SecondContext(context, isKept, pd, await writtenBy(peer, context, pd, privateData));
  }

  async ask(): Promise<Asked> {
    const { qp, sendCq, recvCq } = this.#connection;
    const message = this.#context.alloc(MESSAGE_BYTES);
    const region = this.#pd.regMr(message, 0);
    try {
      const { addr, lkey } = region;
      qp.postSend({
        opcode: WrOpcode.SEND,
        sgList: [{ addr, length: MESSAGE_BYTES, lkey }],
        sendFlags: SendFlag.SIGNALED,
      });
      check(await sendCq.wait());
      // Its WRITE comes with an immediate value, or kills the queue pair.
      const [completion] = await recvCq.wait();
      const instances = this.#context.siblings.instancesOf(this.#pd.handle);
      return { status: completion?.status ?? WcStatus.WR_FLUSH_ERR, instances };
    } finally {
      region.dereg();
      this.#context.free(message);
    }
  }

  async leave(): Promise<void> {
    await this.#connection.close();
    this.#pd.dealloc();
    await this.#context.close();
  }
}
