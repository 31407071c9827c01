/** A second context of a station's device: takes part in its protection domain by a handle. */
import type { RdmaConnection } from '../cm/connect.js';
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import { SendFlag, WcStatus, WrOpcode } from '../verbs/enums.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { Role, check, type PeerKind } from './end.js';
import { MESSAGE_BYTES } from './messages.js';
import { writtenBy } from './station.js';

/** Key of the shared domain; with another key the domain counts as unknown. */
export const SHARE_KEY = 0x5eed_0000n;

/** Everything that a guest needs to join; it can be posted to a Worker. */
export interface Invitation {
  /** Of the domain, 32 bytes. */
  readonly handle: Uint8Array;
  /** The peer that is to WRITE, and the memory that the guest names. */
  readonly peer: string;
  readonly kind: PeerKind;
  readonly rkey: number;
  readonly addr: bigint;
}

/** Result of the request to the peer. */
export interface Asked {
  /** A WcStatus. */
  readonly status: number;
  /** Of the domain in the guest's thread. */
  readonly instances: number;
}

/** A guest, wherever it is. */
export interface Company {
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

export class Guest implements Company {
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

  /** The context is the guest's from now on. */
  static async come(context: Context, invitation: Invitation): Promise<Guest> {
    const { handle, peer, kind, rkey, addr } = invitation;
    const isKept = isRefused(context, handle, SHARE_KEY + 1n);
    const pd = context.sharePd(handle, SHARE_KEY);
    const told = { role: Role.STAMP, kind, rkey, addr };
    return new Guest(context, isKept, pd, await writtenBy(peer, context, pd, told));
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
