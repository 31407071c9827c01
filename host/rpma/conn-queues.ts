/** The completion queues and the queue pair of a connection. */
import type { CmId } from '../cm/cm-id.js';
import { MisuseError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { CompletionChannel } from '../verbs/queues/completion-channel.js';
import type { ConnCfg } from './conn-cfg.js';
import { Cq } from './cq.js';

/** Bytes that an atomic write takes along. */
const MAX_INLINE_DATA = 8;

/** @internal A peer's device and protection domain. */
export interface PeerResources {
  readonly context: Context;
  readonly pd: ProtectionDomain;
}

/** @internal A queue pair's completion queues. */
export interface ConnQueues {
  readonly cq: Cq;
  readonly rcq: Cq | undefined;
  /** The connection's own, when the two share one. */
  readonly channel: CompletionChannel | undefined;
}

/** @internal */
export function deleteQueues({ cq, rcq, channel }: ConnQueues): void {
  cq.delete();
  rcq?.delete();
  channel?.destroy();
}

/** @internal Completion queues and a queue pair, as the configuration wants them. */
export function makeQueues(peer: PeerResources, id: CmId, cfg: ConnCfg): ConnQueues {
  const { context, pd } = peer;
  const srq = cfg.getSrq();
  const isShared = cfg.getComplChannel();
  if (isShared && srq?.getRcq()) {
    throw new MisuseError(
      'cfg',
      'must not set both a shared completion channel and a receive queue size',
    );
  }
  const channel = isShared ? context.createCompChannel() : undefined;
  const made: Cq[] = [];
  try {
    const cq = new Cq(context, cfg.getCqSize(), channel);
    made.push(cq);
    let rcq: Cq | undefined;
    if (!srq?.getRcq() && cfg.getRcqSize() > 0) {
      rcq = new Cq(context, cfg.getRcqSize(), channel);
      made.push(rcq);
    }
    const cap = {
      maxSendWr: cfg.getSqSize(),
      maxRecvWr: Math.max(cfg.getRqSize(), 1),
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: MAX_INLINE_DATA,
    };
    const recvCq = (srq?.getRcq() ?? rcq ?? cq).queue;
    const queues = { sendCq: cq.queue, recvCq, cap };
    id.createQp(srq ? { ...queues, srq: srq.queue } : queues, pd);
    return { cq, rcq, channel };
  } catch (error) {
    for (const cq of made) cq.delete();
    channel?.destroy();
    throw error;
  }
}
