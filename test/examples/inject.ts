/**
 * Loaded before everything else into each process and thread of an example (`--import`): counts the
 * calls that our host code makes of the system, and makes one of them fail. What is called where is
 * written to a file, a line for each call: `call PID PROCESS/THREAD NAME ERRNO`.
 *
 * VERBENA_INJECT is a JSON `Injection`.
 */
import fs, { appendFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import dgram from 'node:dgram';
import net from 'node:net';
import dns from 'node:dns';
import workers, { isMainThread, threadId, type WorkerOptions } from 'node:worker_threads';
import { constants } from 'node:os';

export interface Injection {
  /** Gets the lines. */
  readonly log: string;
  /** Which call fails: `PROCESS/THREAD NAME`, and its number among those, from 1 on. */
  readonly at?: string;
  readonly number?: number;
}

const { log, at, number = 0 } = JSON.parse(process.env['VERBENA_INJECT']!) as Injection;
// Threads get what their process says; they have no words of their own.
if (isMainThread) process.env['VERBENA_INJECT_PROCESS'] = process.argv[2] ?? 'start';
const here = `${process.env['VERBENA_INJECT_PROCESS']}/${isMainThread ? 'main' : `thread${threadId}`}`;
const counts = new Map<string, number>();
/** Called all the time; more than the first few are all the same. */
const FREQUENT = new Set(['sendmmsg', 'recvmmsg', 'ppoll', 'read', 'write', 'sendto']);
const FREQUENT_COUNTED = 2;

/** Errno that the system would return. */
const ERRNO: Readonly<Record<string, string>> = {
  ...{ open: 'EMFILE', openSync: 'EMFILE', socket: 'EMFILE', eventfd: 'EMFILE', mmap: 'ENOMEM' },
  ...{ ftruncateSync: 'ENOSPC', posix_fallocate: 'ENOSPC', writeSync: 'ENOSPC', bind: 'EACCES' },
  ...{ setsockopt: 'ENOMEM', getsockopt: 'ENOBUFS', getsockname: 'ENOBUFS', fcntl: 'ENOLCK' },
  ...{ sendmmsg: 'ENOBUFS', recvmmsg: 'ENOMEM', ppoll: 'ENOMEM', unlinkSync: 'EACCES' },
  ...{ mkdtempSync: 'EACCES', connect: 'ENETUNREACH', listen: 'EMFILE', lookup: 'EAI_AGAIN' },
  ...{ 'koffi.load': 'EOPNOTSUPP', 'Worker.start': 'EAGAIN' },
  ...{ Worker: 'EAGAIN', createSocket: 'EMFILE', sendto: 'EPERM' },
};
const errnoOf = (name: string): string => ERRNO[name] ?? 'EIO';
const numberOf = (code: string): number =>
  (constants.errno as Readonly<Record<string, number>>)[code] ?? 5;

/**
 * The removal of dead files calls once for each file that other processes have in the directory at
 * this moment: its calls are counted by themselves, so that the number of every other one is fixed.
 */
function isForOthers(): boolean {
  return new Error().stack!.includes('removeDeadFile');
}

/** Counts a call; true: it is the one that fails. */
function isDue(name: string): boolean {
  const others = !FREQUENT.has(name) && isForOthers();
  const place = `${here} ${others ? 'others.' : ''}${name}`;
  const count = (counts.get(place) ?? 0) + 1;
  counts.set(place, count);
  if (FREQUENT.has(name) && count > FREQUENT_COUNTED) return false;
  appendFileSyncReal(log, `call ${process.pid} ${place} ${errnoOf(name)}\n`);
  return place === at && count === number;
}

function systemError(name: string): Error {
  const code = errnoOf(name);
  const syscall = name.replace(/Sync$/, '');
  const error = new Error(`${code}: injected failure, ${syscall}`);
  return Object.assign(error, { code, errno: -numberOf(code), syscall });
}

/** Whether it is our host, and no loader or test, that calls. */
function isOurs(): boolean {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 8;
  const frames = new Error().stack!.split('\n').slice(1);
  Error.stackTraceLimit = stackTraceLimit;
  const caller = frames.find((line) => !line.includes('node:') && !line.includes('inject.js'));
  return caller?.includes('/build/host/') ?? false;
}

const appendFileSyncReal = appendFileSync;
type Callable = (this: unknown, ...args: unknown[]) => unknown;

/** Calls that release a resource do so, and then report a failure. */
const GIVES_BACK = new Set(['closeSync', 'close']);

function replace(object: object, name: string, isAsync: boolean): void {
  const methods = object as Record<string, Callable>;
  const real = methods[name]!;
  methods[name] = function (...args) {
    if (!isOurs() || !isDue(name)) return real.apply(this, args);
    if (GIVES_BACK.has(name)) real.apply(this, args);
    if (isAsync) return Promise.reject(systemError(name));
    throw systemError(name);
  };
}

const FS_CALLS = [
  ...['openSync', 'closeSync', 'readSync', 'writeSync', 'ftruncateSync', 'fstatSync', 'statSync'],
  ...['fsyncSync', 'fdatasyncSync', 'renameSync', 'unlinkSync', 'readFileSync', 'mkdtempSync'],
];
for (const name of FS_CALLS) replace(fs, name, false);
for (const name of ['open', 'readFile', 'readdir', 'readlink', 'lookup']) {
  if (name in fs.promises) replace(fs.promises, name, true);
}
replace(dns.promises, 'lookup', true);
replace(dgram, 'createSocket', false);

/** Sockets of Node say so later, by an event. */
for (const [prototype, name] of [
  [dgram.Socket.prototype, 'bind'],
  [dgram.Socket.prototype, 'connect'],
  [net.Server.prototype, 'listen'],
] as const) {
  const methods = prototype as unknown as Record<string, Callable>;
  const real = methods[name]!;
  methods[name] = function (this: unknown, ...args) {
    if (!isOurs() || !isDue(name)) return real.apply(this, args);
    const error = systemError(name);
    // A datagram socket reports it to the callback of connect only.
    const told = args.at(-1);
    const isTold = name === 'connect' && typeof told === 'function';
    process.nextTick(() => {
      if (isTold) (told as (error: Error) => void)(error);
      else (this as NodeJS.EventEmitter).emit('error', error);
    });
    return this;
  } as Callable;
}

const RealWorker = workers.Worker;
workers.Worker = class Worker extends RealWorker {
  constructor(file: string | URL, options?: WorkerOptions) {
    if (isDue('Worker')) {
      const message = 'Worker initialization failure: EAGAIN';
      throw Object.assign(new Error(message), { code: 'ERR_WORKER_INIT_FAILED' });
    }
    super(file, options);
    // Memory may be short, and it is gone before its first word.
    if (isDue('Worker.start')) void this.terminate();
  }
};
syncBuiltinESMExports();

interface Library {
  func(signature: string): Callable;
}
const { default: koffi } = (await import('koffi')) as unknown as {
  default: { load(path: null): Library; errno(value?: number): number };
};
const load = koffi.load;
koffi.load = (path) => {
  if (isDue('koffi.load')) throw new Error('injected failure, koffi.load');
  const library = load(path);
  return { func: (signature) => failing(library.func(signature), signature) };
};

function failing(real: Callable, signature: string): Callable {
  const name = /(\w+)\(/.exec(signature)![1]!;
  if (name === 'geteuid') return real;
  return (...args) => {
    if (!isDue(name)) return real(...args);
    if (GIVES_BACK.has(name)) real(...args);
    const errno = numberOf(errnoOf(name));
    // It returns the errno instead of setting it.
    if (name === 'posix_fallocate') return errno;
    if (name === 'if_nametoindex') return 0;
    koffi.errno(errno);
    return -1;
  };
}

appendFileSyncReal(log, `pid ${process.pid}\n`);
