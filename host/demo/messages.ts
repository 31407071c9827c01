/** SENDs: two-sided, so the receiving application has to take part, at its own pace. */
import { timerMillis } from '../base/timer.js';
import { SendFlag, WrOpcode } from '../verbs/enums.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { check, type End } from './private-data.js';
import { STAMP_BYTES, Word, readWord, stampOf, writeWord } from './memory-layout.js';

export const MESSAGE_BYTES = 64;
/** Receives that are posted: how many messages may come before the application has taken one. */
export const RECEIVES = 4;
const PACE_MILLIS_MAX = 1000;

/** Posts the receives, before anything can come. */
export function postReceives(qp: QueuePair, inbox: MemoryRegion): void {
  for (let slot = 0; slot < RECEIVES; slot++) postReceive(qp, inbox, slot);
}

export function postReceive(qp: QueuePair, { addr, lkey }: MemoryRegion, slot: number): void {
  const at = slot * MESSAGE_BYTES;
  qp.postRecv({ wrId: slot, sgList: [{ addr: addr + BigInt(at), length: MESSAGE_BYTES, lkey }] });
}

/**
 * Takes messages until the connection is over: counts each in `memory`, and takes as long for it as
 * is written there.
 */
export async function takeMessages(
  { connection: { qp, recvCq } }: End,
  inbox: MemoryRegion,
  memory: Uint8Array,
): Promise<void> {
  for (;;) {
    const completions = await recvCq.wait(1);
    check(completions);
    const pace = Math.min(readWord(memory, Word.PACE_MILLIS), PACE_MILLIS_MAX);
    if (pace > 0) await new Promise((resolve) => setTimeout(resolve, timerMillis(pace)));
    writeWord(memory, Word.MESSAGES, readWord(memory, Word.MESSAGES) + 1);
    postReceive(qp, inbox, Number(completions[0]!.wrId));
  }
}

/**
 * WRITEs a line of our picture to the memory of the other side, whenever it sends something,
 * until it is refused or the connection is over.
 */
export async function stampWhenAsked(
  { connection: { qp, sendCq, recvCq }, privateData: { addr: remoteAddr, rkey } }: End,
  inbox: MemoryRegion,
  ours: MemoryRegion,
): Promise<void> {
  const line = stampOf(ours.buffer);
  const addr = ours.addr + BigInt(line.byteOffset - ours.buffer.byteOffset);
  for (;;) {
    check(await recvCq.wait(1));
    postReceive(qp, inbox, 0);
    qp.postSend({
      opcode: WrOpcode.RDMA_WRITE_WITH_IMM,
      immData: STAMP_BYTES,
      sgList: [{ addr, length: STAMP_BYTES, lkey: ours.lkey }],
      rdma: { remoteAddr, rkey },
      sendFlags: SendFlag.SIGNALED,
    });
    check(await sendCq.wait());
  }
}

/** Behind the slots of the inbox lies the message that is sent. */
export const BOX_BYTES = MESSAGE_BYTES * (RECEIVES + 1);

/** SENDs `count` messages; resolves when the other's application had room for all. */
export async function sendMessages(end: End, box: MemoryRegion, count: number): Promise<void> {
  const { qp, sendCq } = end.connection;
  const { lkey } = box;
  const addr = box.addr + BigInt(MESSAGE_BYTES * RECEIVES);
  for (let index = 0; index < count; index++) {
    qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr, length: MESSAGE_BYTES, lkey }],
      sendFlags: index + 1 === count ? SendFlag.SIGNALED : 0,
    });
  }
  check(await sendCq.wait());
}
