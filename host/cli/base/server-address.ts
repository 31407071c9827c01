/** Where a server is (`host[:port]`). */
import { isIPv6 } from 'node:net';
import { lookUp } from '../../cm/address-info.js';
import { ConnectError } from '../../cm/connect-error.js';
import { RejectReason, rejectReasonName } from '../../cm/enums.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { localAddressTowards } from '../../link/interface.js';
import { ROCE_PORT } from '../../link/link.js';
import { refusalOf } from '../../link/tcp-refusal.js';
import { formatServerAddress, type ServerAddress } from '../../transfer/server-address.js';
import { complain } from './report.js';

export { formatServerAddress, type ServerAddress };

/** An answer that takes longer is waited for aloud. */
const TIMEOUT_MILLIS = 3000;

/** `host`, `host:port`, `[address]`, `[address]:port`. Throws MisuseError. */
export function parseServerAddress(text: string): ServerAddress {
  const bracketed = /^\[([^\]]+)\](?::(\d{1,5}))?$/.exec(text);
  const plain = /^([^:\s[\]]+)(?::(\d{1,5}))?$/.exec(text);
  // An IPv6 address without brackets has no recognizable end, so it has no port.
  const bare = isIPv6(text) ? [text, text, undefined] : undefined;
  const [, host, portText] = bracketed ?? bare ?? plain ?? [];
  const port = portText === undefined ? ROCE_PORT : Number(portText);
  if (host === undefined || port < 1 || port > 65535 || (bracketed && !isIPv6(host))) {
    throw new MisuseError(
      'address',
      `"${text}" is not host[:port]; write an IPv6 address with a port as [::1]:${ROCE_PORT}`,
    );
  }
  return { host, port };
}

/** The server's numeric address. Rejects with RefusalError ENOENT. */
export async function resolveServer({ host, port }: ServerAddress): Promise<ServerAddress> {
  return { host: await lookUp(host), port };
}

/**
 * Our address towards a server. One on this machine has the UDP port of its address, and what the
 * programs of rdma-core tell each other names no other port: then it is another address of ours.
 * Of IPv6 there is no other. Rejects with RefusalError.
 */
export async function addressBeside(server: string): Promise<string> {
  const local = await localAddressTowards(server);
  if (local !== server || isIPv6(local)) return local;
  return local === '127.0.0.1' ? '127.0.0.2' : '127.0.0.1';
}

/**
 * The connection manager asks again and again, up to a minute: says so where that takes a while.
 * `runs` is what should run there.
 */
export async function whileUnanswered<T>(
  command: string,
  server: string,
  runs: string,
  answer: Promise<T>,
): Promise<T> {
  const sentence = `no answer from ${server} yet: see that "${runs}" runs there`;
  const timer = setTimeout(() => complain(command, sentence), TIMEOUT_MILLIS);
  try {
    return await answer;
  } finally {
    clearTimeout(timer);
  }
}

/** The error for a failed connect of the connection manager; `command` should run at the peer. */
export function connectSentence(error: unknown, server: ServerAddress, command: string): unknown {
  if (!(error instanceof ConnectError)) return error;
  const isNobody = error.reason === RejectReason.INVALID_SERVICE_ID;
  const place = formatServerAddress(server);
  if (error.code === 'ECONNREFUSED' && !isNobody) {
    const remedy = `check that "${command}" of this version runs there, or try again later`;
    const sentence = `${place} refuses with ${rejectReasonName(error.reason)}; ${remedy}`;
    return new RefusalError(error.code, sentence, { cause: error });
  }
  return refusalOf(error.code, place, command, error) ?? error;
}
