/** The verbs of librdmacm: ids and channels live here, their events travel through pipes. */
import { createEventChannel, EventChannel, type CmEvent } from '../cm/event-channel.js';
import type { ConnParam } from '../cm/event-details.js';
import { IP_CM_BYTES } from '../cm/address.js';
import { CmId } from '../cm/cm-id.js';
import { CmEventType } from '../cm/enums.js';
import { privateDataMax, type MessageName } from '../cm/mad.js';
import { QpState } from '../verbs/enums.js';
import { Gid } from '../link/endpoint.js';
import type { QueuePair } from '../verbs/queues/queue-pair.js';
import { EventPipe } from './event-pipe.js';
import type { ObjectTable } from './object-table.js';
import { CM_EVENT, CM_PRIVATE_BYTES } from './operations.js';
import { gidOf, gidWords, type IdQueuePairs, type BridgeState } from './verb-handlers.js';

/** READs and atomics in flight that a device has at most. */
const RD_ATOMIC_MAX = 16;

/** Queue pairs of ids. The program may destroy one by ibv_destroy_qp as well. */
export function idQueuePairs(objects: ObjectTable): IdQueuePairs {
  const owners = new WeakMap<QueuePair, CmId>();
  return {
    create(id, attributes, pd) {
      const owner = objects.get(CmId, id);
      const qp = owner.createQp(attributes, pd);
      owners.set(qp, owner);
      return qp;
    },
    destroy(qp) {
      const owner = owners.get(qp);
      if (!owner) qp.destroy();
      // It ends with its id, and C programs destroy it after the id as well.
      else if (owner.qp === qp) owner.destroyQp();
    },
  };
}

function numberOf(objects: ObjectTable, id: CmId): number {
  return objects.numberOf(id) || objects.add(id);
}

/** Messages whose private data an event carries: of a connection, and of a UD service. */
const MESSAGE_OF: { readonly [event: number]: readonly [MessageName, MessageName] } = {
  [CmEventType.CONNECT_REQUEST]: ['REQ', 'SIDR_REQ'],
  [CmEventType.CONNECT_RESPONSE]: ['REP', 'SIDR_REP'],
  [CmEventType.ESTABLISHED]: ['REP', 'SIDR_REP'],
  [CmEventType.REJECTED]: ['REJ', 'SIDR_REP'],
};

/** The kernel does not know the length: a C program sees the whole field, filled with zeros. */
function filledField({ event, conn, ud, privateData }: CmEvent): Uint8Array {
  const names = MESSAGE_OF[event];
  // The passive side's ESTABLISHED carries none.
  if (!names || !(conn ?? ud)) return privateData.subarray(0, CM_PRIVATE_BYTES);
  const isService = conn?.responderResources === undefined && event !== CmEventType.REJECTED;
  const name = names[isService ? 1 : 0];
  const header = event === CmEventType.CONNECT_REQUEST ? IP_CM_BYTES : 0;
  const bytes = new Uint8Array(privateDataMax(name) - header);
  bytes.set(privateData.subarray(0, bytes.length));
  return bytes;
}

const CM_EVENT_BYTES = 8 * CM_EVENT.length + CM_PRIVATE_BYTES;

function wordOf(record: DataView, name: (typeof CM_EVENT)[number]): bigint {
  return record.getBigUint64(8 * CM_EVENT.indexOf(name), true);
}

/** The id whose channel an event goes to: the listener's for a request. */
function ownerOf(record: DataView): bigint {
  return wordOf(record, 'LISTEN_ID') || wordOf(record, 'ID');
}

/** Is it the event of a join of this group? */
function isJoin(record: DataView, id: bigint, low: bigint, high: bigint): boolean {
  return (
    wordOf(record, 'EVENT') === BigInt(CmEventType.MULTICAST_JOIN) &&
    wordOf(record, 'ID') === id &&
    wordOf(record, 'PEER_GID_LOW') === low &&
    wordOf(record, 'PEER_GID_HIGH') === high
  );
}

/** In `arg` of a join its flags are above the pointer of the program. */
const JOIN_FLAGS_SHIFT = 64n;

/** An event as the program reads it (operations.ts CM_EVENT). */
function recordOf(objects: ObjectTable, event: CmEvent): Uint8Array {
  const { arg = 0n, conn = {}, ud, id, listenId } = event;
  const peer = id.getPeerAddr();
  const target = ud?.ahAttr?.dgid ?? peer?.address;
  const gid = typeof target === 'string' ? Gid.parse(target) : target;
  const [low, high] = gid ? gidWords(gid) : [0, 0];
  const kept = filledField(event);
  const values: { readonly [Name in (typeof CM_EVENT)[number]]: number | bigint } = {
    EVENT: event.event,
    ID: numberOf(objects, id),
    LISTEN_ID: listenId ? numberOf(objects, listenId) : 0,
    STATUS: event.status,
    RESPONDER_RESOURCES: conn.responderResources ?? 0,
    INITIATOR_DEPTH: conn.initiatorDepth ?? 0,
    FLOW_CONTROL: conn.flowControl ?? 0,
    RETRY_COUNT: conn.retryCount ?? 0,
    RNR_RETRY_COUNT: conn.rnrRetryCount ?? 0,
    SRQ: conn.srq ? 1 : 0,
    QP_NUM: conn.qpNum ?? 0,
    PEER_PORT: peer?.port ?? 0,
    PEER_GID_LOW: low,
    PEER_GID_HIGH: high,
    QKEY: ud?.qkey ?? 0,
    REMOTE_QPN: ud?.qpNum ?? 0,
    PRIVATE_LENGTH: kept.length,
    LOCAL_PORT: id.getSrcPort(),
    JOIN_CONTEXT: arg,
    JOIN_FLAGS: arg >> JOIN_FLAGS_SHIFT,
  };
  const bytes = new Uint8Array(CM_EVENT_BYTES);
  const view = new DataView(bytes.buffer);
  CM_EVENT.forEach((name, index) => {
    view.setBigUint64(8 * index, BigInt.asUintN(64, BigInt(values[name])), true);
  });
  bytes.set(kept, 8 * CM_EVENT.length);
  return bytes;
}

function privateData(length: bigint, words: readonly bigint[]): Uint8Array {
  const view = new DataView(new ArrayBuffer(8 * words.length));
  words.forEach((word, index) => view.setBigUint64(8 * index, word, true));
  return new Uint8Array(view.buffer, 0, Math.min(Number(length), view.byteLength));
}

/** `struct rdma_conn_param`, in the order of connection.c. */
function connParam(id: CmId, words: readonly bigint[]): ConnParam {
  const [resources, depth, flow, retry, rnr, srq, qpNum, length] = words.map(Number);
  return {
    privateData: privateData(BigInt(length ?? 0), words.slice(8)),
    responderResources: Math.min(resources ?? 0, RD_ATOMIC_MAX),
    initiatorDepth: Math.min(depth ?? 0, RD_ATOMIC_MAX),
    flowControl: flow ?? 0,
    retryCount: Math.min(retry ?? 0, 7),
    rnrRetryCount: Math.min(rnr ?? 0, 7),
    // Of a queue pair that is not the id's own.
    ...(id.qp ? {} : { srq: srq !== 0, qpNum: qpNum ?? 0 }),
  };
}

/** `rdma_init_qp_attr`, in the order of connection.c. */
function attributeWords(id: CmId, state: number): (number | bigint)[] {
  const a = id.initQpAttr(state);
  const dgid = a.ahAttr?.dgid;
  const gid = typeof dgid === 'string' ? Gid.parse(dgid) : dgid;
  return [
    ...[a.pkeyIndex, a.portNum, a.qkey, a.qpAccessFlags, a.pathMtu, a.destQpNum, a.rqPsn],
    ...[a.sqPsn, a.maxDestRdAtomic, a.maxRdAtomic, a.minRnrTimer, a.timeout, a.retryCnt],
    ...[a.rnrRetry, ...(gid ? gidWords(gid) : [0, 0])],
  ].map((value) => value ?? 0);
}

/** Where the events of a channel go. */
type Pipes = WeakMap<EventChannel, EventPipe>;

function channelHandlers({ context, objects }: BridgeState, pipes: Pipes) {
  const pump = async (channel: EventChannel): Promise<void> => {
    for await (const event of channel) {
      // Of the channel that the id has now: it may have migrated since the event was taken.
      pipes.get((event.listenId ?? event.id).channel)?.write(recordOf(objects, event));
      event.ackEvent();
    }
  };
  return {
    CM_CREATE_CHANNEL: (descriptor: bigint) => {
      const channel = createEventChannel(context);
      const pipe = new EventPipe(descriptor);
      pipes.set(channel, pipe);
      void pump(channel);
      return [objects.add(channel)];
    },
    CM_DESTROY_CHANNEL: (number: bigint) => {
      const channel = objects.get(EventChannel, number);
      channel.destroy();
      pipes.get(channel)?.close();
      objects.remove(number);
    },
    /** As in Linux, with the events of the id that the program has not read. */
    CM_MIGRATE: (number: bigint, target: bigint) => {
      const id = objects.get(CmId, number);
      const [from, to] = [pipes.get(id.channel), pipes.get(objects.get(EventChannel, target))];
      id.migrate(objects.get(EventChannel, target));
      if (from && to) from.moveUnread(to, CM_EVENT_BYTES, (record) => ownerOf(record) === number);
    },
  };
}

function idHandlers({ objects }: BridgeState, pipes: Pipes) {
  const idOf = (number: bigint) => objects.get(CmId, number);
  /** The id of a request that the program has not seen: its peer is refused. */
  const destroyRequested = (record: DataView, listener: bigint): void => {
    const requested = wordOf(record, 'ID');
    if (requested === listener || !objects.is(CmId, requested)) return;
    idOf(requested).destroy();
    objects.remove(requested);
  };
  return {
    CM_CREATE_ID: (channel: bigint, portSpace: bigint) => [
      objects.add(objects.get(EventChannel, channel).createId(Number(portSpace))),
    ],
    CM_DESTROY_ID: (id: bigint) => {
      const { channel } = idOf(id);
      const unread = pipes.get(channel)?.withdrawUnread(CM_EVENT_BYTES, (r) => ownerOf(r) === id);
      for (const record of unread ?? []) destroyRequested(new DataView(record.buffer), id);
      idOf(id).destroy();
      objects.remove(id);
    },
    CM_BIND: (id: bigint, port: bigint) => {
      idOf(id).bindAddr({ port: Number(port) });
      return [idOf(id).getSrcPort()];
    },
    CM_RESOLVE_ADDR: (id: bigint, low: bigint, high: bigint, port: bigint) => {
      // The address of a multicast group has no port.
      const peer = { address: gidOf(low, high).toString(), port: Number(port) || 1 };
      idOf(id).resolveAddr(peer);
      return [idOf(id).getSrcPort()];
    },
    CM_RESOLVE_ROUTE: (id: bigint) => idOf(id).resolveRoute(),
    CM_DESTROY_QP: (id: bigint, qp: bigint) => {
      idOf(id).destroyQp();
      objects.remove(qp);
    },
    CM_CONNECT: (id: bigint, ...words: bigint[]) => idOf(id).connect(connParam(idOf(id), words)),
    CM_LISTEN: (id: bigint, backlog: bigint) => {
      idOf(id).listen(Number(backlog));
      return [idOf(id).getSrcPort()];
    },
    CM_ACCEPT: (id: bigint, ...words: bigint[]) => {
      const own = idOf(id);
      own.accept(connParam(own, words));
      // librdmacm's rdma_accept does so: programs post sends before ESTABLISHED.
      if (own.qp?.state === QpState.RTR) own.qp.modify(own.initQpAttr(QpState.RTS));
    },
    CM_REJECT: (id: bigint, length: bigint, ...words: bigint[]) =>
      idOf(id).reject(privateData(length, words)),
    CM_DISCONNECT: (id: bigint) => idOf(id).disconnect(),
    CM_ESTABLISH: (id: bigint) => idOf(id).establish(),
    CM_NOTIFY: (id: bigint) => idOf(id).notify(),
    CM_INIT_QP_ATTR: (id: bigint, state: bigint) => attributeWords(idOf(id), Number(state)),
    CM_JOIN: (id: bigint, low: bigint, high: bigint, flags: bigint, pointer: bigint) =>
      idOf(id).joinMulticastEx({
        addr: gidOf(low, high),
        joinFlags: Number(flags),
        context: (flags << JOIN_FLAGS_SHIFT) | pointer,
      }),
    CM_LEAVE: (id: bigint, low: bigint, high: bigint) => {
      idOf(id).leaveMulticast(gidOf(low, high));
      const pipe = pipes.get(idOf(id).channel);
      pipe?.withdrawUnread(CM_EVENT_BYTES, (record) => isJoin(record, id, low, high), true);
    },
    CM_ACK_TIMEOUT: (id: bigint, timeout: bigint) =>
      idOf(id).setOption({ ackTimeout: Number(timeout) }),
  };
}

export function connectionHandlers(state: BridgeState) {
  const pipes: Pipes = new WeakMap();
  return { ...channelHandlers(state, pipes), ...idHandlers(state, pipes) };
}
