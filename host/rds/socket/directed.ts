/** Memory that a socket exposes to peers by cookies, and its RDMA operations. */
import { mustBe, shown } from '../../errors/check-whole.js';
import { AccessFlag } from '#build/abi.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { MemoryRegion } from '../../verbs/regions/memory-region.js';
import type { MultiDeviceTransport } from '../transport/multi-device-transport.js';
import type { RdmaArgs } from './control-message.js';
import { RdmaFlag, RdmaOperation, makeCookie, rkeyOf } from '../protocol/rdma.js';

/** Cookies that one socket may have. */
const REGIONS_MAX = 1024;
const U32_MAX = 0xffffffff;

export class DirectedMemory {
  readonly #transports: MultiDeviceTransport;
  readonly #regions = new Map<number, { readonly mr: MemoryRegion; readonly isOnce: boolean }>();

  constructor(transports: MultiDeviceTransport) {
    this.#transports = transports;
    transports.memories.add(this);
  }

  getMr(memory: Uint8Array, flags: number): bigint {
    if (this.#regions.size >= REGIONS_MAX) {
      const rule = `the socket has ${REGIONS_MAX} cookies, the most it can; free one with freeMr`;
      throw new RefusalError('ENOBUFS', `getMr: ${rule}`);
    }
    const isWritten = (flags & RdmaFlag.READWRITE) !== 0;
    const access = isWritten
      ? AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_READ
      : AccessFlag.REMOTE_READ;
    const mr = this.#transports.region(memory, access, 0);
    this.#regions.set(mr.rkey, { mr, isOnce: (flags & RdmaFlag.USE_ONCE) !== 0 });
    return makeCookie(mr.rkey, Number(mr.addr));
  }

  freeMr(cookie: bigint): void {
    if (typeof cookie !== 'bigint') throw mustBe('cookie', 'a cookie of getMr', cookie);
    const found = this.#regions.get(rkeyOf(cookie));
    if (!found)
      throw new RefusalError(
        'EINVAL',
        'freeMr: cookie is not one of this socket; pass one of getMr',
      );
    this.#regions.delete(rkeyOf(cookie));
    found.mr.dereg();
  }

  /** A peer has used that key: revokes it if it was USE_ONCE. */
  accessed(rkey: number): void {
    const found = this.#regions.get(rkey);
    if (!found?.isOnce) return;
    this.#regions.delete(rkey);
    found.mr.dereg();
  }

  /** Throws MisuseError; RefusalError ENOMEM. */
  operation(args: RdmaArgs, from: number, ended: (status: number) => void): RdmaOperation {
    const { cookie, remoteOffset = 0, local, flags } = args;
    if (cookie < 0n || cookie > 0xffffffffffffffffn) {
      throw new MisuseError('cookie', `must fit 64 bits, got ${shown(cookie)}`);
    }
    if (!Number.isInteger(remoteOffset) || remoteOffset < 0 || remoteOffset > U32_MAX) {
      throw new MisuseError('remoteOffset', `must fit 32 bits, got ${shown(remoteOffset)}`);
    }
    const region = this.#transports.hold(local, from);
    return new RdmaOperation({ cookie, remoteOffset, flags }, { local, region, from }, ended);
  }

  /** Revokes all keys when the socket closes: peers can no longer reach its memory. */
  close(): void {
    this.#transports.memories.delete(this);
    for (const { mr } of this.#regions.values()) mr.dereg();
    this.#regions.clear();
  }
}
