/** Options of `verbena put`. */
import type { AccessOptions } from '../file-transfer/access.js';
import type { FaultPercents } from '../base/open-device.js';

export interface PutOptions extends FaultPercents, AccessOptions {
  /** Local address; default: the one that the system would send from. */
  readonly bind?: string;
  /** Local UDP port. */
  readonly localPort: number;
  readonly retries?: number;
  /** Seconds. */
  readonly outage?: number;
  readonly dscp: number;
  readonly pieceBytes: number;
  readonly pcap?: string;
  readonly json?: boolean;
  /** Into the persistent memory of `verbena serve --pmem`. */
  readonly pmem?: boolean;
}
