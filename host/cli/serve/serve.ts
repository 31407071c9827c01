/** `verbena serve`: takes files that `verbena put` writes into this process's memory. */
import { MisuseError } from '../../errors/errors.js';
import { serverAccess } from '../file-transfer/access.js';
import { ConnectionLost } from '../../transfer/channel.js';
import { FileServer, type FileServerOptions } from './file-server.js';
import { formatBytes, formatCount, formatRate, formatSeconds } from '../base/format.js';
import { hasFaults } from '../base/open-device.js';
import { faultsOf } from '../base/options.js';
import type { ServeOptions } from './options.js';
import { servePmem } from './pmem-server.js';
import { Exit, complain, describeError, printLine } from '../base/report.js';
import { parseRoomAddress } from '../base/room-address.js';
import { describeStorage } from '../base/storage.js';
import { placeOfPath } from '../../pmem/place.js';
import type { FileReceiverEvents } from '../../transfer/file-receiver.js';
import type { PutRequest, SessionEnd } from '../../transfer/session.js';

export async function serve(options: ServeOptions): Promise<number> {
  // The signalling server admits the members of a room, and DTLS proves their addresses.
  const bind = options.room === undefined ? options.bind : '127.0.0.1';
  const access = await serverAccess({ ...options, bind });
  const { pmem, pmemBytes } = options;
  if (pmem !== undefined) return servePmem({ ...options, pmem }, access);
  if (pmemBytes !== undefined) throw new MisuseError('--pmem-bytes', 'requires --pmem FILE');
  const { auth, made } = access;
  const server = await FileServer.open(
    { ...serverOptions(options), auth },
    logEvents('serve', options.json),
  );
  const { local } = server.context;
  const stopped = new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
  });
  const storage = placeOfPath(server.directory);
  await print(
    options.json,
    {
      ...{ event: 'serving', directory: server.directory, address: `${local}`, pid: process.pid },
      ...{ durability: storage.durability, durabilityReason: storage.reason },
      ...{ wantsKey: auth !== undefined, ...(made === undefined ? {} : { token: made }) },
    },
    `serving ${server.directory} on ${local}: up to ${options.maxClients} at once, ` +
      `${formatBytes(options.windowBytes)} of memory each; ctrl-C ends` +
      (hasFaults(options) ? '; with made-up faults' : ''),
  );
  if (!options.json) await printLine(`  durability: ${describeStorage(storage)}`);
  if (!options.json && made !== undefined) await printLine(`  clients need: --token ${made}`);
  const failed = watchLink(server);
  const reason = await Promise.race([stopped, failed]);
  await server.close();
  if (reason) throw reason;
  return Exit.OK;
}

/** Resolves with why the device's link is gone. */
async function watchLink(server: FileServer): Promise<Error> {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 500).unref());
    if (server.context.failure) return server.context.failure;
  }
}

function serverOptions(options: ServeOptions): FileServerOptions {
  return {
    directory: options.dir,
    address: options.bind,
    port: options.port,
    dscp: options.dscp,
    clientsMax: options.maxClients,
    windowBytes: options.windowBytes,
    faults: faultsOf(options),
    quotaBytes: options.quota,
    expireMillis: options.expire * 3_600_000,
    ...(options.pcap === undefined ? {} : { pcap: options.pcap }),
    ...(options.room === undefined ? {} : roomOptions(options.room)),
  };
}

/** Reports a signalling server that is not reached once, until the reason is another one. */
function roomOptions(text: string): Pick<FileServerOptions, 'room' | 'onRoomLost'> {
  let reported = '';
  const onRoomLost = (error: Error): void => {
    const sentence = describeError(error);
    if (sentence !== reported) complain('serve', `no member can find this server: ${sentence}`);
    reported = sentence;
  };
  return { room: parseRoomAddress(text), onRoomLost };
}

async function print(json: boolean | undefined, event: object, line: string): Promise<void> {
  await printLine(json ? JSON.stringify(event) : line);
}

/** Writes what happens: arrivals to standard output, trouble to standard error. */
export function logEvents(command: string, json: boolean | undefined): FileReceiverEvents {
  return {
    started({ name, size }, remote, piecesKnown, note) {
      if (note !== '') complain(command, note);
      if (piecesKnown === 0) return;
      const line = `${remote} goes on with ${name}: ${formatCount(piecesKnown, 'piece')} are here`;
      void print(json, { event: 'resumed', name, bytes: size, remote, piecesKnown }, line);
    },
    ended(request, remote, end) {
      logEnd(command, json, request, remote, end);
    },
    refused(remote, error) {
      const verb = error instanceof ConnectionLost ? 'no request from' : 'refused';
      complain(command, `${verb} ${remote || 'a client that is gone'}: ${describeError(error)}`);
    },
  };
}

function logEnd(
  command: string,
  json: boolean | undefined,
  { name, size }: PutRequest,
  remote: string,
  end: SessionEnd,
): void {
  if (end.kind === 'finished') {
    const { seconds, sha256, piecesReceived } = end;
    void print(
      json,
      { event: 'received', name, bytes: size, remote, seconds, sha256, piecesReceived },
      `received ${name} from ${remote}: ${formatBytes(size)} in ${formatSeconds(seconds)}, ` +
        `${formatRate(size, seconds)}, SHA-256 ${sha256}`,
    );
    return;
  }
  const { piecesSynced, pieceCount } = end;
  const kept = piecesSynced > 0 ? `; ${piecesSynced} of ${pieceCount} pieces are kept` : '';
  const why = end.kind === 'lost' ? end.reason : describeError(end.error);
  complain(command, `${name} from ${remote} is not complete: ${why}${kept}`);
}
