/** The queue that a REQ asks for (RDMA transport 1.0 section 3). */
import { NvmeRdmaStatus } from './constants.js';
import { RdmaRequestData } from './structures.js';

const ADMIN_ENTRIES_MAX = 128;

/** A REQ that is refused with this status. */
export interface RefusedRequest {
  readonly sts: number;
  readonly why: string;
}

/** `ioEntriesMax`: entries of an I/O queue at most. */
export function queueRequestOf(
  privateData: Uint8Array,
  ioEntriesMax: number,
): { readonly qid: number; readonly entries: number } | RefusedRequest {
  if (privateData.length < RdmaRequestData.size) {
    const sts = NvmeRdmaStatus.INVALID_PRIVATE_DATA_LENGTH;
    return { sts, why: 'its private data are too short' };
  }
  const { recfmt, qid, hsqsize, hrqsize } = RdmaRequestData.read(privateData);
  const most = qid === 0 ? ADMIN_ENTRIES_MAX : ioEntriesMax;
  if (recfmt !== 0) {
    return { sts: NvmeRdmaStatus.INVALID_RECFMT, why: `private data of format ${recfmt}` };
  }
  if (hsqsize + 1 > most) {
    const why = `${hsqsize + 1} entries: there are ${most} at most`;
    return { sts: NvmeRdmaStatus.INVALID_HSQSIZE, why };
  }
  if (hrqsize === 0) {
    return { sts: NvmeRdmaStatus.INVALID_HRQSIZE, why: 'no receives for answers' };
  }
  return { qid, entries: hsqsize + 1 };
}
