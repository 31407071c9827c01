/**
 * Sockets of `node:dgram` as Node makes them, also where `verbena/offload` has put others in their
 * place: what reliable datagrams themselves travel by.
 */
import dgram from 'node:dgram';

type CreateSocket = typeof dgram.createSocket;

/** Where another `createSocket` keeps Node's own, for every copy of this file. */
const PLAIN = Symbol.for('verbena.dgram.plain');

interface Plain {
  readonly createSocket: CreateSocket;
  readonly Socket: typeof dgram.Socket;
}

const known = (dgram.createSocket as CreateSocket & { [PLAIN]?: Plain })[PLAIN];

export const plain: Plain = known ?? { createSocket: dgram.createSocket, Socket: dgram.Socket };

export const { createSocket } = plain;

/** Replaces Node's own functions for modules that import or require `node:dgram`. */
export function replacePlain(createSocket: CreateSocket, Socket: typeof dgram.Socket): void {
  dgram.createSocket = Object.assign(createSocket, { [PLAIN]: plain });
  dgram.Socket = Socket;
}
