/**
 * The other thread of test/unit/region/race.test.ts: a requester and a responder on the arena of
 * the main thread, connected by a few lines of code. The responder's queue pair is in a protection
 * domain of the main thread, which hands over keys, and takes the memory away while this thread
 * writes to it.
 */
import { workerData } from 'node:worker_threads';
import {
  AccessFlag,
  Mtu,
  QpAttribute,
  QpState,
  QpType,
  QueuePairAttributesLayout,
  QueuePairParametersLayout,
  RANDOM_QPNS,
  RING_HEADER_SIZE,
  SGE_SIZE,
  SendFlag,
  WORK_COMPLETION_SIZE,
  WORK_REQUEST_SIZE,
  WcStatus,
  WorkCompletionLayout,
  WorkRequestLayout,
  WrOpcode,
} from '#build/abi.js';
import { Engine } from '../../host/engine/engine.js';
import { instantiate, type EngineExports } from '../../host/engine/load.js';
import { EngineMemory } from '../../host/engine/memory.js';
import { structAt } from '../../host/engine/struct.js';
import { Endpoint } from '../../host/link/endpoint.js';

/** Words of the mailbox. ROUND and STOP are the main thread's bells, DONE is this thread's. */
export const Mail = {
  /** Rises by one when KEY, ADDRESS and STALE are to be used. */
  ROUND: 0,
  STOP: 1,
  KEY: 2,
  ADDRESS: 3,
  /** A key that is dead; 0: none yet. */
  STALE: 4,
  /** The last round whose key was refused in the end. */
  DONE: 5,
  /** WRITEs that completed with success. */
  WRITES: 6,
  /** WRITEs with a stale key that did not end in REM_ACCESS_ERR. */
  STALE_WORKED: 7,
  /** Completions with a status that nothing explains. */
  STRANGE: 8,
  WORDS: 9,
} as const;

/** Bytes of each WRITE: one packet, one copy. */
export const WRITE_BYTES = 4096;
/** Value that this thread writes; the main thread never writes it. */
export const INTRUDER = 0xee;

/** One of the two contexts, and memory for what it is made of. */
export interface RaceSide {
  readonly context: number;
  readonly address: string;
  readonly cqRing: number;
  readonly qpMemory: number;
}

export interface RaceData {
  readonly memory: WebAssembly.Memory;
  readonly mail: SharedArrayBuffer;
  readonly requester: RaceSide;
  readonly responder: RaceSide;
  /** The main thread's protection domain, which the responder attaches to. */
  readonly pd: number;
  /** WRITE_BYTES of INTRUDER, registered by the main thread in `sourcePd` for the requester. */
  readonly source: number;
  readonly sourceKey: number;
  readonly sourcePd: number;
  /** 512 bytes for parameters. */
  readonly scratch: number;
}

export const CQ_ENTRIES = 256;
const SEND_ENTRIES = 16;
const ROCE_PORT = 4791;

/** A context with its engine and one queue pair. */
class Peer {
  readonly endpoint: Endpoint;
  readonly engine: Engine<undefined>;
  readonly sendRing: number;
  readonly sendStride: number;
  readonly qp: number;
  readonly qpn: number;
  readonly #memory: EngineMemory;
  readonly #exports: EngineExports;
  readonly #side: RaceSide;
  readonly #scratch: number;
  other: Peer | undefined;

  constructor(memory: EngineMemory, exports: EngineExports, side: RaceSide, pd: number) {
    this.#memory = memory;
    this.#exports = exports;
    this.#side = side;
    this.#scratch = data.scratch;
    this.endpoint = Endpoint.parse(side.address, ROCE_PORT);
    const ignore = (): void => undefined;
    this.engine = new Engine<undefined>(
      memory,
      exports,
      side.context,
      {
        send: (batch) => {
          this.other!.engine.addBatch(batch, this.endpoint);
          batch.release();
        },
        destinationOf: () => undefined,
        events: { completion: ignore, asyncEvent: ignore, reorderShort: ignore },
        deadline: ignore,
      },
      () => performance.now() * 1000,
    );
    const cq = exports.createCq(side.context, side.cqRing, CQ_ENTRIES);
    const parameters = structAt(memory, QueuePairParametersLayout, this.#scratch);
    parameters.type = QpType.RC;
    parameters.pd = pd;
    parameters.sendCq = cq;
    parameters.receiveCq = cq;
    parameters.sendEntries = SEND_ENTRIES;
    parameters.receiveEntries = 1;
    parameters.sendSgeMax = 1;
    parameters.receiveSgeMax = 1;
    parameters.inlineMax = 0;
    parameters.signalAll = 1;
    parameters.memory = side.qpMemory;
    const random = (this.#scratch + QueuePairParametersLayout.fields.random[0]) >> 2;
    for (let draw = 0; draw < RANDOM_QPNS; draw++) memory.words[random + draw] = 1000 + draw;
    check('createQp', exports.createQp(side.context, this.#scratch));
    this.qp = parameters.queuePair;
    this.qpn = parameters.qpn;
    this.sendRing = parameters.sendRing;
    this.sendStride = parameters.sendStride;
  }

  /** From any state to RTS, towards `other`. */
  reconnect(other: Peer): void {
    const attributes = structAt(this.#memory, QueuePairAttributesLayout, this.#scratch);
    const modify = (state: number, mask: number): void => {
      attributes.state = state;
      attributes.mask = mask | QpAttribute.STATE;
      const { context } = this.#side;
      check('modifyQp', this.#exports.modifyQp(context, this.qp, this.#scratch, 0));
    };
    const gid = new DataView(other.endpoint.gid.bytes.buffer);
    attributes.remoteGid0 = gid.getBigUint64(0, true);
    attributes.remoteGid1 = gid.getBigUint64(8, true);
    attributes.remotePort = ROCE_PORT;
    attributes.pathMtu = Mtu.MTU_4096;
    attributes.receivePsn = 0;
    attributes.sendPsn = 0;
    attributes.targetQp = other.qpn;
    attributes.accessFlags = AccessFlag.REMOTE_WRITE;
    attributes.pkeyIndex = 0;
    attributes.portNumber = 1;
    attributes.maxRdAtomic = 1;
    attributes.maxDestRdAtomic = 1;
    attributes.minRnrTimer = 0;
    // Nothing is lost between the two: no timer is needed.
    attributes.timeout = 0;
    attributes.retryCount = 7;
    attributes.rnrRetry = 7;
    attributes.receiveBufferBytes = 0;
    attributes.payloadBytes = 0;
    modify(QpState.RESET, 0);
    modify(QpState.INIT, QpAttribute.PKEY_INDEX | QpAttribute.PORT | QpAttribute.ACCESS_FLAGS);
    modify(
      QpState.RTR,
      QpAttribute.AV |
        QpAttribute.PATH_MTU |
        QpAttribute.DEST_QPN |
        QpAttribute.RQ_PSN |
        QpAttribute.MAX_DEST_RD_ATOMIC |
        QpAttribute.MIN_RNR_TIMER,
    );
    modify(
      QpState.RTS,
      QpAttribute.SQ_PSN |
        QpAttribute.TIMEOUT |
        QpAttribute.RETRY_CNT |
        QpAttribute.RNR_RETRY |
        QpAttribute.MAX_QP_RD_ATOMIC,
    );
  }

  /** Fills the send queue with WRITEs of the source to `address`. */
  write(address: number, key: number, most: number): void {
    const { words } = this.#memory;
    const head = this.sendRing >> 2;
    const tail = (this.sendRing + 64) >> 2;
    for (let posted = 0; posted < most; posted++) {
      const index = words[head]!;
      if ((index - words[tail]!) >>> 0 >= SEND_ENTRIES) break;
      const at = this.sendRing + RING_HEADER_SIZE + (index % SEND_ENTRIES) * this.sendStride;
      const request = structAt(this.#memory, WorkRequestLayout, at);
      request.opcode = WrOpcode.RDMA_WRITE;
      request.sendFlags = SendFlag.SIGNALED;
      request.remoteAddress = BigInt(address);
      request.key = key;
      request.sgeCount = 1;
      const sge = (at + WORK_REQUEST_SIZE) >> 2;
      words.set([data.source, 0, WRITE_BYTES, data.sourceKey].slice(0, SGE_SIZE >> 2), sge);
      words[head] = index + 1;
    }
    this.#exports.postSend(this.#side.context, this.qp, 0);
    this.engine.drain();
  }

  /** Takes all completions; returns how many succeeded and the first status that did not. */
  poll(): { succeeded: number; failure: number } {
    const { words } = this.#memory;
    const ring = this.#side.cqRing >> 2;
    const result = { succeeded: 0, failure: 0 as number };
    while (words[ring + 16] !== words[ring]) {
      const entry = (words[ring + 16]! % CQ_ENTRIES) * WORK_COMPLETION_SIZE;
      const at = this.#side.cqRing + RING_HEADER_SIZE + entry;
      const { status, qpn } = structAt(this.#memory, WorkCompletionLayout, at);
      if (qpn === this.qpn) {
        if (status === WcStatus.SUCCESS) result.succeeded++;
        else result.failure ||= status;
      }
      words[ring + 16]! += 1;
    }
    return result;
  }
}

function check(what: string, errno: number): void {
  if (errno !== 0) throw new Error(`${what}: errno ${errno}`);
}

const data = workerData as RaceData;

/** Posts WRITEs until one fails, at most `most` of them. Returns how the last one ended. */
function writeUntilRefused(
  requester: Peer,
  responder: Peer,
  mail: Int32Array,
  [address, key]: readonly [number, number],
  most: number,
): number {
  requester.reconnect(responder);
  responder.reconnect(requester);
  requester.poll();
  let left = most;
  for (;;) {
    if (left > 0) requester.write(address, key, left);
    responder.engine.flushReceived();
    requester.engine.flushReceived();
    const { succeeded, failure } = requester.poll();
    if (succeeded > 0) Atomics.add(mail, Mail.WRITES, succeeded);
    if (failure !== 0) return failure;
    if (most !== Infinity) left = 0;
    if (left === 0 && succeeded > 0) return WcStatus.SUCCESS;
    if (Atomics.load(mail, Mail.STOP) !== 0) return WcStatus.REM_ACCESS_ERR;
  }
}

function run(): void {
  const memory = new EngineMemory(data.memory);
  const exports = instantiate(memory);
  const mail = new Int32Array(data.mail);
  check('attachPd', exports.attachPd(data.responder.context, data.pd));
  const requester = new Peer(memory, exports, data.requester, data.sourcePd);
  const responder = new Peer(memory, exports, data.responder, data.pd);
  requester.other = responder;
  responder.other = requester;
  for (let round = 1; ; round++) {
    while (Atomics.load(mail, Mail.ROUND) < round) {
      if (Atomics.load(mail, Mail.STOP) !== 0) return;
      Atomics.wait(mail, Mail.ROUND, round - 1, 10);
    }
    const address = mail[Mail.ADDRESS]! >>> 0;
    const stale = mail[Mail.STALE]! >>> 0;
    if (stale !== 0) {
      const end = writeUntilRefused(requester, responder, mail, [address, stale], 1);
      if (end !== WcStatus.REM_ACCESS_ERR) Atomics.add(mail, Mail.STALE_WORKED, 1);
    }
    const target = [address, mail[Mail.KEY]! >>> 0] as const;
    const end = writeUntilRefused(requester, responder, mail, target, Infinity);
    if (end !== WcStatus.REM_ACCESS_ERR) Atomics.add(mail, Mail.STRANGE, 1);
    Atomics.store(mail, Mail.DONE, round);
    Atomics.notify(mail, Mail.DONE);
  }
}

// Imported by the test for its names, run in a Worker.
if (data) run();
