/** The requested and granted sizes of a queue pair's queues. */
import { REORDER_MAX } from '#build/abi.js';
import { checkWhole } from '../../errors/check-whole.js';
import { MAX_INLINE_DATA, MAX_QP_WR, MAX_SGE } from '../limits.js';

/** `ibv_qp_cap`. Granted values may be larger: `qp.cap`. */
export interface QpCapabilities {
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInlineData: number;
  /**
   * Packets kept when they come ahead of a gap: 0 (the default), or a power of two up to 8192. The
   * queue pairs of a device share the memory for them (`reorderBytes` of `openDevice`), which
   * limits it too. Only between
   * peers of our kind that tell each other (`ahAttr`): then what is lost is sent again, and nothing
   * else. As many as are in flight, on long paths thousands. No counterpart in libibverbs.
   */
  readonly reorderPackets: number;
}

/**
 * Numbers of entries become powers of two; the device keeps `reorderMax` packets at most. Throws
 * MisuseError for a value out of range.
 */
export function grantCapabilities(
  wanted: Partial<QpCapabilities>,
  reorderMax: number,
): QpCapabilities {
  const within = (name: keyof QpCapabilities, preset: number, least: number, most: number) => {
    const value = wanted[name] ?? preset;
    checkWhole(`cap.${name}`, value, least, most);
    return value;
  };
  const entries = (value: number): number => 2 ** Math.ceil(Math.log2(value));
  const reorder = within('reorderPackets', 0, 0, REORDER_MAX);
  const kept = reorderMax === 0 ? 0 : 2 ** Math.floor(Math.log2(reorderMax));
  return {
    maxSendWr: entries(within('maxSendWr', 128, 1, MAX_QP_WR)),
    maxRecvWr: entries(within('maxRecvWr', 128, 1, MAX_QP_WR)),
    maxSendSge: within('maxSendSge', 4, 1, MAX_SGE),
    maxRecvSge: within('maxRecvSge', 4, 1, MAX_SGE),
    maxInlineData: within('maxInlineData', 0, 0, MAX_INLINE_DATA),
    reorderPackets: reorder === 0 ? 0 : Math.min(entries(reorder), kept),
  };
}
