/**
 * Shared protection domains (seed 000): handles of 32 bytes that mean the same wherever they lie.
 */
import {
  ArenaLayout,
  Errno,
  PROTECTION_DOMAIN_SIZE,
  ProtectionDomainLayout,
  ShareParametersLayout,
} from '#build/abi.js';
import { layoutOf, structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { ContextInternals, DomainInternals } from '../internals.js';
import { randomId, refuse, taken } from '../refuse.js';

/** A handle. `nonce`: drawn when it was made. */
const HandleLayout = layoutOf({
  deviceId: 'u64',
  nonce: 'u64',
  pd: 'u32',
  magic: 'u32',
  reserved: 'u64',
});
const SHPD_BYTES = HandleLayout.size;
const MAGIC = 0x64706873;

/** @internal */
export function allocShpd(
  pd: DomainInternals,
  shareKey: bigint | number,
  area: Uint8Array = new Uint8Array(SHPD_BYTES),
): Uint8Array {
  const { device } = pd.context;
  const key = checkKey(shareKey);
  checkArea('area', area);
  const nonce = randomId();
  const errno = withParameters(
    pd.context,
    { shareKey: key, nonce, pd: pd.handle, reserved: 0 },
    (at) => device.arena.exports.allocShpd(device.engine.context, at),
  );
  refuse(errno, 'allocShpd', {
    EBUSY: 'the protection domain has a handle already; use that',
    EINVAL: 'the protection domain has ended; allocate another',
  });
  pd.context.siblings.setSharable(pd.handle);
  return writeHandle(pd, nonce, area);
}

/**
 * @internal As `allocShpd`; a domain has one handle, so that of an earlier call if the domain has
 * one. `verb`: for errors. Throws RefusalError EINVAL: it has one with another share key.
 */
export function publicHandle(
  verb: string,
  pd: DomainInternals,
  shareKey: bigint | number,
): Uint8Array {
  const key = checkKey(shareKey);
  const { memory, address } = pd.context.device.arena;
  const { protectionDomains } = structAt(memory, ArenaLayout, address);
  const at = protectionDomains + ((pd.handle & 0xffff) - 1) * PROTECTION_DOMAIN_SIZE;
  const domain = structAt(memory, ProtectionDomainLayout, at);
  if (domain.shared === 0) return allocShpd(pd, key);
  if (domain.shareKey === key) return writeHandle(pd, domain.nonce, new Uint8Array(SHPD_BYTES));
  const rule = 'the protection domain is shared with another key';
  throw new RefusalError('EINVAL', `${verb}: ${rule}; use the shareKey of the first call`);
}

function writeHandle(pd: DomainInternals, nonce: bigint, area: Uint8Array): Uint8Array {
  const deviceId = idOf(pd.context);
  const values = { deviceId, nonce, pd: pd.handle, magic: MAGIC, reserved: 0n };
  Object.assign(handleIn(area), values);
  return area;
}

/**
 * @internal The domain of a handle, in which this thread takes part from now on. `verb`: for
 * errors.
 */
export function attachShpd(
  verb: string,
  context: ContextInternals,
  shpd: Uint8Array,
  shareKey: bigint | number,
): number {
  const { device } = context;
  const key = checkKey(shareKey);
  checkArea('shpd', shpd);
  // A copy: it may lie where others write.
  const handle = handleIn(Uint8Array.from(shpd));
  const foreign = Number(handle.deviceId !== idOf(context)) | Number(handle.magic !== MAGIC);
  // No domain has number 0: a foreign handle goes the same way as a wrong key.
  const pd = handle.pd * (1 - foreign);
  const errno = withParameters(
    context,
    { shareKey: key, nonce: handle.nonce, pd, reserved: 0 },
    (at) => device.arena.exports.attachShpd(device.engine.context, at),
  );
  if (errno === Errno.ENOMEM) {
    throw new RefusalError('ENOMEM', `${verb}: ${taken('attachments of the device')}`);
  }
  if (errno !== Errno.OK) {
    throw new RefusalError(
      'EINVAL',
      `${verb}: unknown protection domain, or wrong share key; check both`,
    );
  }
  context.siblings.setSharable(pd);
  return pd;
}

function handleIn({ buffer, byteOffset, length }: Uint8Array): Struct<typeof HandleLayout> {
  return structAt({ view: new DataView(buffer, byteOffset, length) }, HandleLayout, 0);
}

/** Identifier of the device. */
function idOf({ device, siblings }: ContextInternals): bigint {
  return device.shared?.deviceId ?? siblings.id;
}

function withParameters(
  context: ContextInternals,
  values: Struct<typeof ShareParametersLayout>,
  call: (address: number) => number,
): number {
  const { arena } = context.device;
  const address = arena.heap.alloc(ShareParametersLayout.size);
  try {
    Object.assign(structAt(arena.memory, ShareParametersLayout, address), values);
    return call(address);
  } finally {
    arena.memory.bytes.fill(0, address, address + ShareParametersLayout.size);
    arena.heap.free(address);
  }
}

/** The key is a secret: its error has no value. */
function checkKey(shareKey: bigint | number): bigint {
  const whole = typeof shareKey === 'bigint' || Number.isSafeInteger(shareKey);
  if (!whole || shareKey < 0 || BigInt(shareKey) >= 1n << 64n) {
    throw new MisuseError('shareKey', 'must be a whole number from 0 to 2^64 - 1');
  }
  return BigInt(shareKey);
}

function checkArea(name: string, area: Uint8Array): void {
  if (area instanceof Uint8Array && area.length >= SHPD_BYTES) return;
  throw new MisuseError(name, `must be a Uint8Array of at least ${SHPD_BYTES} bytes`);
}
