/** What goes and comes beside a message: `cmsg` of level SOL_RDS (linux/rds.h). */
import { ControlMessageType } from '../wire/constants.js';
import { noExtensions, type Extensions } from '../wire/header.js';
import type { IncomingMessage } from '../protocol/message.js';
import { makeCookie, offsetOf, rkeyOf } from '../protocol/rdma.js';

type Type = typeof ControlMessageType;

/** RDMA in front of the message, into or out of memory that the peer has named by a cookie. */
export interface RdmaArgs {
  readonly type: Type['RDMA_ARGS'];
  readonly cookie: bigint;
  /** Bytes from where the cookie's memory begins. Default 0. */
  readonly remoteOffset?: number;
  /** Memory of `context.alloc`; it is the operation's until its RDMA_STATUS came, or its message. */
  readonly local: Uint8Array;
  /** Made of RdmaFlag: READWRITE writes there, without it that is read; FENCE, NOTIFY_ME. */
  readonly flags: number;
  /** Comes back in RDMA_STATUS. */
  readonly userToken?: bigint;
}

/** A cookie: of memory that the receiver of the message may use. */
export interface RdmaDest {
  readonly type: Type['RDMA_DEST'];
  readonly cookie: bigint;
}

/** MessageFlag.ZEROCOPY: a number that comes back when the memory is the application's again. */
export interface ZcopyCookie {
  readonly type: Type['ZCOPY_COOKIE'];
  readonly cookie: number;
}

/** Control messages that `sendmsg` takes. */
export type SendControl = RdmaArgs | RdmaDest | ZcopyCookie;

/** Control messages that `recvmsg` gives. */
export type ReceivedControl =
  | RdmaDest
  | {
      readonly type: Type['RDMA_STATUS'];
      readonly userToken: bigint;
      /** One of RdmaStatus. */
      readonly status: number;
    }
  | { readonly type: Type['CONG_UPDATE']; readonly mask: bigint }
  | { readonly type: Type['ZCOPY_COMPLETION']; readonly cookies: readonly number[] };

/** What came beside a message. */
export function controlOf({ header }: IncomingMessage): ReceivedControl[] {
  const { rdmaDestination: memory } = header.extensions;
  if (!memory) return [];
  return [{ type: ControlMessageType.RDMA_DEST, cookie: makeCookie(memory.rkey, memory.offset) }];
}

/** What goes with a message in its header. */
export function extensionsOf(control: readonly SendControl[]): Extensions {
  if (control.length === 0) return noExtensions();
  const args = control.find((one) => one.type === ControlMessageType.RDMA_ARGS);
  const dest = control.find((one) => one.type === ControlMessageType.RDMA_DEST);
  return {
    ...(args && { rdmaRkey: rkeyOf(args.cookie) }),
    ...(dest && { rdmaDestination: { rkey: rkeyOf(dest.cookie), offset: offsetOf(dest.cookie) } }),
  };
}
