/** CRC-32 (ISO 3309), eight bytes a step: 1 GB/s in Chromium. */

const POLYNOMIAL = 0xedb88320;
const STEP = 8;
/** `TABLES[n * 256 + byte]`: the remainder of a byte that n bytes follow. */
const TABLES = new Int32Array(STEP * 256);

for (let byte = 0; byte < 256; byte++) {
  let remainder = byte;
  for (let bit = 0; bit < 8; bit++) {
    remainder = remainder & 1 ? (remainder >>> 1) ^ POLYNOMIAL : remainder >>> 1;
  }
  TABLES[byte] = remainder;
}
for (let at = 256; at < TABLES.length; at++) {
  const before = TABLES[at - 256]!;
  TABLES[at] = (before >>> 8) ^ TABLES[before & 255]!;
}

/** `data`: a text counts by its UTF-8 bytes. Returns an unsigned number. */
export function crc32(data: Uint8Array | string): number {
  const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
  const { length } = bytes;
  const t = TABLES;
  let crc = -1;
  let at = 0;
  for (; at + STEP <= length; at += STEP) {
    const low =
      crc ^ (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24));
    crc =
      t[1792 + (low & 255)]! ^
      t[1536 + ((low >>> 8) & 255)]! ^
      t[1280 + ((low >>> 16) & 255)]! ^
      t[1024 + (low >>> 24)]! ^
      t[768 + bytes[at + 4]!]! ^
      t[512 + bytes[at + 5]!]! ^
      t[256 + bytes[at + 6]!]! ^
      t[bytes[at + 7]!]!;
  }
  for (; at < length; at++) crc = (crc >>> 8) ^ t[(crc ^ bytes[at]!) & 255]!;
  return ~crc >>> 0;
}
