/** Rules of the regions that an application names, which TypeScript holds at compile time. */
import { checkObject } from '../base/options.js';
import { checkFunction, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { hex, parseRegion } from './hello.js';

/** Throws MisuseError. */
export function checkRegionTypes(
  operation: string,
  argument: string,
  {
    layout,
    registered,
    rights,
  }: { readonly layout?: unknown; readonly registered?: unknown; readonly rights?: unknown },
): void {
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

/** `list`: of a function `layout`. Throws MisuseError. */
export function checkLayoutList(name: string, list: unknown): void {
  if (Array.isArray(list)) return;
  const rule = `share: must return a list of entries, got ${shown(list)}`;
  throw new MisuseError(`regions.${name}.layout`, rule);
}
