/**
 * Regions that a dead queue pair has left registered: LOCAL_INV wants a queue pair of the same
 * protection domain, so one is made that is connected to itself and sends nothing.
 */
import { Mtu, QpState } from '#build/abi.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { FastMemoryRegion } from '../verbs/regions/fast-memory-region.js';
import { SendFlag, WrOpcode } from '#build/abi.js';

const PSN = 0;

/** Resolves when none of them is registered any more. */
export async function invalidateAll(
  pd: ProtectionDomain,
  regions: readonly FastMemoryRegion[],
): Promise<void> {
  const live = regions.filter((mr) => mr.registered);
  if (live.length === 0 || pd.context.device.closed) return;
  const cq = pd.context.createCq(live.length);
  const cap = { maxSendWr: live.length, maxRecvWr: 1, maxSendSge: 1, maxRecvSge: 1 };
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap });
  try {
    const { gid: dgid, port } = pd.context.local;
    const pathMtu = Mtu.MTU_256;
    qp.modify({ qpState: QpState.INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
    qp.modify({
      ...{ qpState: QpState.RTR, ahAttr: { dgid, port }, pathMtu, destQpNum: qp.qpNum },
      ...{ rqPsn: PSN, maxDestRdAtomic: 0, minRnrTimer: 1 },
    });
    const timeouts = { timeout: 14, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 0 };
    qp.modify({ qpState: QpState.RTS, sqPsn: PSN, ...timeouts });
    for (const { rkey } of live) {
      const opcode = WrOpcode.LOCAL_INV;
      qp.postSend({ opcode, sendFlags: SendFlag.SIGNALED, invalidateRkey: rkey });
    }
    for (let done = 0; done < live.length;) {
      const completions = await cq.wait(live.length);
      if (completions.length === 0) return;
      done += completions.length;
    }
  } finally {
    if (!pd.context.device.closed) {
      qp.destroy();
      cq.destroy();
    }
  }
}
