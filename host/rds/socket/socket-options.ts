/** The options of a socket (`getsockopt`, `setsockopt`). */
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { endpointOf, type RdsAddress } from './address.js';
import {
  AF_INET_OFFLOAD,
  RdsOption,
  SOCK_DGRAM,
  SOL_RDS,
  SOL_SOCKET,
  SocketOption,
} from '../wire/constants.js';
import type { RdsNode } from '../node.js';
import type { Notifications } from './notifications.js';
import { SEND_BYTES_DEFAULT, type Port } from '../protocol/port.js';
import { notHere } from '../sharing/owner-proxy.js';

export class SocketOptions {
  /** RECVERR: report each operation that fails, even without NOTIFY_ME. */
  tellsErrors = false;
  readonly #node: RdsNode;
  readonly #notifications: Notifications;
  #port: Port | undefined;
  #receiveHint = 0;
  #sendBytes = SEND_BYTES_DEFAULT;

  constructor(node: RdsNode, notifications: Notifications) {
    this.#node = node;
    this.#notifications = notifications;
  }

  /** Applies the options when the socket is bound. */
  bound(port: Port): void {
    this.#port = port;
    port.sendBytesLimit = this.#sendBytes;
    port.raiseReceiveLimit(this.#receiveHint);
  }

  /** Throws RefusalError ENOPROTOOPT. */
  get(level: number, name: number): number {
    const { MaxDataRecvBuffers } = this.#node.core.parameters;
    const limit = this.#port?.receiveLimit ?? MaxDataRecvBuffers;
    const values: { readonly [option: string]: number } = {
      [`${SOL_SOCKET} ${SocketOption.SO_TYPE}`]: SOCK_DGRAM,
      [`${SOL_SOCKET} ${SocketOption.SO_DOMAIN}`]: AF_INET_OFFLOAD,
      [`${SOL_SOCKET} ${SocketOption.SO_ERROR}`]: 0,
      [`${SOL_SOCKET} ${SocketOption.SO_SNDBUF}`]: this.#sendBytes,
      [`${SOL_SOCKET} ${SocketOption.SO_RCVBUF}`]: Math.max(limit, this.#receiveHint),
      [`${SOL_RDS} ${RdsOption.RECVERR}`]: Number(this.tellsErrors),
    };
    const value = values[`${level} ${name}`];
    if (value === undefined) {
      throw new RefusalError(
        'ENOPROTOOPT',
        `getsockopt: unknown option ${name} of level ${level}; RDS(7) lists them`,
      );
    }
    return value;
  }

  /** Throws MisuseError; RefusalError ENOPROTOOPT, EOPNOTSUPP. */
  set(level: number, name: number, value: number | bigint | RdsAddress): void {
    if (level === SOL_RDS) return this.#setOfRds(name, value);
    if (typeof value !== 'number')
      throw new MisuseError('value', `must be a number, got ${typeof value}`);
    const isKnown = name === SocketOption.SO_RCVBUF || name === SocketOption.SO_SNDBUF;
    if (level !== SOL_SOCKET || !isKnown) {
      throw new RefusalError(
        'ENOPROTOOPT',
        `setsockopt: unknown option ${name} of level ${level}; RDS(7) lists them`,
      );
    }
    checkWhole('value', value, 1, 0x7fffffff);
    if (name === SocketOption.SO_SNDBUF) {
      this.#sendBytes = value;
      if (this.#port) this.#port.sendBytesLimit = value;
      return;
    }
    this.#receiveHint = Math.max(this.#receiveHint, value);
    if (this.#port) this.#node.core.raiseReceiveLimit(this.#node.now, this.#port, value);
    this.#node.arm();
  }

  #setOfRds(name: number, value: number | bigint | RdsAddress): void {
    const { core, now } = this.#node;
    if (typeof value === 'object') {
      if (name !== RdsOption.CANCEL_SENT_TO) throw notOfRds(name);
      if (core.elsewhere) throw notHere('CANCEL_SENT_TO');
      if (this.#port) core.cancel(now, this.#port, endpointOf(value), value.port);
      return this.#node.arm();
    }
    if (typeof value === 'number' && !Number.isInteger(value)) {
      throw mustBe('value', 'a whole number', value);
    }
    if (name === RdsOption.RECVERR) this.tellsErrors = Number(value) !== 0;
    else if (name === RdsOption.CONG_MONITOR) {
      this.#notifications.monitor(BigInt.asUintN(64, BigInt(value)));
    } else throw notOfRds(name);
  }
}

function notOfRds(name: number): RefusalError {
  const rule = `SOL_RDS has no option ${name} with a value of this type; see RdsOption`;
  return new RefusalError('ENOPROTOOPT', `setsockopt: ${rule}`);
}
