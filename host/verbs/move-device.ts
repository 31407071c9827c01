/** `context.moveTo`: a device goes to another address of its machine, with its memory and keys. */
import { ContextLayout, ContextSlotLayout, PathLayout } from '#build/abi.js';
import type { Device } from '../device/device.js';
import { structAt } from '../engine/struct.js';
import { LinkError } from '../errors/errors.js';
import type { LinkInfo } from '../link/link.js';
import type { ContextInternals } from './internals.js';

/** As `Context.moveTo`. */
export async function moveDevice(
  context: ContextInternals,
  address: string,
  port: number,
): Promise<void> {
  const { device, siblings } = context;
  const { link, progress } = device;
  if (device.isCommon) throw staysError('a device that processes or threads share');
  if ([...siblings.observers].some(({ stays }) => stays)) throw staysError('the device of a node');
  const apply = (info: LinkInfo): void => take(device, info);
  if (progress.moveTo) await progress.moveTo(address, port, apply);
  else if (link?.moveTo) apply(await link.moveTo(address, port));
  else throw staysError(`link ${device.info.name}`);
  device.events?.peerGone?.(undefined);
}

/** While no thread runs the engine. */
function take(device: Device, info: LinkInfo): void {
  device.info = info;
  const { memory } = device.arena;
  const context = structAt(memory, ContextLayout, device.engine.context);
  const gid = new DataView(info.local.gid.bytes.buffer);
  context.localGid0 = gid.getBigUint64(0, true);
  context.localGid1 = gid.getBigUint64(8, true);
  context.localPort = info.local.port;
  structAt(memory, ContextSlotLayout, context.slot).port = info.local.port;
  // Its addresses are computed again for the next packet of a stranger (receive.ts of the engine).
  const stranger = structAt(memory, PathLayout, context.strangerPath);
  stranger.remoteGid0 = stranger.remoteGid1 = 0n;
}

function staysError(what: string): LinkError {
  const remedy = 'close this device and open one at the new address';
  return new LinkError('EOPNOTSUPP', `moveTo: ${what} stays at its address; ${remedy}`);
}
