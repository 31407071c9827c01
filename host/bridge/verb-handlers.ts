/** The verbs of libibverbs that need the device: one function for each operation. */
import { RefusalError } from '../errors/errors.js';
import { Gid } from '../link/endpoint.js';
import type { Context } from '../verbs/context.js';
import { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { DeviceMemory } from '../verbs/regions/device-memory.js';
import { MemoryRegion } from '../verbs/regions/memory-region.js';
import { MemoryWindow } from '../verbs/regions/memory-window.js';
import { NullMemoryRegion } from '../verbs/regions/null-memory-region.js';
import { AddressHandle } from '../verbs/queues/address-handle.js';
import { CompletionQueue } from '../verbs/queues/completion-queue.js';
import { QueuePair } from '../verbs/queues/queue-pair.js';
import { SharedReceiveQueue } from '../verbs/queues/shared-receive-queue.js';
import { AccessFlag, AsyncEvent, QpAttribute, QpState, ReregMrFlag } from '../verbs/enums.js';
import type { Word } from './control-channel.js';
import { EventPipe } from './event-pipe.js';
import { ObjectTable, type Kind } from './object-table.js';
import { ScatteredRegion } from './scattered-region.js';

/** `IBV_SRQ_MAX_WR`, `IBV_SRQ_LIMIT`. */
const SRQ_MAX_WR = 1n;
const SRQ_LIMIT = 2n;
const FLOW_LABEL_MASK = 0xfffffn;
const PSN_MASK = 0xffffffn;

/** State that all handlers share. */
export interface BridgeState {
  readonly context: Context;
  readonly objects: ObjectTable;
  /** The receive buffer of a peer on this machine; undefined: it is unknown. */
  readonly receiveBufferOf: (gid: Gid) => number | undefined;
}

/** Region of the program: one key is its lkey and its rkey. */
type RegionOfProgram = MemoryRegion | NullMemoryRegion | ScatteredRegion;

/** A GID of two words. */
export function gidOf(low: bigint, high: bigint): Gid {
  const view = new DataView(new ArrayBuffer(16));
  view.setBigUint64(0, low, true);
  view.setBigUint64(8, high, true);
  return new Gid(new Uint8Array(view.buffer));
}

export function gidWords({ bytes }: Gid): [bigint, bigint] {
  const view = new DataView(bytes.slice().buffer);
  return [view.getBigUint64(0, true), view.getBigUint64(8, true)];
}

/** This machine's own: no peer at a loopback address is a Linux adapter. */
function isLoopback(gid: Gid): boolean {
  return gid.isIpv4 ? gid.bytes[12] === 127 : gid.toString() === '::1';
}

/** Handlers of protection domains and regions. */
export function regionHandlers({ context, objects }: BridgeState) {
  const { memory } = context.device.arena;
  const pd = (number: bigint) => objects.get(ProtectionDomain, number);
  const bufferAt = (address: bigint, length: bigint) =>
    memory.bytes.subarray(Number(address), Number(address + length));
  const keyed = (mr: RegionOfProgram): Word[] => [objects.add(mr), mr.lkey >>> 0, mr.lkey >>> 0];
  return {
    ALLOC_PD: () => [objects.add(context.allocPd())],
    DEALLOC_PD: (domain: bigint) => {
      pd(domain).dealloc();
      objects.remove(domain);
    },
    REG_MR: (domain: bigint, address: bigint, length: bigint, access: bigint, iova: bigint) =>
      keyed(pd(domain).regMr(bufferAt(address, length), Number(access), { iova })),
    // Address and length of each piece follow.
    REG_PIECES: (...words: bigint[]) => {
      const [domain, access, iova, ...places] = words as [bigint, bigint, bigint, ...bigint[]];
      const pieces: Uint8Array[] = [];
      for (let index = 0; index < places.length; index += 2) {
        pieces.push(bufferAt(places[index]!, places[index + 1]!));
      }
      return keyed(new ScatteredRegion(pd(domain), pieces, Number(access), iova));
    },
    REREG_MR: (
      region: bigint,
      flags: bigint,
      domain: bigint,
      address: bigint,
      length: bigint,
      access: bigint,
      iova: bigint,
    ) => {
      const has = (flag: number) => (Number(flags) & flag) !== 0;
      const moves = has(ReregMrFlag.CHANGE_TRANSLATION);
      objects
        .get(MemoryRegion, region)
        .rereg(
          Number(flags),
          has(ReregMrFlag.CHANGE_PD) ? pd(domain) : undefined,
          moves ? bufferAt(address, length) : undefined,
          has(ReregMrFlag.CHANGE_ACCESS) ? Number(access) : undefined,
          moves ? { iova } : {},
        );
    },
    DEREG_MR: (region: bigint) => {
      const others = [NullMemoryRegion, ScatteredRegion];
      const kind = others.find((one) => objects.is(one, region)) ?? MemoryRegion;
      objects.get<RegionOfProgram>(kind, region).dereg();
      objects.remove(region);
    },
    QUERY_MR: (region: bigint) => {
      const kind = objects.is(ScatteredRegion, region) ? ScatteredRegion : MemoryRegion;
      const { lkey, length } = objects.get<MemoryRegion | ScatteredRegion>(kind, region);
      return [lkey >>> 0, lkey >>> 0, length];
    },
    NULL_MR: (domain: bigint) => keyed(pd(domain).allocNullMr()),
    REG_DM_MR: (domain: bigint, dm: bigint, offset: bigint, length: bigint, access: bigint) => {
      const memoryOf = objects.get(DeviceMemory, dm);
      // C programs register no bytes as well: a byte without rights stands for them.
      const [bytes, rights] = length === 0n ? [1, AccessFlag.ZERO_BASED] : [length, access];
      return keyed(pd(domain).regDmMr(memoryOf, Number(offset), Number(bytes), Number(rights)));
    },
  };
}

/** Handlers of windows and of device memory. */
export function windowHandlers({ context, objects }: BridgeState) {
  const pd = (number: bigint) => objects.get(ProtectionDomain, number);
  return {
    ALLOC_MW: (domain: bigint, type: bigint) => {
      const window = pd(domain).allocMw(Number(type));
      return [objects.add(window), window.rkey >>> 0];
    },
    DEALLOC_MW: (window: bigint) => {
      objects.get(MemoryWindow, window).dealloc();
      objects.remove(window);
    },
    ALLOC_DM: (length: bigint) => {
      const dm = context.allocDm({ length: Number(length) });
      return [objects.add(dm), dm.address];
    },
    FREE_DM: (dm: bigint) => {
      objects.get(DeviceMemory, dm).free();
      objects.remove(dm);
    },
  };
}

/** Handlers of contexts, completion channels and queues. */
export function completionHandlers({ context, objects }: BridgeState, events: AsyncEvents) {
  const channels = new WeakMap<CompletionQueue, EventPipe>();
  // The device's thread writes to them, if it is a native one.
  const native = context.device.progress.channels;
  return {
    OPEN_CONTEXT: (descriptor: bigint) => {
      const pipe = new EventPipe(descriptor);
      events.opened.add(pipe);
      return [objects.add(pipe)];
    },
    CLOSE_CONTEXT: (pipe: bigint) => {
      const opened = objects.get(EventPipe, pipe);
      events.opened.delete(opened);
      for (const qp of events.owned(QueuePair, opened)) {
        for (const group of [...qp.groups.values()]) qp.detachMcast(group);
      }
      opened.close();
      objects.remove(pipe);
    },
    CREATE_CHANNEL: (descriptor: bigint) => [objects.add(new EventPipe(descriptor))],
    DESTROY_CHANNEL: (pipe: bigint) => {
      const ended = objects.get(EventPipe, pipe);
      native?.drop(ended.descriptor);
      ended.close();
      objects.remove(pipe);
    },
    CREATE_CQ: (opened: bigint, cqe: bigint, channel: bigint) => {
      const cq = context.createCq(Number(cqe));
      const number = objects.add(cq);
      events.own(cq, objects.get(EventPipe, opened));
      if (channel !== 0n) {
        const pipe = objects.get(EventPipe, channel);
        if (native) native.add(cq.handle, pipe.descriptor, BigInt(number));
        else cq.onEvent = () => pipe.writeWords(number);
        channels.set(cq, pipe);
      }
      return [number, cq.handle, cq.cqe];
    },
    RESIZE_CQ: (queue: bigint, cqe: bigint) => {
      const cq = objects.get(CompletionQueue, queue);
      // A poll completes requests posted before, as a device with nothing else to do would.
      context.device.poll();
      cq.resize(Number(cqe));
      return [cq.cqe];
    },
    DESTROY_CQ: (queue: bigint) => {
      const cq = objects.get(CompletionQueue, queue);
      cq.destroy();
      // Before those that the program has not read are taken back.
      native?.dropQueue(cq.handle);
      events.withdraw(queue, cq);
      channels.get(cq)?.withdrawUnread(8, (record) => record.getBigUint64(0, true) === queue);
      objects.remove(queue);
    },
  };
}

/** Handlers of queue pairs, multicast and address handles. `ids`: those of connections. */
export function queuePairHandlers(
  { objects, receiveBufferOf }: BridgeState,
  events: AsyncEvents,
  ids: IdQueuePairs,
) {
  const qp = (number: bigint) => objects.get(QueuePair, number);
  return {
    CREATE_QP: (...words: bigint[]) => {
      const [opened, id, domain, type, send, receive, srq, ...rest] = words as Words<7>;
      const [sendWr, recvWr, sendSge, recvSge, inline, all] = rest.map(Number);
      const attributes = {
        qpType: Number(type),
        sendCq: objects.get(CompletionQueue, send),
        recvCq: objects.get(CompletionQueue, receive),
        ...(srq !== 0n && { srq: objects.get(SharedReceiveQueue, srq) }),
        cap: {
          // A queue of the device has at least one entry; C's may have none.
          maxSendWr: sendWr || 1,
          maxRecvWr: recvWr || 1,
          maxSendSge: sendSge || 1,
          maxRecvSge: recvSge || 1,
          maxInlineData: inline ?? 0,
        },
        sqSigAll: all !== 0,
      };
      const pd = objects.get(ProtectionDomain, domain);
      const made = id === 0n ? pd.createQp(attributes) : ids.create(id, attributes, pd);
      events.own(made, objects.get(EventPipe, opened));
      return [objects.add(made), made.handle, made.qpNum];
    },
    MODIFY_QP: (...words: bigint[]) => {
      const [number, mask, ...values] = words as Words<2>;
      modify(qp(number), Number(mask), values, receiveBufferOf);
    },
    QUERY_QP: (number: bigint) => {
      const now = qp(number).query();
      return [
        ...[now.qpState, now.qpAccessFlags, now.pkeyIndex, now.portNum, now.qkey, now.pathMtu],
        ...[now.timeout, now.retryCnt, now.rnrRetry, now.rqPsn, now.sqPsn, now.maxRdAtomic],
        ...[now.maxDestRdAtomic, now.minRnrTimer, now.destQpNum],
      ].map((value) => value ?? 0);
    },
    // A rule of `--fault` has turned one of its completions into an error.
    FAIL_QP: (qpNum: bigint) => {
      const all = objects.all(QueuePair).filter(({ destroyed }) => !destroyed);
      const failed = all.find((one) => one.qpNum === Number(qpNum));
      if (failed && failed.state >= QpState.INIT) failed.modify({ qpState: QpState.ERR });
    },
    DESTROY_QP: (number: bigint) => {
      checkDetached(qp(number));
      const ended = qp(number);
      ids.destroy(ended);
      events.withdraw(number, ended);
      objects.remove(number);
    },
    ATTACH_MCAST: (number: bigint, low: bigint, high: bigint) =>
      qp(number).attachMcast(gidOf(low, high)),
    DETACH_MCAST: (number: bigint, low: bigint, high: bigint) =>
      qp(number).detachMcast(gidOf(low, high)),
    CREATE_AH: (domain: bigint, low: bigint, high: bigint, flowLabel: bigint) => {
      const pd = objects.get(ProtectionDomain, domain);
      const ah = pd.createAh(addressOf(gidOf(low, high), flowLabel));
      return [objects.add(ah), ah.handle];
    },
    DESTROY_AH: (number: bigint) => {
      objects.get(AddressHandle, number).destroy();
      objects.remove(number);
    },
  };
}

/** As in Linux: a queue pair that is attached to groups is in use. Throws RefusalError EBUSY. */
function checkDetached({ groups, qpNum }: QueuePair): void {
  if (groups.size === 0) return;
  const sentence = `queue pair ${qpNum} is attached to multicast groups (${[...groups.keys()]})`;
  throw new RefusalError('EBUSY', `ibv_destroy_qp: ${sentence}; detach it from them first`);
}

/** Handlers of shared receive queues. */
export function srqHandlers({ objects }: BridgeState, events: AsyncEvents) {
  return {
    CREATE_SRQ: (opened: bigint, domain: bigint, maxWr: bigint, maxSge: bigint, limit: bigint) => {
      const pd = objects.get(ProtectionDomain, domain);
      const sizes = { maxWr: Number(maxWr), maxSge: Number(maxSge) || 1, srqLimit: Number(limit) };
      const srq = pd.createSrq(sizes);
      events.own(srq, objects.get(EventPipe, opened));
      return [objects.add(srq), srq.handle, srq.maxWr, srq.maxSge];
    },
    MODIFY_SRQ: (number: bigint, mask: bigint, maxWr: bigint, limit: bigint) => {
      if ((mask & ~(SRQ_MAX_WR | SRQ_LIMIT)) !== 0n) {
        throw new RefusalError(
          'EINVAL',
          `modifySrq: mask ${mask} has unknown bits; pass those of ibv_srq_attr_mask`,
        );
      }
      objects.get(SharedReceiveQueue, number).modify({
        ...(mask & SRQ_MAX_WR && { maxWr: Number(maxWr) }),
        ...(mask & SRQ_LIMIT && { srqLimit: Number(limit) }),
      });
    },
    DESTROY_SRQ: (number: bigint) => {
      const srq = objects.get(SharedReceiveQueue, number);
      srq.destroy();
      events.withdraw(number, srq);
      objects.remove(number);
    },
  };
}

/** The first words of a message, however long it is. */
type Words<Count extends number> = bigint[] & { readonly length: number } & {
  readonly [Index in Count extends 7 ? 0 | 1 | 2 | 3 | 4 | 5 | 6 : 0 | 1]: bigint;
};

/** Queue pairs that belong to an id of the connection manager. */
export interface IdQueuePairs {
  create(
    id: bigint,
    attributes: Parameters<ProtectionDomain['createQp']>[0],
    pd: ProtectionDomain,
  ): QueuePair;
  /** Any queue pair: its id, if it has one, is without it afterwards. */
  destroy(qp: QueuePair): void;
}

function addressOf(dgid: Gid, flowLabel: bigint) {
  const label = Number(flowLabel & FLOW_LABEL_MASK);
  return { dgid, ownKind: isLoopback(dgid), ...(label !== 0 && { flowLabel: label }) };
}

/** `values`: the order of ibv_modify_qp in queue-pairs.c. */
function modify(
  qp: QueuePair,
  mask: number,
  values: readonly bigint[],
  receiveBufferOf: BridgeState['receiveBufferOf'],
): void {
  const numbers = values.slice(0, 17).map(Number);
  const [qpState, curQpState, pathMtu, qkey, , , destQpNum, qpAccessFlags] = numbers;
  const [pkeyIndex, portNum, maxRdAtomic, maxDestRdAtomic, minRnrTimer] = numbers.slice(8);
  const [timeout, retryCnt, rnrRetry, drains] = numbers.slice(13);
  const [low, high, flowLabel] = values.slice(17) as [bigint, bigint, bigint];
  const all = {
    ...{ qpState, curQpState, pathMtu, qkey, destQpNum, qpAccessFlags, pkeyIndex, portNum },
    ...{ maxRdAtomic, maxDestRdAtomic, minRnrTimer, timeout, retryCnt, rnrRetry },
    rqPsn: Number(values[4]! & PSN_MASK),
    sqPsn: Number(values[5]! & PSN_MASK),
    enSqdAsyncNotify: drains !== 0,
  } as Parameters<QueuePair['modify']>[0];
  if ((mask & QpAttribute.AV) === 0) {
    qp.modify(all, mask);
    return;
  }
  const dgid = gidOf(low, high);
  // Programs exchange addresses and numbers, and no sizes of buffers.
  const receiveBufferBytes = receiveBufferOf(dgid) ?? 0;
  qp.modify({ ...all, ahAttr: { ...addressOf(dgid, flowLabel), receiveBufferBytes } }, mask);
}

/** Type and number of the object. */
const ASYNC_RECORD_BYTES = 16;

/** Asynchronous events go to the context that the program made their object from. */
export class AsyncEvents {
  /** One for each context of the program. */
  readonly opened = new Set<EventPipe>();
  readonly #pipes = new WeakMap<object, EventPipe>();
  readonly #objects: ObjectTable;

  constructor(objects: ObjectTable) {
    this.#objects = objects;
  }

  /** The device has failed: each context of the program learns that. */
  fail(): void {
    for (const pipe of this.opened) pipe.writeWords(AsyncEvent.DEVICE_FATAL, 0);
  }

  own(object: object, pipe: EventPipe): void {
    this.#pipes.set(object, pipe);
  }

  /** Objects of a class that the program made from this context. */
  owned<Type extends object>(kind: Kind<Type>, pipe: EventPipe): Type[] {
    return this.#objects.all(kind).filter((one) => this.#pipes.get(one) === pipe);
  }

  /** The object ends, and its events that the program has not read: they would keep it waiting. */
  withdraw(number: bigint, object: object): void {
    const pipe = this.#pipes.get(object);
    pipe?.withdrawUnread(ASYNC_RECORD_BYTES, (record) => record.getBigUint64(8, true) === number);
  }

  /** Until the context is closed. */
  async follow(context: Context): Promise<void> {
    for await (const { eventType, element } of context.asyncEvents()) {
      if (eventType === AsyncEvent.DEVICE_FATAL) this.fail();
      const number = this.#objects.numberOf(element);
      // An object that the program has destroyed has none.
      if (element && number !== 0) this.#pipes.get(element)?.writeWords(eventType, number);
    }
  }
}
