/** A context and its queue pairs for the checks: the engine's own, at the same place each time. */
import { Arena } from '../memory/arena';
import { Errno } from '../memory/errno';
import { createCompletionQueue, createQueuePair } from '../transport/control';
import { Context, ContextConfig, contextBytes, initContext } from '../transport/shared/context';
import {
  QueuePair,
  QueuePairParameters,
  RANDOM_QPNS,
  queuePairBytes,
} from '../transport/shared/queue-pair';
import { QpType } from '../transport/shared/status';
import { FREE, LOW_END } from './memory';
import { same } from './tap';

/** Behind the arena of the checks. */
const CONFIG: usize = FREE + 0x40000;
const PARAMETERS: usize = CONFIG + 512;
const RING: usize = CONFIG + 1024;
const RING_BYTES: usize = 8192;
const CONTEXT: usize = RING + RING_BYTES;
const ENTRIES: u32 = 16;

let queuePairs: usize = 0;
let nextNumber: u32 = 0;

/** The context of slot 0: windows of 64 packets, four READs at a time, the local path. */
export function freshContext(arena: Arena): Context {
  const config = changetype<ContextConfig>(CONFIG);
  memory.fill(CONFIG, 0, offsetof<ContextConfig>());
  config.queuePairsMax = 16;
  config.completionQueuesMax = 1;
  config.rdAtomicMax = 4;
  config.sendBuffers = 1;
  config.receivePackets = 8;
  config.receiveBytes = 8192;
  config.eventsMax = 16;
  config.windowCharge = 1 << 20;
  config.windowChargeMax = 1 << 20;
  config.windowPackets = 64;
  config.packetSizeMax = 4096;
  config.localPath = 1;
  const size = <usize>contextBytes(config);
  same(u64(CONTEXT + size <= LOW_END), 1, 'context size', size);
  memory.fill(CONTEXT, 0, size);
  const context = changetype<Context>(CONTEXT);
  initContext(context, arena, config, 1000);
  queuePairs = (CONTEXT + size + 63) & ~63;
  nextNumber = 0;
  memory.fill(RING, 0, RING_BYTES);
  same(u64(createCompletionQueue(context, RING, 64) != 0), 1, 'completion queue');
  return context;
}

/** A reliable queue pair of the context in RESET, with selective repeat. */
export function freshQueuePair(context: Context, pd: u32): QueuePair {
  const wanted = changetype<QueuePairParameters>(PARAMETERS);
  memory.fill(PARAMETERS, 0, offsetof<QueuePairParameters>());
  wanted.type = QpType.RC;
  wanted.pd = pd;
  wanted.sendCq = context.completionQueues;
  wanted.receiveCq = context.completionQueues;
  wanted.sendEntries = ENTRIES;
  wanted.receiveEntries = ENTRIES;
  wanted.sendSgeMax = 4;
  wanted.receiveSgeMax = 4;
  wanted.reorderPackets = 64;
  wanted.flightPackets = 64;
  wanted.memory = <u32>queuePairs;
  const random = PARAMETERS + offsetof<QueuePairParameters>('random');
  nextNumber++;
  for (let draw: u32 = 0; draw < RANDOM_QPNS; draw++) {
    store<u32>(random + (draw << 2), nextNumber + 1);
  }
  const size = <usize>queuePairBytes(wanted, context.rdAtomicMax);
  same(u64(queuePairs + size <= LOW_END), 1, 'queue pair size', size);
  memory.fill(queuePairs, 0, size);
  queuePairs = (queuePairs + size + 63) & ~63;
  same(createQueuePair(context, wanted), Errno.OK, 'queue pair', nextNumber);
  return changetype<QueuePair>(<usize>wanted.queuePair);
}
