/**
 * Descriptors of the program, for requests that need one. A socket of their own carries each before
 * its request (sidecar.c), so that nothing depends on rights to /proc/PID/fd.
 */
import { RefusalError } from '../errors/errors.js';
import type { Posix } from '../link/posix.js';
import type { Handler, Handlers } from './control-channel.js';
import type { Operation } from './operations.js';

const OPERATIONS: readonly Operation[] = ['OPEN_CONTEXT', 'CREATE_CHANNEL', 'CM_CREATE_CHANNEL'];

/**
 * Gives the handlers that need one the descriptor that came for their request; it is closed if they
 * throw. A request that is refused before its handler takes its descriptor as well. `pass`: the
 * socket.
 */
export function withDescriptors(handlers: Handlers, posix: Posix, pass: number): Handlers {
  const taking = OPERATIONS.map((name) => {
    const handle: Handler = handlers[name];
    const take: Handler = () => {
      const descriptor = posix.receiveDescriptor(pass);
      if (descriptor === undefined) {
        throw new RefusalError(
          'EBADF',
          `${name}: no descriptor came with the request; raise the limit of open files (ulimit -n)`,
        );
      }
      try {
        return handle(BigInt(descriptor));
      } catch (error) {
        posix.close(descriptor);
        throw error;
      }
    };
    return [name, take] as const;
  });
  return { ...handlers, ...Object.fromEntries(taking) };
}
