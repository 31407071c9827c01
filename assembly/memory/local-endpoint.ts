/**
 * Endpoints of the local path: what the engine of another context must know of a queue pair to
 * execute requests on its memory (transport/LOCAL-PATH.md). A table for each context slot; the
 * place of a queue pair follows from its number, and one whose place is taken has no endpoint. Only
 * the engine of the slot writes there, and the reap of its process.
 *
 * An endpoint is seqlocked. A reader that finds it open or changed does not wait: its request goes
 * by packets. So an owner that died or stopped in the middle of a change stops no other process.
 */
import { Arena, contextSlot } from './arena';
import { LOCAL_ENDPOINT_SIZE } from './local-sizes';

/** False in the demo's engine: its queue pairs have no peer at their own device. */
export const LOCAL_PATH: bool = true;

/** 32 bytes. */
@unmanaged
export class LocalEndpoint {
  /** Even: stable. Odd: its owner is changing it. */
  sequence: u32;
  /** Number of the queue pair; 0: no requests are executed for it. */
  qpn: u32;
  /** Number of the queue pair that may address it. */
  peerQpn: u32;
  pd: u32;
  /** Incarnation of the queue pair (arena.ts `nextBinding`). */
  binding: u32;
  /** Bits of AccessFlag. */
  access: u32;
  destRdAtomicMax: u32;
  /** P_Key of its context, with the membership bit; TAKES_MESSAGES. */
  pkey: u32;
}
/** In `pkey`: its engine takes messages from the channels (local-channel.ts). */
export const TAKES_MESSAGES: u32 = 1 << 16;
/** Endpoints of a context at most, a power of two. */
export const LOCAL_ENDPOINTS_COUNT: u32 = 1024;

/** The slot of the context that has the queue pair of this number. */
export function slotOfNumber(qpn: u32): u32 {
  return qpn >>> 16;
}

/** The place of a queue pair number; 0: the arena has no such context, or no endpoints. */
export function localEndpointAt(arena: Arena, qpn: u32): usize {
  if (!LOCAL_PATH) return 0;
  const slot = slotOfNumber(qpn);
  const count = arena.localEndpointsMax;
  if (count == 0 || slot >= arena.contextsMax) return 0;
  const index = slot * count + (qpn & (count - 1));
  return arena.localEndpoints + <usize>(index * LOCAL_ENDPOINT_SIZE);
}

/** Begins a change: readers do not use the endpoint until `closeChange`. */
function openChange(at: usize): u32 {
  const sequence = load<u32>(at) & ~1;
  atomic.store<u32>(at, sequence + 1);
  return sequence;
}

function closeChange(at: usize, sequence: u32): void {
  atomic.store<u32>(at, sequence + 2);
}

/** Publishes an endpoint. False: another queue pair has the place. */
export function publishLocalEndpoint(
  at: usize,
  qpn: u32,
  peerQpn: u32,
  pd: u32,
  binding: u32,
  access: u32,
  destRdAtomicMax: u32,
  pkey: u32,
): bool {
  const endpoint = changetype<LocalEndpoint>(at);
  if (endpoint.qpn != 0 && endpoint.qpn != qpn) return false;
  const sequence = openChange(at);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('qpn'), qpn);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('peerQpn'), peerQpn);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('pd'), pd);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('binding'), binding);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('access'), access);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('destRdAtomicMax'), destRdAtomicMax);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('pkey'), pkey);
  closeChange(at, sequence);
  return true;
}

function clear(at: usize): void {
  const sequence = openChange(at);
  atomic.store<u32>(at + offsetof<LocalEndpoint>('qpn'), 0);
  closeChange(at, sequence);
}

/** Withdraws the endpoint of a queue pair. True: it was published. */
export function withdrawLocalEndpoint(at: usize, qpn: u32): bool {
  const endpoint = changetype<LocalEndpoint>(at);
  if (endpoint.qpn != qpn) return false;
  clear(at);
  return true;
}

/** The process of a slot is dead: its queue pairs are found no more. */
export function withdrawAllOf(arena: Arena, slot: u32): void {
  contextSlot(arena, slot).reaches = 0;
  contextSlot(arena, slot).port = 0;
  contextSlot(arena, slot).localRequests = 0;
  const count = arena.localEndpointsMax;
  const first = arena.localEndpoints + <usize>(slot * count * LOCAL_ENDPOINT_SIZE);
  for (let index: u32 = 0; index < count; index++) {
    const at = first + <usize>(index * LOCAL_ENDPOINT_SIZE);
    if (changetype<LocalEndpoint>(at).qpn != 0 || load<u32>(at) & 1) clear(at);
  }
}
