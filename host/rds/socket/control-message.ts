/** Control messages: `cmsg` of level SOL_RDS (linux/rds.h). */
import { ControlMessageType } from '../wire/constants.js';
import { noExtensions, type Extensions } from '../wire/header.js';
import type { IncomingMessage } from '../protocol/message.js';
import { makeCookie, offsetOf, rkeyOf } from '../protocol/rdma.js';

type Type = typeof ControlMessageType;

/** An RDMA operation in front of the message; the memory is named by a cookie of the peer. */
export interface RdmaArgs {
  readonly type: Type['RDMA_ARGS'];
  readonly cookie: bigint;
  /** Offset in the cookie's memory in bytes. Default 0. */
  readonly remoteOffset?: number;
  /** Memory of `context.alloc`; do not change it before RDMA_STATUS or the message completes. */
  readonly local: Uint8Array;
  /** Mask of RdmaFlag: READWRITE writes to the peer, else the operation reads; FENCE, NOTIFY_ME. */
  readonly flags: number;
  /** Returned in RDMA_STATUS. */
  readonly userToken?: bigint;
}

/** A cookie for memory that the receiver of the message may access. */
export interface RdmaDest {
  readonly type: Type['RDMA_DEST'];
  readonly cookie: bigint;
}

/** MessageFlag.ZEROCOPY: a number that is returned when the application may reuse the memory. */
export interface ZcopyCookie {
  readonly type: Type['ZCOPY_COOKIE'];
  readonly cookie: number;
}

/** Control messages that `sendmsg` takes. */
export type SendControl = RdmaArgs | RdmaDest | ZcopyCookie;

/** Control messages that `recvmsg` returns. */
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

/** Reads the control messages of a received message. */
export function controlOf({ header }: IncomingMessage): ReceivedControl[] {
  const { rdmaDestination: memory } = header.extensions;
  if (!memory) return [];
  return [{ type: ControlMessageType.RDMA_DEST, cookie: makeCookie(memory.rkey, memory.offset) }];
}

/** Converts control messages to header extensions. */
export function extensionsOf(control: readonly SendControl[], isAfterUdp: boolean): Extensions {
  if (control.length === 0) return isAfterUdp ? { isAfterUdp } : noExtensions();
  const args = control.find((one) => one.type === ControlMessageType.RDMA_ARGS);
  const dest = control.find((one) => one.type === ControlMessageType.RDMA_DEST);
  return {
    ...(args && { rdmaRkey: rkeyOf(args.cookie) }),
    ...(dest && { rdmaDestination: { rkey: rkeyOf(dest.cookie), offset: offsetOf(dest.cookie) } }),
    ...(isAfterUdp && { isAfterUdp }),
  };
}
