/** CRC-32 (ISO 3309) of the pieces and journal lines. */
export { crc32 } from 'node:zlib';
