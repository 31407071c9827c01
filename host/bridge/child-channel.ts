/**
 * Control verbs of children of the program, which fork has made: each has a connection of its own
 * (child-channel.c). Any process of the machine may connect, so the first request shows the token.
 */
import { createServer, type Socket } from 'node:net';
import { RefusalError } from '../errors/errors.js';
import { ControlChannel, type Handler, type Handlers } from './control-channel.js';

/** For the first request: any process of the machine may connect. */
const JOIN_MILLIS = 2000;
/** Connections at a time. */
const CHILDREN_MAX = 1024;

/** Where children connect, and what they show (child-channel.c). */
interface Children {
  readonly name: string;
  readonly token: readonly bigint[];
}

/** Of the words of HELLO: two for the name, two for the token. */
export function childrenOf([high = 0n, low = 0n, ...token]: readonly bigint[]): Children {
  const name = high.toString(16).padStart(16, '0') + low.toString(16).padStart(16, '0');
  return { name: `verbena-${name}`, token };
}

/** The program itself is no child. */
export const refuseJoin: Handler = () => {
  throw new RefusalError(
    'EINVAL',
    "JOIN: this connection is the program's own; open another one for the child",
  );
};

/** The handlers from the request on that shows the token; each other request before is refused. */
function afterToken(
  token: readonly bigint[],
  handlers: Handlers,
  decided: (isJoined: boolean) => void,
): Handlers {
  let isJoined = false;
  const join: Handler = (...words) => {
    isJoined = words.length === token.length && words.every((word, at) => word === token[at]);
    decided(isJoined);
    if (!isJoined)
      throw new RefusalError(
        'EACCES',
        "JOIN: the token is not the program's; pass its environment on unchanged",
      );
  };
  const guarded = Object.entries<Handler>(handlers).map(([name, handle]) => {
    const checked: Handler = (...words) => {
      if (!isJoined) decided(false);
      if (!isJoined)
        throw new RefusalError(
          'EACCES',
          `${name}: the connection has not joined; send JOIN with a token first`,
        );
      return handle(...words);
    };
    return [name, checked] as const;
  });
  return { ...(Object.fromEntries(guarded) as Handlers), JOIN: join };
}

/** Accepts children until the server is closed. Returns what closes it. */
export function acceptChildren({ name, token }: Children, handlers: Handlers): () => void {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    const end = (): unknown => socket.destroy();
    const timer = setTimeout(end, JOIN_MILLIS);
    const decided = (isJoined: boolean): void => {
      clearTimeout(timer);
      // Behind the refusal.
      if (!isJoined) socket.end(end);
    };
    socket.on('close', () => {
      clearTimeout(timer);
      sockets.delete(socket);
    });
    new ControlChannel(socket, afterToken(token, handlers, decided), end);
  });
  server.maxConnections = CHILDREN_MAX;
  // Without it children get EIO, as from a device that is not there.
  server.on('error', () => {});
  server.listen({ path: `\0${name}`, exclusive: true });
  server.unref();
  return () => {
    server.close();
    for (const socket of sockets) socket.destroy();
  };
}
