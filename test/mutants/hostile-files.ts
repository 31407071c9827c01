/** Checks of files that an attacker wrote, and of one host that takes all queues of a target. */
import type { Row } from './mutants.js';

export const HOSTILE_FILES: readonly Row[] = [
  [
    'a record of a capture reaches beyond the file',
    'host/link/pcap-reader.ts',
    'if (length > left - RECORD_HEADER_SIZE) {',
    'if (length > 2 ** 32) {',
  ],
  [
    'a damaged device file is opened',
    'host/device/device-file.ts',
    'header.ready !== 1 || header.checksum !== headerChecksum(bytes)',
    'header.ready !== 1',
  ],
  [
    'one source takes all queues of an NVMe target',
    'host/nvme/target.ts',
    'own.length >= queuesPerSource || ',
    '',
  ],
];
