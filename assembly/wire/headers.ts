/**
 * Header fields, read and written in place, big-endian (IBA 9.2, 9.3). An address is that of the
 * header's first byte. These functions check no length; `packet.ts` does, once.
 */

/** P_Key of the default partition, full member. */
export const DEFAULT_PKEY: u32 = 0xffff;
/** The bit of a P_Key that says full member; the others are the partition. */
export const FULL_MEMBER: u32 = 0x8000;
/** BTH byte 4 holds FECN, BECN and reserved bits; the ICRC takes it as ones. */
export const BTH_MASKED_BYTE: usize = 4;

export function loadU16(at: usize): u32 {
  return <u32>bswap<u16>(load<u16>(at));
}

export function storeU16(at: usize, value: u32): void {
  store<u16>(at, bswap<u16>(<u16>value));
}

export function loadU32(at: usize): u32 {
  return bswap<u32>(load<u32>(at));
}

export function storeU32(at: usize, value: u32): void {
  store<u32>(at, bswap<u32>(value));
}

export function loadU64(at: usize): u64 {
  return bswap<u64>(load<u64>(at));
}

export function storeU64(at: usize, value: u64): void {
  store<u64>(at, bswap<u64>(value));
}

/**
 * BTH, 12 bytes:
 * ```
 *  0          1                        2             4                 5
 *  | opcode   | SE M Pad(2) TVer(4)    | P_Key (16)  | F B resv6       | destination QP (24) |
 *  8                                   9
 *  | A resv7                           | PSN (24)                                            |
 * ```
 */
export function bthOpcode(bth: usize): u32 {
  return load<u8>(bth);
}

export function bthSolicited(bth: usize): u32 {
  return load<u8>(bth, 1) >> 7;
}

export function bthMigration(bth: usize): u32 {
  return (load<u8>(bth, 1) >> 6) & 1;
}

export function bthPadCount(bth: usize): u32 {
  return (load<u8>(bth, 1) >> 4) & 3;
}

export function bthVersion(bth: usize): u32 {
  return load<u8>(bth, 1) & 0x0f;
}

export function bthPkey(bth: usize): u32 {
  return loadU16(bth + 2);
}

/** FECN 0x80, BECN 0x40, six reserved bits. */
export function bthCongestion(bth: usize): u32 {
  return load<u8>(bth, 4);
}

export function bthTargetQp(bth: usize): u32 {
  return loadU32(bth + 4) & 0xffffff;
}

export function bthAckRequest(bth: usize): u32 {
  return load<u8>(bth, 8) >> 7;
}

/** Byte 8's reserved bits: 0 but between peers that do selective repeat (reorder-buffer.ts). */
export function bthMark(bth: usize): u32 {
  return load<u8>(bth, 8) & 0x7f;
}

export function bthPsn(bth: usize): u32 {
  return loadU32(bth + 8) & 0xffffff;
}

/** BTH byte 1: solicited event (0 or 1), pad count; migration and transport version are 0. */
export function bthBits(solicited: u32, padCount: u32): u32 {
  return (solicited << 7) | (padCount << 4);
}

/** Writes a whole BTH. `bits` is byte 1, `congestion` byte 4. */
export function storeBth(
  bth: usize,
  opcode: u32,
  bits: u32,
  pkey: u32,
  targetQp: u32,
  ackRequest: u32,
  psn: u32,
): void {
  store<u32>(bth, opcode | (bits << 8) | ((pkey >>> 8) << 16) | (pkey << 24));
  store<u32>(bth, bswap<u32>(targetQp), 4);
  store<u32>(bth, bswap<u32>(psn | (ackRequest << 31)), 8);
}

/** RETH, 16 bytes: virtual address (64), R_Key (32), DMA length (32). */
export function rethAddress(reth: usize): u64 {
  return loadU64(reth);
}

export function rethKey(reth: usize): u32 {
  return loadU32(reth + 8);
}

export function rethLength(reth: usize): u32 {
  return loadU32(reth + 12);
}

export function storeReth(reth: usize, address: u64, key: u32, length: u32): void {
  storeU64(reth, address);
  storeU32(reth + 8, key);
  storeU32(reth + 12, length);
}

/** AETH, 4 bytes: syndrome (8), message sequence number (24). */
export function aethSyndrome(aeth: usize): u32 {
  return load<u8>(aeth);
}

export function aethMsn(aeth: usize): u32 {
  return loadU32(aeth) & 0xffffff;
}

export function storeAeth(aeth: usize, syndrome: u32, msn: u32): void {
  storeU32(aeth, (syndrome << 24) | (msn & 0xffffff));
}

/** AtomicETH, 28 bytes: virtual address (64), R_Key (32), swap or add (64), compare (64). */
export function atomicAddress(atomic: usize): u64 {
  return loadU64(atomic);
}

export function atomicKey(atomic: usize): u32 {
  return loadU32(atomic + 8);
}

export function atomicSwapAdd(atomic: usize): u64 {
  return loadU64(atomic + 12);
}

export function atomicCompare(atomic: usize): u64 {
  return loadU64(atomic + 20);
}

/** DETH, 8 bytes: Q_Key (32), reserved (8), source QP (24). */
export function dethQkey(deth: usize): u32 {
  return loadU32(deth);
}

export function dethSourceQp(deth: usize): u32 {
  return loadU32(deth + 4) & 0xffffff;
}

/**
 * `ibv_placement_type`, a mask; neither bit implies the other. FETH, 4 bytes (IBA annex A19):
 * ```
 *  31                                      6   5 : 4         3 : 0
 *  | reserved                              | selectivity | placement |
 * ```
 */
export enum PlacementType {
  GLOBAL = 1,
  PERSISTENT = 2,
}

/** `ibv_selectivity_level`. */
export enum SelectivityLevel {
  RANGE = 0,
  MR = 1,
}

/** Bits of PlacementType, and undefined ones. */
export function placementOf(feth: u32): u32 {
  return feth & 0x0f;
}

/** A SelectivityLevel, or 2 or 3. */
export function selectivityOf(feth: u32): u32 {
  return (feth >> 4) & 3;
}

/** Same partition, and one side is a full member (IBA 10.9.3). */
export function mayTalk(theirs: u32, ours: u32): bool {
  return ((theirs ^ ours) & ~FULL_MEMBER) == 0 && ((theirs | ours) & FULL_MEMBER) != 0;
}
