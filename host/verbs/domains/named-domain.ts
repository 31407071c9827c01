/**
 * Named protection domains with an owner (seed 000): processes find the domain by its name, and it
 * may outlive its maker. The owner is one word of the root of that name: slot and incarnation of a
 * process. A change of owner is one store, so a process that dies leaves the old owner or the new
 * one. The owner lives while its process does and has the domain.
 */
import { ArenaLayout, CONTEXT_SLOT_SIZE, ContextSlotLayout } from '#build/abi.js';
import { checkKeys } from '../../base/options.js';
import { checkWait, type WaitLimits } from '../../base/wait-limits.js';
import { structAt } from '../../engine/struct.js';
import { checkFlag, checkWhole } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Context } from '../context.js';
import type { ProtectionDomain } from './protection-domain.js';
import { slotsOf } from './domain-names.js';
import { NAMED_DOMAIN } from './root-table.js';
import { publicHandle } from './shared-domain.js';

/** Options of `pd.publish`. */
export interface PublishOptions {
  /** 64 bits that a process has to know to open the domain. */
  readonly shareKey: bigint | number;
  /**
   * True: the name stays as long as a process has the domain, and a process may claim it after its
   * owner has ended. False: with its owner the name ends, and no further process opens the domain;
   * those that have it keep it. Default false.
   */
  readonly outlive?: boolean;
}

/** A process, or thread, that has a domain. */
export interface DomainUser {
  readonly slot: number;
  readonly pid: number;
  readonly isOwner: boolean;
}

/** A protection domain under a name (`pd.publish`, `context.openDomain`). */
export class NamedDomain {
  readonly #context: Context;

  /** @internal Use `pd.publish` and `context.openDomain`. */
  constructor(
    readonly name: string,
    readonly pd: ProtectionDomain,
  ) {
    this.#context = pd.context;
  }

  /** The processes that have the domain, by slot. The domain ends with the last of them. */
  users(): DomainUser[] {
    this.#lookForDead();
    const { device } = this.#context;
    return device.locked(() => {
      const owner = this.#entry()?.key ?? 0;
      return slotsOf(this.#context, this.pd.handle).map((slot) => {
        const { pid } = slotStruct(this.#context, slot);
        return { slot, pid, isOwner: ownerWord(this.#context, slot) === owner };
      });
    });
  }

  /** The owner; undefined: it has ended, or left the domain, without passing on. */
  owner(): DomainUser | undefined {
    return this.users().find(({ isOwner }) => isOwner);
  }

  /** Is this process the owner? */
  get isOwner(): boolean {
    this.#context.checkOpen();
    const { device } = this.#context;
    return device.locked(() => this.#entry()?.key === ownerWord(this.#context, device.slot));
  }

  /**
   * Passes ownership on to the process of that slot (`users`). Throws MisuseError; RefusalError
   * EPERM (this process is not the owner), ENOENT (the process does not have the domain).
   */
  passTo(slot: number): void {
    checkWhole('slot', slot, 0, 255);
    this.#change('passTo', (entry) => {
      this.#checkOwner('passTo');
      if (!slotsOf(this.#context, this.pd.handle).includes(slot)) {
        const rule = `slot ${slot} does not have the domain "${this.name}"`;
        throw new RefusalError('ENOENT', `passTo: ${rule}; choose one of users()`);
      }
      entry.key = ownerWord(this.#context, slot);
    });
  }

  /** This process becomes the owner. Throws RefusalError EBUSY (it has an owner), ENOENT. */
  claim(): void {
    this.#lookForDead();
    this.#change('claim', (entry) => {
      const owner = slotsOf(this.#context, this.pd.handle).find(
        (slot) => ownerWord(this.#context, slot) === entry.key,
      );
      if (owner !== undefined && owner !== this.#context.device.slot) {
        const { pid } = slotStruct(this.#context, owner);
        const remedy = 'it passes ownership on (passTo), or wait for its end (waitUnowned)';
        throw new RefusalError(
          'EBUSY',
          `claim: process ${pid} (slot ${owner}) owns "${this.name}"; ${remedy}`,
        );
      }
      entry.key = ownerWord(this.#context, this.#context.device.slot);
    });
  }

  /**
   * Removes the name: no further process opens the domain. Throws RefusalError EPERM (this process
   * is not the owner), ENOENT (the name has ended).
   */
  retire(): void {
    this.#change('retire', () => {
      this.#checkOwner('retire');
      this.#context.roots.removeEntry(this.name, NAMED_DOMAIN);
    });
  }

  /**
   * Resolves when the domain has no owner: it has ended, left the domain or retired the name. After
   * the end of the name `claim` throws ENOENT. Rejects with MisuseError; RefusalError ETIMEDOUT;
   * the reason of the signal.
   */
  async waitUnowned(limits: WaitLimits = {}): Promise<void> {
    checkWait('waitUnowned', limits);
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `waitUnowned: "${this.name}" had an owner for ${limits.timeout} ms; raise timeout`,
      );
    const { waits } = this.#context.device;
    await waits.until(() => this.owner() === undefined, limits, late);
  }

  #entry() {
    this.#context.checkOpen();
    const entry = this.#context.roots.entry(this.name, NAMED_DOMAIN);
    return entry?.pd === this.pd.handle ? entry : undefined;
  }

  #change(verb: string, work: (entry: { key: number }) => void): void {
    const { device } = this.#context;
    if (device.closed) throw new MisuseError('context', 'is closed');
    device.locked(() => {
      const entry = this.#entry();
      if (!entry) {
        const rule = `the name "${this.name}" has ended with its owner, or was retired`;
        throw new RefusalError('ENOENT', `${verb}: ${rule}; publish the domain again`);
      }
      work(entry);
    });
    device.waits.wakeAll();
  }

  #checkOwner(verb: string): void {
    if (this.isOwner) return;
    const rule = `this process does not own "${this.name}"`;
    throw new RefusalError('EPERM', `${verb}: ${rule}; owner() names the owner`);
  }

  #lookForDead(): void {
    this.#context.checkOpen();
    this.#context.device.shared?.lookNow();
  }
}

/** @internal */
export function publishDomain(
  pd: ProtectionDomain,
  name: string,
  options: PublishOptions,
): NamedDomain {
  checkKeys('publish', options, 'shareKey outlive');
  const { shareKey, outlive = false } = options;
  checkFlag('outlive', outlive);
  const { context } = pd;
  const { device, roots } = context;
  device.locked(() => {
    roots.checkFree('publish', name, NAMED_DOMAIN);
    const shpd = publicHandle('publish', pd, shareKey);
    const key = ownerWord(context, device.slot);
    const values = { pd: pd.handle, address: 0, length: Number(outlive), key, kind: NAMED_DOMAIN };
    roots.write('publish', name, values, true, shpd);
  });
  device.waits.wakeAll();
  return new NamedDomain(name, pd);
}

/** @internal */
export async function openNamedDomain(
  context: Context,
  name: string,
  shareKey: bigint | number,
  limits?: WaitLimits,
): Promise<NamedDomain> {
  if (limits !== undefined) checkWait('openDomain', limits);
  const open = (): NamedDomain | undefined => {
    context.checkOpen();
    return context.device.locked(() => {
      const entry = context.roots.entry(name, NAMED_DOMAIN);
      const handle = entry && context.roots.handleOf(entry);
      if (!handle) return undefined;
      return new NamedDomain(name, context.attachDomain('openDomain', handle, shareKey));
    });
  };
  let found = open();
  if (!found && limits) {
    const late = (): Error =>
      new RefusalError(
        'ETIMEDOUT',
        `openDomain: no process published "${name}" within ${limits.timeout} ms; raise timeout`,
      );
    await context.device.waits.until(() => (found = open()) !== undefined, limits, late);
  }
  if (found) return found;
  const rule = `no domain has the name "${name}"`;
  throw new RefusalError('ENOENT', `openDomain: ${rule}; publish it first, or pass a timeout`);
}

function slotStruct({ device }: Context, slot: number) {
  const { memory, address } = device.arena;
  const { contextSlots } = structAt(memory, ArenaLayout, address);
  return structAt(memory, ContextSlotLayout, contextSlots + slot * CONTEXT_SLOT_SIZE);
}

function ownerWord(context: Context, slot: number): number {
  return ((slot + 1) | (slotStruct(context, slot).incarnation << 16)) >>> 0;
}
