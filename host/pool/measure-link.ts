/** The speed of a connection, measured: from it `regionsFor` has the number of regions. */
import { checkMillis } from '../base/timer.js';
import { checkKeys, checkObject } from '../base/options.js';
import { checkWhole } from '../errors/check-whole.js';
import { MisuseError, RefusalError } from '../errors/errors.js';
import { SendFlag, WcStatus, WrOpcode } from '../verbs/enums.js';
import { QueuePair } from '../verbs/queues/queue-pair.js';
import type { RemoteMemory } from '../verbs/queues/work-request.js';
import type { Sge } from '../verbs/queues/sge.js';

/** Queue pair, memory and limits of a measurement by `measureLink`. */
export interface LinkProbe {
  /** A connected queue pair without requests in flight; its send queue's completions are taken. */
  readonly qp: QueuePair;
  /** Registered memory of this side: the bytes of one request. */
  readonly source: Sge;
  /** Memory of the peer that takes as many bytes, with REMOTE_WRITE; it is overwritten. */
  readonly remote: RemoteMemory;
  /** Requests in flight, at most the send queue's. Default 16. */
  readonly depth?: number;
  /** Duration of the measurement of the speed. Default 100. */
  readonly millis?: number;
}

/** Result of `measureLink`. */
export interface LinkSpeed {
  readonly linkBytesPerSecond: number;
  /** Time of one WRITE alone, from its posting to its completion: the median. */
  readonly roundTripMicros: number;
  readonly requestBytes: number;
}

/** WRITEs one after the other. */
const SINGLE = 15;

/**
 * Writes to the peer as fast as the connection accepts it, and measures. Pass the result to
 * `regionsFor`, with the response time of the store. Rejects with MisuseError; RefusalError EIO (a
 * request failed), and as `postSend`.
 */
export async function measureLink(probe: LinkProbe): Promise<LinkSpeed> {
  checkKeys('measureLink', probe, 'qp source remote depth millis');
  const { qp, source, remote, depth = 16, millis = 100 } = probe;
  if (!(qp instanceof QueuePair)) throw new MisuseError('qp', 'must be a queue pair');
  checkObject('measureLink', source, 'source');
  checkObject('measureLink', remote, 'remote');
  const requestBytes = Number(source.length);
  checkWhole('depth', depth, 1, 2 ** 16);
  checkMillis('millis', millis, 1);
  const alone: number[] = [];
  for (let turn = 0; turn < SINGLE; turn++) {
    const start = performance.now();
    post(probe);
    await taken(qp, 1);
    alone.push(performance.now() - start);
  }
  alone.sort((one, other) => one - other);
  const start = performance.now();
  let [done, inFlight] = [0, 0];
  let end = start;
  while (end < start + millis) {
    for (; inFlight < depth; inFlight++) post(probe);
    const count = await taken(qp, depth);
    inFlight -= count;
    done += count;
    end = performance.now();
  }
  while (inFlight > 0) inFlight -= await taken(qp, inFlight);
  return {
    linkBytesPerSecond: (done * requestBytes * 1000) / (end - start),
    roundTripMicros: alone[SINGLE >> 1]! * 1000,
    requestBytes,
  };
}

function post({ qp, source, remote }: LinkProbe): void {
  qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [source],
    rdma: remote,
  });
}

/** Waits for completions; returns their number. */
async function taken(qp: QueuePair, most: number): Promise<number> {
  const completions = await qp.sendCq.wait(most);
  for (const { status } of completions) {
    if (status === WcStatus.SUCCESS) continue;
    const rule = 'the peer or the network refused it; connect anew';
    throw new RefusalError('EIO', `measureLink: a WRITE ended with status ${status}: ${rule}`);
  }
  return completions.length;
}
