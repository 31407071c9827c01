/** Options of `verbena serve`. */
import type { AccessOptions } from '../file-transfer/access.js';
import type { FaultPercents } from '../base/open-device.js';

export interface ServeOptions extends FaultPercents, AccessOptions {
  readonly dir: string;
  readonly bind: string;
  readonly port: number;
  /** Room of a signalling server, in place of UDP. */
  readonly room?: string;
  readonly dscp: number;
  readonly maxClients: number;
  readonly windowBytes: number;
  readonly pcap?: string;
  readonly json?: boolean;
  /** Files go into persistent memory instead. */
  readonly pmem?: string;
  readonly pmemBytes?: number;
  /** Bytes of all files in the directory. */
  readonly quota?: number;
  /** Hours until unfinished files are removed. */
  readonly expire: number;
}
