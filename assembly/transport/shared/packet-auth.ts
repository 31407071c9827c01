/**
 * Authenticated packets of a connected queue pair. Between the pad and the ICRC lie a counter of 8
 * bytes and a tag of 16, both little-endian:
 * ```
 *  | BTH | headers | payload | pad | counter | tag | ICRC |
 * ```
 * The tag is AEAD_CHACHA20_POLY1305 (RFC 8439) with the counter as nonce. It covers everything from
 * the BTH to the pad; BTH byte 4 (FECN, BECN), which a router may change, counts as 0xff, as in the
 * ICRC. With encryption the BTH is the additional data, and all behind it is ciphertext. Each
 * direction of a connection has a key of its own, derived from both GIDs and queue pair numbers, so
 * that the tag covers these too.
 *
 * A counter is used once: its upper 16 bits are the generation of the key, its lower 48 number the
 * packets of the direction. A retransmitted packet has a new one. The receiver takes a number once,
 * and none that is REPLAY_WINDOW or more below the highest. A sender may go on to the next
 * generation with any packet (ratchet: the next key is computed from the last one); a receiver
 * takes the last, the current and the next two, and then goes on with its own key as well.
 *
 * A packet that fails is counted (`dropTag`, `dropReplay`) and not answered.
 */
import { aeadCrypt, aeadTag, aeadVerify, nextKey } from '../../crypto/aead';
import { CHACHA_KEY_SIZE } from '../../crypto/chacha20';
import { Errno } from '../../memory/errno';
import { ICRC_SIZE } from '../../wire/packet';
import { Context } from './context';
import { Path } from './path';
import { QueuePair, pathOf } from './queue-pair';
import { QpState, QpType } from './status';

/** False: this build has no authenticated packets (toolchain/page-transform.mjs). */
export const PACKET_AUTH: bool = true;
const COUNTER_SIZE: u32 = 8;
/** Bytes that an authenticated packet has more. */
export const PACKET_TRAILER_SIZE: u32 = 24;
const BTH_SIZE: u32 = 12;
/** BTH byte with FECN, BECN and reserved bits. */
const UNCOVERED: usize = 4;
/** Numbers so far below the highest one are not taken. */
export const REPLAY_WINDOW: u64 = 1024;
/** Words of 64 bits in the window: one more than REPLAY_WINDOW needs, as a power of two. */
const WINDOW_WORDS: u64 = 32;
const NUMBER_BITS: u64 = 48;
const NUMBER_MASK: u64 = ((<u64>1) << 48) - 1;
/** Packets after which the sender goes on to the next generation by itself. */
const ROTATE_PACKETS: u64 = (<u64>1) << 32;
const GENERATION_MAX: u32 = 0xffff;

/** Keys and counters of one queue pair, 512 bytes; the host writes the keys before `setQpAuth`. */
@unmanaged
export class PacketAuth {
  /** Generation and number of the next packet that is sent. */
  sendCounter: u64;
  /** One past the highest number that was received. */
  receiveNext: u64;
  /** Number at which the current generation of the receiver began. */
  receiveSince: u64;
  receiveGeneration: u32;
  /** 1: everything behind the BTH is encrypted. */
  encrypts: u32;
  /** 1: there is a `lastReceiveKey`. */
  keepsLast: u32;
  reserved: u32;
  // Keys of 32 bytes each.
  sendKey: u64;
  sendKey1: u64;
  sendKey2: u64;
  sendKey3: u64;
  receiveKey: u64;
  receiveKey1: u64;
  receiveKey2: u64;
  receiveKey3: u64;
  /** Of the next two generations, and of the last one. */
  nextReceiveKey: u64;
  nextReceiveKey1: u64;
  nextReceiveKey2: u64;
  nextReceiveKey3: u64;
  secondReceiveKey: u64;
  secondReceiveKey1: u64;
  secondReceiveKey2: u64;
  secondReceiveKey3: u64;
  lastReceiveKey: u64;
  lastReceiveKey1: u64;
  lastReceiveKey2: u64;
  lastReceiveKey3: u64;
  /** Bits of the numbers that were received; WINDOW_WORDS words. */
  window: u64;
}
const WINDOW_BYTES: u32 = 256;
/** Bytes that the host provides for a PacketAuth. */
export const PACKET_AUTH_SIZE: u32 = 512;

function at(auth: PacketAuth, field: usize): usize {
  return changetype<usize>(auth) + field;
}

function authOf(path: Path): PacketAuth {
  return changetype<PacketAuth>(path.auth);
}

/**
 * Gives a queue pair its keys: `memory` holds a PacketAuth with `sendKey`, `receiveKey` and
 * `encrypts`, and belongs to the queue pair until it is reset or destroyed. EINVAL: not a connected
 * queue pair in RESET or INIT, or it has keys.
 */
export function setPacketAuth(context: Context, qp: QueuePair, memory: usize): u32 {
  if (!PACKET_AUTH) return Errno.EOPNOTSUPP;
  const path = pathOf(qp);
  const connects = qp.type == <u32>QpType.RC || qp.type == <u32>QpType.UC;
  if (!connects || path.auth != 0 || qp.state > <u32>QpState.INIT) return Errno.EINVAL;
  const auth = changetype<PacketAuth>(memory);
  auth.sendCounter = 0;
  auth.receiveNext = 0;
  auth.receiveSince = 0;
  auth.receiveGeneration = 0;
  auth.keepsLast = 0;
  clear(at(auth, offsetof<PacketAuth>('window')), WINDOW_BYTES);
  prepareNext(context, auth);
  path.auth = memory;
  context.authenticated++;
  return Errno.OK;
}

function clear(address: usize, size: u32): void {
  memory.fill(address, 0, size);
}

function prepareNext(context: Context, auth: PacketAuth): void {
  const current = at(auth, offsetof<PacketAuth>('receiveKey'));
  const next = at(auth, offsetof<PacketAuth>('nextReceiveKey'));
  nextKey(context.authScratch, current, next);
  nextKey(context.authScratch, next, at(auth, offsetof<PacketAuth>('secondReceiveKey')));
}

/** The queue pair is reset or destroyed: its keys are overwritten. */
export function forgetPacketAuth(context: Context, qp: QueuePair): void {
  const path = pathOf(qp);
  if (!PACKET_AUTH || path.auth == 0) return;
  clear(path.auth, PACKET_AUTH_SIZE);
  path.auth = 0;
  context.authenticated--;
}

/**
 * The next packet is sent with the next generation of the key; the peer follows with its own.
 * EINVAL: no keys, no generation is left, or the queue pair is in ERR and sends no packet. EAGAIN:
 * the peer has not followed the last time.
 */
export function rotateSendKey(context: Context, qp: QueuePair): u32 {
  const path = pathOf(qp);
  if (!PACKET_AUTH || path.auth == 0 || qp.state == <u32>QpState.ERR) return Errno.EINVAL;
  const auth = authOf(path);
  if (sendGeneration(auth) >= GENERATION_MAX) return Errno.EINVAL;
  if (!mayRotate(auth)) return Errno.EAGAIN;
  rotate(context, auth);
  return Errno.OK;
}

function sendGeneration(auth: PacketAuth): u32 {
  return <u32>(auth.sendCounter >> NUMBER_BITS);
}

/**
 * Was the last generation followed, or did the peer go on by itself? So a sender is two generations
 * ahead at most of what its peer has received: both went on at the same time, then one again.
 */
function mayRotate(auth: PacketAuth): bool {
  return sendGeneration(auth) <= auth.receiveGeneration;
}

function rotate(context: Context, auth: PacketAuth): void {
  const key = at(auth, offsetof<PacketAuth>('sendKey'));
  nextKey(context.authScratch, key, key);
  auth.sendCounter += (<u64>1) << NUMBER_BITS;
}

/**
 * Adds counter and tag to a packet of `length` bytes from BTH to ICRC, with its payload in place.
 * Returns its new length; the ICRC is the caller's.
 */
export function sealPacket(context: Context, path: Path, packet: usize, length: u32): u32 {
  const auth = authOf(path);
  const counter = auth.sendCounter;
  auth.sendCounter = counter + 1;
  const covered = length - ICRC_SIZE;
  const end = packet + <usize>covered;
  const key = at(auth, offsetof<PacketAuth>('sendKey'));
  let plain = covered;
  if (auth.encrypts) {
    plain = BTH_SIZE;
    aeadCrypt(context.authScratch, key, counter, packet + BTH_SIZE, covered - BTH_SIZE);
  }
  store<u64>(end, counter);
  const mutable = load<u8>(packet, UNCOVERED);
  store<u8>(packet, 0xff, UNCOVERED);
  aeadTag(context.authScratch, key, counter, packet, covered, plain, end + COUNTER_SIZE);
  store<u8>(packet, mutable, UNCOVERED);
  const isDue = (counter & (ROTATE_PACKETS - 1)) == ROTATE_PACKETS - 1;
  if (isDue && sendGeneration(auth) < GENERATION_MAX && mayRotate(auth)) rotate(context, auth);
  return length + PACKET_TRAILER_SIZE;
}

/**
 * Checks counter and tag of a packet with a right ICRC, `length` bytes from BTH to ICRC, and
 * decrypts it. Returns its length without counter and tag; 0: it is dropped, and was counted.
 */
export function openPacket(context: Context, path: Path, packet: usize, length: u32): u32 {
  const auth = authOf(path);
  const covered = length - ICRC_SIZE - PACKET_TRAILER_SIZE;
  const end = packet + <usize>covered;
  const counter = load<u64>(end);
  const number = counter & NUMBER_MASK;
  if (!isFresh(auth, number)) {
    context.counters.dropReplay++;
    return 0;
  }
  const ahead = <u32>(counter >> NUMBER_BITS) - auth.receiveGeneration;
  const key = keyOf(auth, ahead, number);
  if (key == 0 || !isTagged(context, auth, key, counter, packet, covered)) {
    context.counters.dropTag++;
    return 0;
  }
  if (auth.encrypts) {
    aeadCrypt(context.authScratch, key, counter, packet + BTH_SIZE, covered - BTH_SIZE);
  }
  take(auth, number);
  if (ahead == 2) advanceKeys(context, auth, number);
  if (ahead == 1 || ahead == 2) advanceKeys(context, auth, number);
  else if (auth.keepsLast && auth.receiveNext - auth.receiveSince > REPLAY_WINDOW) forgetLast(auth);
  return covered + ICRC_SIZE;
}

/** The key of a generation, `ahead` of the current one; 0: no such key. */
function keyOf(auth: PacketAuth, ahead: u32, number: u64): usize {
  if (ahead == 0) return at(auth, offsetof<PacketAuth>('receiveKey'));
  if (ahead == 1) return at(auth, offsetof<PacketAuth>('nextReceiveKey'));
  if (ahead == 2) return at(auth, offsetof<PacketAuth>('secondReceiveKey'));
  const isLast = ahead == <u32>-1 && auth.keepsLast != 0 && number < auth.receiveSince;
  return isLast ? at(auth, offsetof<PacketAuth>('lastReceiveKey')) : 0;
}

function isTagged(
  context: Context,
  auth: PacketAuth,
  key: usize,
  counter: u64,
  packet: usize,
  covered: u32,
): bool {
  const plain = auth.encrypts ? BTH_SIZE : covered;
  const tag = packet + <usize>(covered + COUNTER_SIZE);
  const mutable = load<u8>(packet, UNCOVERED);
  store<u8>(packet, 0xff, UNCOVERED);
  const fits = aeadVerify(context.authScratch, key, counter, packet, covered, plain, tag);
  store<u8>(packet, mutable, UNCOVERED);
  return fits;
}

function wordOf(auth: PacketAuth, number: u64): usize {
  const index = (number >> 6) & (WINDOW_WORDS - 1);
  return at(auth, offsetof<PacketAuth>('window')) + <usize>(index << 3);
}

/** Was this number not received yet, and is it not too old to know? */
function isFresh(auth: PacketAuth, number: u64): bool {
  if (number >= auth.receiveNext) return true;
  if (auth.receiveNext - number > REPLAY_WINDOW) return false;
  return (load<u64>(wordOf(auth, number)) & ((<u64>1) << (number & 63))) == 0;
}

/** Notes a number; the words between the highest one and it are cleared. */
function take(auth: PacketAuth, number: u64): void {
  if (number >= auth.receiveNext) {
    const first = (auth.receiveNext + 63) >> 6;
    const last = number >> 6;
    const from = last >= WINDOW_WORDS && first < last - WINDOW_WORDS ? last - WINDOW_WORDS : first;
    for (let word = from; word <= last; word++) store<u64>(wordOf(auth, word << 6), 0);
    auth.receiveNext = number + 1;
  }
  const word = wordOf(auth, number);
  store<u64>(word, load<u64>(word) | ((<u64>1) << (number & 63)));
}

/** The sender went on to the next generation with packet `number`. */
function advanceKeys(context: Context, auth: PacketAuth, number: u64): void {
  const current = at(auth, offsetof<PacketAuth>('receiveKey'));
  memory.copy(at(auth, offsetof<PacketAuth>('lastReceiveKey')), current, CHACHA_KEY_SIZE);
  memory.copy(current, at(auth, offsetof<PacketAuth>('nextReceiveKey')), CHACHA_KEY_SIZE);
  auth.receiveGeneration++;
  auth.keepsLast = 1;
  auth.receiveSince = number;
  prepareNext(context, auth);
  // The answer with our next key says that we have followed.
  if (sendGeneration(auth) < auth.receiveGeneration) rotate(context, auth);
}

/** All numbers of the last generation are too old: its recorded packets stay secret. */
function forgetLast(auth: PacketAuth): void {
  auth.keepsLast = 0;
  clear(at(auth, offsetof<PacketAuth>('lastReceiveKey')), CHACHA_KEY_SIZE);
}
