/**
 * Packets of a device that several processes share, where they arrive: what is another one's goes
 * into that one's inbox, and what others have put into ours is taken out. An inbox is a few entries
 * that any process may write and its owner empties; full, the packet is lost, as on any network. An
 * entry whose writer died is freed with what else that one left (members.ts).
 */
import {
  ArenaLayout,
  CONTEXT_SLOT_SIZE,
  ContextSlotLayout,
  INBOX_ENTRY_SIZE,
  INBOX_PACKET_SIZE,
  InboxEntryLayout,
  InboxState,
  WORD_WAIT_SIZE,
  WordWaitLayout,
} from '#build/abi.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt } from '../../engine/struct.js';
import { Endpoint, Gid } from '../../link/endpoint.js';
import type { LinkReceiver } from '../../link/link.js';
import { BTH_SLOT_BYTE } from '../../link/udp/message-header.js';
import { loadPosix } from '../../link/posix.js';
import type { UdpBatchLink } from '../../link/udp/udp-batch.js';
import { ServiceTable } from './services.js';

const ENTRY = InboxEntryLayout.fields;
const SLOT = ContextSlotLayout.fields;
const STRIDE = INBOX_ENTRY_SIZE + INBOX_PACKET_SIZE;
/** Queue pair 1 in the three bytes from BTH_SLOT_BYTE on; 0xffffff is a multicast group's. */
const GENERAL_SERVICES = 1;
const MULTICAST_SLOT = 0xff;
/** Any datagram wakes. */
const WAKE = Uint8Array.of(1);

type Collector = Pick<LinkReceiver, 'packet' | 'flush'>;

export interface PacketInboxOptions {
  readonly memory: EngineMemory;
  /** Address of this process's copy of the arena. */
  readonly arena: number;
  readonly slot: number;
  /** Wakes the process that sleeps with this port. */
  readonly wake: (port: number) => void;
}

export class PacketInbox {
  /** Packets for others that arrived here, and ours that others brought. */
  handedOn = 0;
  brought = 0;
  readonly #memory: EngineMemory;
  readonly #words: Int32Array;
  readonly #slot: number;
  readonly #slotsMax: number;
  readonly #slots: number;
  readonly #inboxes: number;
  readonly #entries: number;
  readonly #services: ServiceTable;
  readonly #wake: (port: number) => void;
  #seen: number;
  /** Index of the first entry of word-waits.ts; wake-ups of our waits that were passed on. */
  readonly #waits: number;
  #noticed: number;

  constructor({ memory, arena, slot, wake }: PacketInboxOptions) {
    const struct = structAt(memory, ArenaLayout, arena);
    this.#memory = memory;
    this.#words = new Int32Array(memory.buffer);
    this.#slot = slot;
    this.#slotsMax = struct.contextsMax;
    this.#slots = struct.contextSlots;
    this.#inboxes = struct.inboxes;
    this.#entries = struct.inboxEntries;
    this.#services = new ServiceTable(memory, struct.services, struct.servicesMax);
    this.#wake = wake;
    this.#seen = this.#mail;
    this.#waits = struct.wordWaits >>> 2;
    this.#noticed = Atomics.load(this.#words, this.#notice(slot));
  }

  /** The same receiver, spared of what is not for us. */
  sorted(receiver: LinkReceiver): LinkReceiver {
    const ours = (address: number, length: number): boolean => {
      const slot = this.#slotOf(address, length);
      return slot === this.#slot || !this.#isElsewhere(slot);
    };
    return {
      packet: (bytes, source, group) => receiver.packet(bytes, source, group),
      flush: () => receiver.flush(),
      failed: (reason) => receiver.failed(reason),
      segments: (address, length, segmentSize, source) => {
        const step = segmentSize === 0 ? length : segmentSize;
        let start = address;
        const end = address + length;
        // Most runs are ours whole.
        for (let at = address; at < end; at += step) {
          const size = Math.min(step, end - at);
          if (ours(at, size)) continue;
          if (at > start) receiver.segments!(start, at - start, segmentSize, source);
          start = at + size;
          this.#put(this.#slotOf(at, size), at, size, source);
        }
        if (start < end) receiver.segments!(start, end - start, segmentSize, source);
      },
    };
  }

  /** Hands what others brought to the receiver. Returns how many packets. */
  collect(receiver: Collector): number {
    this.#passNotice();
    const mail = this.#mail;
    if (mail === this.#seen) return 0;
    this.#seen = mail;
    const ready: { readonly at: number; readonly ticket: number }[] = [];
    for (let entry = 0; entry < this.#entries; entry++) {
      const at = this.#entryOf(this.#slot, entry);
      if (Atomics.load(this.#words, at + (ENTRY.state[0] >>> 2)) !== InboxState.READY) continue;
      ready.push({ at, ticket: this.#words[at + (ENTRY.ticket[0] >>> 2)]! });
    }
    ready.sort((a, b) => (a.ticket - b.ticket) | 0);
    for (const { at } of ready) {
      this.#deliver(at, receiver);
      Atomics.store(this.#words, at + (ENTRY.state[0] >>> 2), InboxState.FREE);
    }
    if (ready.length > 0) receiver.flush();
    this.brought += ready.length;
    return ready.length;
  }

  /** This thread is about to sleep: a sender will wake it. False: a packet arrived meanwhile. */
  fallAsleep(): boolean {
    Atomics.store(this.#words, this.#field(this.#slot, 'sleeping'), 1);
    if (this.#mail === this.#seen && !this.#passNotice()) return true;
    this.awake();
    return false;
  }

  /** Wakes the waits for words of the threads of this process. False: no new wake-up arrived. */
  #passNotice(): boolean {
    const notice = this.#notice(this.#slot);
    const noticed = Atomics.load(this.#words, notice);
    if (noticed === this.#noticed) return false;
    this.#noticed = noticed;
    Atomics.notify(this.#words, notice);
    return true;
  }

  /** The waits of another process have a new notice (word-waits.ts). */
  wakeWaits(slot: number): void {
    if (Atomics.exchange(this.#words, this.#field(slot, 'sleeping'), 0) !== 1) return;
    const port = this.#words[this.#field(slot, 'wakePort')]!;
    if (port > 0 && port < 65536) this.#wake(port);
  }

  #notice(slot: number): number {
    return this.#waits + ((slot * WORD_WAIT_SIZE + WordWaitLayout.fields.notice[0]) >>> 2);
  }

  awake(): void {
    Atomics.store(this.#words, this.#field(this.#slot, 'sleeping'), 0);
  }

  /** Wakes the thread of another process. */
  wake(port: number): void {
    this.#wake(port);
  }

  get #mail(): number {
    return Atomics.load(this.#words, this.#field(this.#slot, 'mail'));
  }

  #slotOf(packet: number, length: number): number {
    if (length < BTH_SLOT_BYTE + 3) return this.#slot;
    const { bytes, view } = this.#memory;
    const slot = bytes[packet + BTH_SLOT_BYTE]!;
    if (slot === MULTICAST_SLOT) return this.#slot;
    if (slot !== 0) return slot;
    const low = view.getUint16(packet + BTH_SLOT_BYTE + 1);
    if (low !== GENERAL_SERVICES) return slot;
    return this.#services.slotOfMad(view, packet, length) ?? this.#slot;
  }

  /**
   * True if that slot belongs to another living process. The engine drops and counts other packets.
   */
  #isElsewhere(slot: number): boolean {
    return slot < this.#slotsMax && this.#words[this.#field(slot, 'state')] !== 0;
  }

  #put(slot: number, packet: number, length: number, source: Endpoint): void {
    const words = this.#words;
    const at = this.#freeEntry(slot);
    if (at < 0 || length > INBOX_PACKET_SIZE) {
      Atomics.add(words, this.#field(slot, 'mailDropped'), 1);
      return;
    }
    const { bytes } = this.#memory;
    const gid = at + (ENTRY.sourceGid0[0] >>> 2);
    words.set(source.gid.words, gid);
    words[at + (ENTRY.sourcePort[0] >>> 2)] = source.port;
    words[at + (ENTRY.length[0] >>> 2)] = length;
    bytes.copyWithin((at << 2) + INBOX_ENTRY_SIZE, packet, packet + length);
    const mail = this.#field(slot, 'mail');
    words[at + (ENTRY.ticket[0] >>> 2)] = Atomics.load(words, mail);
    Atomics.store(words, at + (ENTRY.state[0] >>> 2), InboxState.READY);
    Atomics.add(words, mail, 1);
    this.handedOn++;
    if (Atomics.exchange(words, this.#field(slot, 'sleeping'), 0) !== 1) return;
    const port = words[this.#field(slot, 'wakePort')]!;
    if (port > 0 && port < 65536) this.#wake(port);
  }

  /** Index of an entry's first word, which is ours to write; -1: the inbox is full. */
  #freeEntry(slot: number): number {
    const writer = InboxState.WRITER + this.#slot;
    for (let entry = 0; entry < this.#entries; entry++) {
      const at = this.#entryOf(slot, entry);
      const state = at + (ENTRY.state[0] >>> 2);
      const found = Atomics.compareExchange(this.#words, state, InboxState.FREE, writer);
      if (found === InboxState.FREE) return at;
    }
    return -1;
  }

  #deliver(at: number, receiver: Collector): void {
    const words = this.#words;
    const length = words[at + (ENTRY.length[0] >>> 2)]! >>> 0;
    if (length === 0 || length > INBOX_PACKET_SIZE) return;
    const { bytes } = this.#memory;
    const start = (at << 2) + INBOX_ENTRY_SIZE;
    const gid = (at << 2) + ENTRY.sourceGid0[0];
    const port = words[at + (ENTRY.sourcePort[0] >>> 2)]! & 0xffff;
    const source = new Endpoint(new Gid(bytes.slice(gid, gid + 16)), port);
    receiver.packet(bytes.subarray(start, start + length), source);
  }

  #entryOf(slot: number, entry: number): number {
    return (this.#inboxes + (slot * this.#entries + entry) * STRIDE) >>> 2;
  }

  #field(slot: number, name: keyof typeof SLOT): number {
    return (this.#slots + slot * CONTEXT_SLOT_SIZE + SLOT[name][0]) >>> 2;
  }
}

/** That of one thread of a process; `shared`: as in ThreadTask. */
export async function openPacketInbox(
  memory: EngineMemory,
  shared: { readonly arena: number; readonly slot: number },
  link: UdpBatchLink,
): Promise<PacketInbox> {
  const { posix } = await loadPosix();
  const here = Gid.parse('127.0.0.1');
  const wake = (port: number): void => {
    posix!.sendDatagram(link.callDescriptor, WAKE, posix!.socketAddress(here, port, ''));
  };
  return new PacketInbox({ memory, ...shared, wake });
}

/** Under the arena's lock: empties the inbox of a dead slot, and frees what it was writing. */
export function clearInboxes(memory: EngineMemory, arena: number, dead: number): void {
  const { inboxes, inboxEntries, contextsMax } = structAt(memory, ArenaLayout, arena);
  const words = new Int32Array(memory.buffer);
  for (let index = 0; index < contextsMax * inboxEntries; index++) {
    const state = (inboxes + index * STRIDE + ENTRY.state[0]) >>> 2;
    const isOwn = Math.floor(index / inboxEntries) === dead;
    const found = Atomics.load(words, state);
    // Those that a living process is writing are its own until they are ready.
    const isReady = isOwn && found === InboxState.READY;
    if (isReady || found === InboxState.WRITER + dead) {
      Atomics.compareExchange(words, state, found, InboxState.FREE);
    }
  }
}
