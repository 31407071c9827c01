/**
 * `node --import verbena/offload app.js`: from here on `node:dgram`, imported or required, is
 * `verbena/dgram`. The program's own files are loaded after this one. An invalid `VERBENA_DGRAM`
 * ends the process before them, with a line and the exit code of an invalid option.
 */
import { subscribe } from 'node:diagnostics_channel';
import type dgram from 'node:dgram';
import { syncBuiltinESMExports } from 'node:module';
import { MisuseError } from '../errors/errors.js';
import { replacePlain } from '../link/plain-dgram.js';
import { Socket, createSocket } from './index.js';
import { processEnvironment } from './settings.js';
import { handOver } from './socket.js';

/** Exit code of the commands for an invalid option. */
const INVALID = 2;

try {
  processEnvironment();
} catch (error) {
  if (!(error instanceof MisuseError)) throw error;
  process.stderr.write(`verbena/offload: ${error.message}\n`);
  process.exit(INVALID);
}

replacePlain(createSocket, Socket as unknown as typeof dgram.Socket);
syncBuiltinESMExports();

/** A child process, or this process as the child of another. */
interface Sender {
  send?: (message: unknown, handle?: unknown, ...rest: unknown[]) => boolean;
  spawn?: (...args: unknown[]) => unknown;
}

/** A socket that is sent to another process has two readers: its datagrams go by UDP only. */
function watchSend(sender: Sender): void {
  const { send } = sender;
  if (!send) return;
  sender.send = function (message, handle, ...rest) {
    handOver(handle);
    return Reflect.apply(send, this, [message, handle, ...rest]) as boolean;
  };
}

watchSend(process as Sender);
// Node publishes each child process before it is spawned; the channel to the child adds `send`.
subscribe('child_process', (message) => {
  const { process: child } = message as { process: Sender };
  const { spawn } = child;
  child.spawn = function (...args) {
    const result: unknown = Reflect.apply(spawn!, this, args);
    watchSend(this);
    return result;
  };
});
