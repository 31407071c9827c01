/**
 * The invariants of the tables that processes share, whichever process died in the middle of a
 * change: checked with the tables locked.
 */
import {
  ArenaLayout,
  AttachmentLayout,
  BlockLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  KeyEntryLayout,
  KeyKind,
  KeyNoteLayout,
  KeyState,
  LocalEndpointLayout,
  LocalMessageState,
  POOL_HOLDER,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  PoolLayout,
  PoolNodeLayout,
  PoolUserLayout,
  ProtectionDomainLayout,
  SlotState,
} from '#build/abi.js';
import type { ArenaMemory } from '../../host/engine/arena.js';
import { structAt, type Layout, type Struct } from '../../host/engine/struct.js';
import { LocalChannel } from './local-channels.js';

/** Sentences about what is wrong; none when all is well. */
export function auditArena(arena: ArenaMemory): string[] {
  return new Audit(arena).run();
}

class Audit {
  readonly #arena: ArenaMemory;
  readonly #local: Struct<typeof ArenaLayout>;
  readonly #state: Struct<typeof ArenaLayout>;
  readonly #wrong: string[] = [];

  constructor(arena: ArenaMemory) {
    this.#arena = arena;
    this.#local = structAt(arena.memory, ArenaLayout, arena.address);
    this.#state = structAt(arena.memory, ArenaLayout, this.#local.state);
  }

  run(): string[] {
    this.#domains();
    this.#keys();
    this.#heap();
    this.#pools();
    this.#endpoints();
    this.#channels();
    return this.#wrong;
  }

  #at<L extends Layout>(layout: L, base: number, index: number, size = layout.size): Struct<L> {
    return structAt(this.#arena.memory, layout, base + index * size);
  }

  /** Endpoints of the local path belong to queue pairs of living contexts. */
  #endpoints(): void {
    const { localEndpoints, localEndpointsMax, contextsMax } = this.#local;
    for (let index = 0; index < contextsMax * localEndpointsMax; index++) {
      const slot = Math.floor(index / localEndpointsMax);
      const { qpn, sequence } = this.#at(LocalEndpointLayout, localEndpoints, index);
      if (qpn !== 0 && qpn >>> 16 !== slot) this.#wrong.push(`slot ${slot} has endpoint ${qpn}`);
      if (this.#slotState(slot) !== SlotState.FREE) continue;
      if (qpn !== 0) this.#wrong.push(`endpoint ${qpn} of the dead slot ${slot} is published`);
      if (sequence & 1) this.#wrong.push(`an endpoint of the dead slot ${slot} stays open`);
    }
  }

  /** No message of a dead context waits, and none is in the hands of a dead one. */
  #channels(): void {
    const { localMessagesMax, contextsMax } = this.#local;
    if (localMessagesMax === 0) return;
    const free = Array.from({ length: contextsMax }, (_, slot) => slot).filter(
      (slot) => this.#slotState(slot) === SlotState.FREE,
    );
    for (let other = 0; other < contextsMax; other++) {
      for (const dead of free) {
        const [to, from] = [
          new LocalChannel(this.#arena, other, dead),
          new LocalChannel(this.#arena, dead, other),
        ];
        for (let index = 0; index < localMessagesMax; index++) {
          const sent = to.message(index).state;
          this.#check(sent !== LocalMessageState.POSTED, `a message of the dead slot ${dead}`);
          const taken = from.message(index).state;
          this.#check(taken !== LocalMessageState.TAKEN, `the dead slot ${dead} has a message`);
        }
      }
    }
  }

  #slotState(slot: number): number {
    const { contextSlots } = this.#local;
    return this.#at(ContextSlotLayout, contextSlots, slot, CONTEXT_SLOT_SIZE).state;
  }

  #check(holds: boolean, sentence: string): void {
    if (!holds) this.#wrong.push(sentence);
  }

  /** Every node is in one list: its domain's, or that of the free ones. */
  #domains(): void {
    const { attachments, attachmentsMax, protectionDomains, protectionDomainsMax } = this.#local;
    const seen = new Set<number>();
    const walk = (first: number, what: string): number => {
      let count = 0;
      for (let at = first; at !== 0 && count <= attachmentsMax; count++) {
        this.#check(!seen.has(at), `${what}: node 0x${at.toString(16)} is in two lists`);
        seen.add(at);
        at = this.#at(AttachmentLayout, at, 0).next;
      }
      this.#check(count <= attachmentsMax, `${what}: a circle`);
      return count;
    };
    for (let index = 0; index < protectionDomainsMax; index++) {
      const domain = this.#at(ProtectionDomainLayout, protectionDomains, index);
      if (domain.attachedCount === 0) continue;
      const count = walk(domain.attached, `domain ${domain.id}`);
      this.#check(count === domain.attachedCount, `domain ${domain.id}: ${count} nodes`);
      for (let at = domain.attached; at !== 0;) {
        const node = this.#at(AttachmentLayout, at, 0);
        this.#check(node.pd === domain.id, `domain ${domain.id} has a node of ${node.pd}`);
        this.#check(
          this.#slotState(node.slot) !== SlotState.FREE,
          `slot ${node.slot} is in a domain`,
        );
        at = node.next;
      }
    }
    walk(this.#state.attachmentFree, 'free nodes');
    this.#check(seen.size === attachmentsMax, `${attachmentsMax - seen.size} nodes are in no list`);
    this.#check(attachments > 0, 'there are no nodes');
  }

  /** Every key has an owner that is there, and is counted; what is bound is counted as well. */
  #keys(): void {
    const { keys, keyNotes, keyMask } = this.#local;
    let count = 0;
    const bound = new Map<number, number>();
    for (let index = 0; index <= keyMask; index++) {
      const note = this.#at(KeyNoteLayout, keyNotes, index);
      if (note.state === KeyState.FREE) continue;
      count++;
      const isPooled = note.owner === POOL_HOLDER;
      this.#check(
        isPooled || this.#slotState(note.owner) !== SlotState.FREE,
        `key 0x${note.key.toString(16)} is of slot ${note.owner}`,
      );
      if (note.base !== 0 && note.state !== KeyState.DYING) {
        bound.set(note.base >>> 8, (bound.get(note.base >>> 8) ?? 0) + 1);
      }
      const entry = this.#at(KeyEntryLayout, keys, index);
      if (note.state === KeyState.LIVE && entry.access & KeyKind.LAYOUT) {
        this.#check(
          this.#holdersAt(entry.address).includes(note.owner),
          `the program of layout 0x${note.key.toString(16)} is not of slot ${note.owner}`,
        );
      }
      if (note.state !== KeyState.LIVE) {
        this.#check(entry.key === 0, `key 0x${entry.key.toString(16)} opens what is dead`);
      }
    }
    const { regionCount } = this.#state;
    this.#check(count === regionCount, `${count} keys, ${regionCount} counted`);
    for (const [upper, many] of bound) {
      const note = this.#at(KeyNoteLayout, keyNotes, upper & keyMask);
      this.#check(
        note.bound === many,
        `key 0x${upper.toString(16)}: ${many} bound, not ${note.bound}`,
      );
    }
  }

  /** Each region without a holder is in one list, opens no memory, and is counted. */
  #pools(): void {
    const { pools, poolsMax, poolUsers, poolUsersMax, poolNodes, keyMask } = this.#local;
    const counted = Array.from({ length: poolsMax }, () => ({ total: 0, own: 0, users: 0 }));
    const listed = new Set<number>();
    for (let index = 0; index < poolsMax; index++) {
      const stride = POOL_SIZE + POOL_LISTS_SIZE;
      const pool = this.#at(PoolLayout, pools, index, stride);
      if (pool.state !== 1) continue;
      this.#check(pool.closed === 0, `pool ${index} is closed`);
      for (let list = 0; list <= 8; list++) {
        const head = pools + index * stride + POOL_SIZE + 64 * list;
        let depth = -1;
        for (let at = this.#arena.memory.view.getUint32(head, true); at !== 0;) {
          this.#check(!listed.has(at), `node ${at} is in two lists`);
          if (listed.has(at)) break;
          listed.add(at);
          const node = this.#at(PoolNodeLayout, poolNodes, at - 1, POOL_NODE_SIZE);
          this.#check((node.pool & 0xffff) === index + 1, `node ${at} is not of pool ${index}`);
          this.#check(depth < 0 || node.depth === depth - 1, `node ${at}: depth ${node.depth}`);
          depth = node.depth;
          at = node.next;
        }
        this.#check(depth < 0 || depth === 1, `list ${list} ends at depth ${depth}`);
      }
    }
    for (let index = 0; index <= keyMask && poolsMax > 0; index++) {
      const node = this.#at(PoolNodeLayout, poolNodes, index, POOL_NODE_SIZE);
      if (node.pool === 0) continue;
      counted[(node.pool & 0xffff) - 1]!.total++;
      const note = this.#at(KeyNoteLayout, this.#local.keyNotes, index);
      const slot = (node.holder >>> 16) - 1;
      if (node.holder === 0) {
        this.#check(listed.has(index + 1), `node ${index + 1} has no holder, and is in no list`);
        const isDead = note.state === KeyState.INVALID && note.owner === POOL_HOLDER;
        this.#check(isDead, `node ${index + 1} has no holder, and is alive`);
      } else {
        this.#check(!listed.has(index + 1), `node ${index + 1} has a holder, and is in a list`);
        this.#check(
          this.#slotState(slot) !== SlotState.FREE,
          `node ${index + 1} is of slot ${slot}`,
        );
        this.#check(note.owner === slot, `node ${index + 1}: its key is of slot ${note.owner}`);
      }
    }
    for (let index = 0; index < poolUsersMax; index++) {
      const user = this.#at(PoolUserLayout, poolUsers, index, POOL_USER_SIZE);
      if (user.slot === 0) continue;
      const one = counted[user.pool - 1]!;
      one.users++;
      one.own += user.numMr - user.lent;
      this.#check(
        this.#slotState(user.slot - 1) !== SlotState.FREE,
        `user ${index} has no process`,
      );
    }
    for (const [index, { total, own, users }] of counted.entries()) {
      const pool = this.#at(PoolLayout, pools, index, POOL_SIZE + POOL_LISTS_SIZE);
      if (pool.state !== 1) continue;
      const says = `${pool.total} regions, ${pool.own} own, ${pool.users} users`;
      const is = `${total} regions, ${own} own, ${users} users`;
      this.#check(says === is, `pool ${index} says ${says}: there are ${is}`);
    }
  }

  /** Blocks are in order, apart, and each has a live holder. */
  #heap(): void {
    const { blocks, blocksMax, heapStart, heapEnd } = this.#local;
    const seen = new Set<number>();
    // Where threads share an arena each thread has its memory, and there is no common heap.
    if (blocksMax === 0) return;
    let end = heapStart;
    for (let index = this.#state.blockFirst; index !== 0 && seen.size <= blocksMax;) {
      const block = this.#at(BlockLayout, blocks, index - 1);
      this.#check(!seen.has(index), `block ${index} is twice in the list`);
      seen.add(index);
      this.#check(block.start >= end, `block ${index} overlaps the one before`);
      end = block.start + block.size;
      const holders = this.#holders(block);
      this.#check(holders.length > 0, `block ${index} has no holder`);
      for (const slot of holders) {
        this.#check(this.#slotState(slot) !== SlotState.FREE, `block ${index} is of slot ${slot}`);
      }
      index = block.next;
    }
    this.#check(end <= heapEnd, 'a block passes the end');
    for (let index = this.#state.blockFree; index !== 0 && seen.size <= blocksMax;) {
      this.#check(!seen.has(index), `entry ${index} is taken and free`);
      seen.add(index);
      const block = this.#at(BlockLayout, blocks, index - 1);
      this.#check(this.#holders(block).length === 0, `free entry ${index} is held`);
      index = block.next;
    }
    this.#check(seen.size === blocksMax, `${blocksMax - seen.size} entries are in no list`);
  }

  /** The holders of the block at an address. */
  #holdersAt(address: number): number[] {
    const { blocks, blocksMax } = this.#local;
    for (let index = 0; index < blocksMax; index++) {
      const block = this.#at(BlockLayout, blocks, index);
      if (block.start === address && this.#holders(block).length > 0) return this.#holders(block);
    }
    return [];
  }

  #holders(block: Struct<typeof BlockLayout>): number[] {
    const words = [block.holders0, block.holders1, block.holders2, block.holders3];
    const slots: number[] = [];
    for (let slot = 0; slot < 256; slot++) {
      if ((words[slot >> 6]! >> BigInt(slot & 63)) & 1n) slots.push(slot);
    }
    return slots;
  }
}
