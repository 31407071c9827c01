/** Rules of `share` and its regions for the applications of Node; a page saves their bytes. */
import { checkKeys, checkObject } from '../base/options.js';
import { checkMillis } from '../base/timer.js';
import { checkFunction, checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { hex, parseRegion } from './hello.js';

/** Throws MisuseError for what has no names. */
export function checkRegions(operation: string, argument: string, regions: unknown): void {
  try {
    checkObject(operation, regions, argument);
  } catch (error) {
    const rule = (error as Error).message.slice(`${argument}: `.length);
    throw new MisuseError(argument, `${rule}; pass regions by name, as in { table: 4096 }`);
  }
}

/** Throws MisuseError. */
export function checkRegionSource(operation: string, argument: string, source: unknown): void {
  if (ArrayBuffer.isView(source)) return checkArray(operation, argument, source);
  if (typeof source === 'object' && source !== null) return;
  const rule = `${operation}: a region is a size, a typed array or an object with options`;
  throw new MisuseError(argument, `${rule}, got ${typeof source}`);
}

/** Throws MisuseError. A DataView has no elements, so the region would have no type. */
function checkArray(operation: string, argument: string, array: unknown): void {
  if (ArrayBuffer.isView(array) && !(array instanceof DataView)) return;
  const rule = `${operation}: must be a typed array; of a DataView pass new Uint8Array(its buffer)`;
  throw new MisuseError(argument, rule);
}

/** Throws MisuseError. */
export function checkRegionTypes(
  operation: string,
  argument: string,
  source: Readonly<Partial<Record<'array' | 'layout' | 'registered' | 'rights', unknown>>>,
): void {
  const { array, layout, registered, rights } = source;
  if (array !== undefined) checkArray(operation, `${argument}.array`, array);
  checkFunction(`${argument}.layout`, layout);
  if (registered !== undefined) checkRegistered(operation, `${argument}.registered`, registered);
  if (rights === undefined || Array.isArray(rights)) return;
  const rule = `${operation}: must be an array of read, write, atomic, got ${shown(rights)}`;
  throw new MisuseError(`${argument}.rights`, rule);
}

type Registered = Readonly<Record<'addr' | 'rkey' | 'length' | 'flush', unknown>>;

/** Throws MisuseError. */
function checkRegistered(operation: string, argument: string, region: unknown): void {
  // A MemoryRegion has more than the fields that count.
  checkObject(operation, region, argument);
  const { addr, rkey, length, flush } = region as Registered;
  const isValid = parseRegion(['x', typeof addr === 'bigint' && hex(addr), length, rkey, 0]);
  if (isValid && (flush === undefined || flush === 'visible' || flush === 'durable')) return;
  const rule = `${operation}: takes addr (bigint), rkey and length (numbers) of a region`;
  throw new MisuseError(argument, `${rule}, and flush 'visible' or 'durable'`);
}

/** `list`: of a function `layout`. Throws TypeError. */
export function checkLayoutList(list: unknown): void {
  const wrong = Array.isArray(list) ? (list as unknown[]).find(isNoEntry) : list;
  if (Array.isArray(list) && !list.some(isNoEntry)) return;
  const rule = `must return a list of entries, got ${shown(wrong)}`;
  throw new TypeError(`${rule}; return that of matrixColumn, or a list of Sge`);
}

function isNoEntry(entry: unknown): boolean {
  return typeof entry !== 'object' || entry === null;
}

/** Sets a layout. Its errors have the name of its region, and the error as `cause`. */
export function withLayoutName(operation: string, argument: string, set: () => void): void {
  try {
    set();
  } catch (error) {
    const name = `${argument}.layout`;
    const sentence = error instanceof Error ? error.message : shown(error);
    if (error instanceof RefusalError) {
      const text = sentence.replace(` (${error.code})`, '');
      throw new RefusalError(error.code, `${name}: ${operation}: ${text}`, { cause: error });
    }
    throw Object.assign(new MisuseError(name, `${operation}: ${sentence}`), { cause: error });
  }
}

/** Throws MisuseError for a key that the device of the domain does not know, or not any more. */
export function checkRegisteredKey(
  operation: string,
  argument: string,
  { context }: ProtectionDomain,
  { rkey }: { readonly rkey: number },
): void {
  const { arena, engine, closed } = context.device;
  if (!closed && arena.exports.mrNote(engine.context, rkey) !== 0) return;
  const rule = `${operation}: key 0x${rkey.toString(16)} is deregistered, or of another device`;
  throw new MisuseError(
    `${argument}.registered`,
    `${rule}; register the region with the domain of the option pd`,
  );
}

/** Throws MisuseError. */
export function checkReconnect(reconnect: {
  readonly attempts?: number;
  readonly delayMillis?: number;
  readonly delayMaxMillis?: number;
  readonly onReconnect?: unknown;
}): void {
  checkObject('connect', reconnect, 'reconnect');
  checkKeys('reconnect', reconnect, 'attempts delayMillis delayMaxMillis onReconnect');
  const { attempts, delayMillis, delayMaxMillis, onReconnect } = reconnect;
  checkFunction('onReconnect', onReconnect);
  if (attempts !== undefined && attempts !== Infinity) checkWhole('attempts', attempts, 1);
  if (delayMillis !== undefined) checkMillis('delayMillis', delayMillis);
  if (delayMaxMillis !== undefined) checkMillis('delayMaxMillis', delayMaxMillis);
  checkDelays(reconnect);
}

/** Throws MisuseError for options of `share`. */
export function checkServerOptions({
  lendBytes,
  clientsMax,
  clientsPerSource,
  onClient,
  onError,
}: {
  readonly lendBytes?: number;
  readonly clientsMax?: number;
  readonly clientsPerSource?: number;
  readonly onClient?: unknown;
  readonly onError?: unknown;
}): void {
  if (lendBytes !== undefined) checkWhole('lendBytes', lendBytes, 0, 2 ** 32 - 1);
  if (clientsMax !== undefined) checkWhole('clientsMax', clientsMax, 1, 65536);
  if (clientsPerSource !== undefined) checkWhole('clientsPerSource', clientsPerSource, 1, 65536);
  checkFunction('onClient', onClient);
  checkFunction('onError', onError);
}

/** Throws MisuseError for the options of `reconnect`, if the first delay exceeds the longest one. */
function checkDelays(delays: {
  readonly delayMillis?: number;
  readonly delayMaxMillis?: number;
}): void {
  const { delayMillis = 0, delayMaxMillis = Infinity } = delays;
  if (delayMillis <= delayMaxMillis) return;
  const rule = `connect: ${delayMillis} ms exceed delayMaxMillis, ${delayMaxMillis} ms`;
  throw new MisuseError('reconnect.delayMillis', `${rule}; raise delayMaxMillis or lower this`);
}

/** Throws MisuseError for options of `connect`. */
export function checkNoLimits(options: object): void {
  checkObject('share', options);
  const found = ['timeout', 'signal', 'reconnect'].find((name) => name in options);
  if (found === undefined) return;
  const rule = `share has no ${found}: it resolves once its port is bound`;
  throw new MisuseError(
    found,
    `${rule}; await server.close() ends the server, connect has ${found}`,
  );
}
