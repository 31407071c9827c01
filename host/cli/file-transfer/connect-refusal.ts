/** Sentences of `put` for a connection that is not made. */
import { pskRefusal } from '../base/psk-file.js';
import {
  connectSentence,
  formatServerAddress,
  type ServerAddress,
} from '../base/server-address.js';
import { refusalOfPeer } from '../../transfer/channel.js';

/** Where a key comes from. */
const KEY_OPTIONS = '--psk-file or --token';

/** The error for a failed connect to `server`, at which `command` should run. */
export function connectRefusal(error: unknown, server: ServerAddress, command: string): unknown {
  const place = formatServerAddress(server);
  return (
    refusalOfPeer(error, server) ??
    connectSentence(pskRefusal(error, place, KEY_OPTIONS), server, command)
  );
}
