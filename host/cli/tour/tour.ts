/**
 * `verbena tour [FILE]` (`npm start`): two processes of the operating system on loopback UDP. This
 * one serves; a second one puts a real file into its memory and so onto its disk.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { open, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LinkError, RefusalError } from '../../errors/errors.js';
import { ROCE_PORT } from '../../link/link.js';
import { FileServer, type FileServerOptions } from '../serve/file-server.js';
import { formatBytes, formatCount, formatRate, formatSeconds } from '../base/format.js';
import { fileRefusal } from '../../errors/file-refusal.js';
import { faultArguments, faultsOf } from '../base/options.js';
import { hasFaults, type FaultPercents } from '../base/open-device.js';
import { readFully } from '../../transfer/directory-part.js';
import { Exit, Interrupted, complain, printLine } from '../base/report.js';
import { logEvents } from '../serve/serve.js';
import { findTourFile, type TourFile } from './tour-file.js';
import type { PutReport } from '../put/put.js';

export interface TourOptions extends FaultPercents {
  readonly pcap?: string;
  readonly json?: boolean;
}

const SERVER_ADDRESS = '127.0.0.1';
const CLIENT_ADDRESS = '127.0.0.2';
const CLIENTS_MAX = 1;
const WINDOW_BYTES = 8 * 2 ** 20;
const MAIN = fileURLToPath(new URL('../../../verbena.js', import.meta.url));

export async function tour(path: string | undefined, options: TourOptions): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), 'verbena-tour-'));
  let server: FileServer | undefined;
  let child: ChildProcess | undefined;
  let interrupted = false;
  const onSignal = (): void => {
    interrupted = true;
    child?.kill('SIGTERM');
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  try {
    const file = path === undefined ? await findTourFile(directory) : await named(path);
    server = await openServer(directory, options);
    const say = options.json ? async (): Promise<void> => undefined : printLine;
    await introduce(say, file, server, options);
    const client = await startClient(file, server, options);
    child = client.child;
    if (interrupted) child.kill('SIGTERM');
    const report = await client.report;
    if (interrupted) throw new Interrupted('interrupted');
    if (!report) throw new RefusalError('EIO', 'the second process failed; see its error line');
    await compare(file.path, join(directory, report.name));
    const counters = server.counters;
    await server.close();
    if (options.json) await printLine(JSON.stringify({ ...report, verified: true }));
    else await conclude(report, file, Number(counters.retransmittedPkts), options);
    return Exit.OK;
  } finally {
    process.off('SIGINT', onSignal).off('SIGTERM', onSignal);
    await server?.close();
    await rm(directory, { recursive: true, force: true });
  }
}

async function named(path: string): Promise<TourFile> {
  await stat(path).catch((error: unknown) => {
    throw fileRefusal(`cannot read ${path}`, error);
  });
  return { path, what: 'your file' };
}

/** On RoCE's port where it is free, on any other where it is not. */
async function openServer(directory: string, options: TourOptions): Promise<FileServer> {
  const wanted: FileServerOptions = {
    directory,
    address: SERVER_ADDRESS,
    port: ROCE_PORT,
    clientsMax: CLIENTS_MAX,
    windowBytes: WINDOW_BYTES,
    faults: faultsOf(options),
    ...(options.pcap === undefined ? {} : { pcap: options.pcap }),
  };
  // `conclude` reports the received file; the client's lines report the rest.
  const log = { ...logEvents('tour', true), started: () => undefined, ended: () => undefined };
  try {
    return await FileServer.open(wanted, log);
  } catch (error) {
    if (!(error instanceof LinkError) || error.code !== 'EADDRINUSE') throw error;
    complain('tour', `${error.message}; going on with a free port`);
    return FileServer.open({ ...wanted, port: 0 }, log);
  }
}

async function introduce(
  say: (line: string) => Promise<void>,
  { path, what }: TourFile,
  server: FileServer,
  options: TourOptions,
): Promise<void> {
  const { size } = await stat(path);
  await say(
    `Process ${process.pid} lends ${formatBytes(WINDOW_BYTES)} of its memory at ${server.context.local}.`,
  );
  await say(`A second one puts ${what} into it: ${path}, ${formatBytes(size)}.`);
  if (hasFaults(options)) await say('The wire between them is bad on purpose.');
}

/** The second process; `report` is undefined when it failed (and said why on standard error). */
async function startClient(
  { path }: TourFile,
  server: FileServer,
  options: TourOptions,
): Promise<{ child: ChildProcess; report: Promise<PutReport | undefined> }> {
  const { seed, ...rates } = faultsOf(options);
  // Not the server's faults once more.
  const faults = { ...rates, ...(seed === undefined ? {} : { seed: (seed + 1) % 2 ** 32 }) };
  const child = spawn(
    process.execPath,
    [
      MAIN,
      'put',
      path,
      `${server.context.local}`,
      '--json',
      ...(await clientAddress()),
      ...faultArguments(faults),
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  const report = new Promise<PutReport | undefined>((resolveReport, reject) => {
    child.on('error', reject);
    child.on('close', (code) => {
      resolveReport(code === 0 ? (JSON.parse(output) as PutReport) : undefined);
    });
  });
  return { child, report };
}

/** 127.0.0.2:4791 where it is there and free; otherwise what the system chooses. */
async function clientAddress(): Promise<string[]> {
  const socket = createSocket('udp4');
  try {
    await new Promise<void>((resolveBind, reject) => {
      socket.once('error', reject);
      socket.bind({ address: CLIENT_ADDRESS, port: ROCE_PORT, exclusive: true }, resolveBind);
    });
    return ['--bind', CLIENT_ADDRESS, '--local-port', `${ROCE_PORT}`];
  } catch {
    const what = `${CLIENT_ADDRESS}:${ROCE_PORT}`;
    complain('tour', `${what} is taken or missing; the second process uses another address`);
    return [];
  } finally {
    socket.close();
  }
}

/** Compares byte for byte, independently of client and server. */
async function compare(source: string, arrived: string): Promise<void> {
  const [a, b] = [await open(source), await open(arrived)];
  try {
    const { size } = await a.stat();
    let same = (await b.stat()).size === size;
    const [left, right] = [Buffer.alloc(2 ** 20), Buffer.alloc(2 ** 20)];
    for (let at = 0; same && at < size; at += left.length) {
      const length = Math.min(left.length, size - at);
      same = await readFully(a, left.subarray(0, length), at);
      same &&= await readFully(b, right.subarray(0, length), at);
      same &&= left.subarray(0, length).equals(right.subarray(0, length));
    }
    if (!same)
      throw new RefusalError(
        'EIO',
        `${basename(arrived)} differs from ${source}; run the tour again, and report it`,
      );
  } finally {
    await a.close();
    await b.close();
  }
}

async function conclude(
  report: PutReport,
  { path }: TourFile,
  serverRetransmitted: number,
  { pcap }: TourOptions,
): Promise<void> {
  const { bytes, seconds, packetsSent, packetsReceived } = report;
  const again = report.packetsRetransmitted + serverRetransmitted;
  const isStart = process.env['npm_lifecycle_event'] === 'start';
  const tour = isStart ? 'npm start --' : 'npx verbena tour';
  const lines = [
    `Every byte is there: ${formatBytes(bytes)} in ${formatSeconds(seconds)}, ` +
      `${formatRate(bytes, seconds)}; synced to disk, read back and compared.`,
    `${formatCount(packetsSent, 'packet')} went, ${packetsReceived} came back, ` +
      `${again} had to be sent again.`,
    `SHA-256 ${report.sha256}`,
    '',
    'What to try next:',
    ...(pcap === undefined
      ? [
          `  ${tour} --pcap tour.pcap            the same with a capture of every packet`,
          `  ${tour} --loss 5 --reorder 5        the same over a bad wire`,
        ]
      : [
          `  npx verbena decode ${pcap} | head     what the packets say`,
          `  tshark -r ${pcap} -c 20               the same in Wireshark's words`,
        ]),
    '  npx verbena serve --dir /tmp           and in another terminal, or on another machine:',
    `  npx verbena put ${resolve(path)} 127.0.0.1`,
    '  npx verbena --help                     everything else',
  ];
  for (const line of lines) await printLine(line);
}
