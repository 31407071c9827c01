/** `rpma_conn_req`: a connection that is to be, with its queue pair made already. */
import type { CmAddress } from '../cm/address.js';
import type { AuthOptions } from '../cm/auth-option.js';
import type { CmId } from '../cm/cm-id.js';
import { createEventChannel, type CmEvent } from '../cm/event-channel.js';
import type { ConnParam } from '../cm/event-details.js';
import { MisuseError } from '../errors/errors.js';
import { Conn } from './conn.js';
import type { ConnCfg } from './conn-cfg.js';
import { deleteQueues, makeQueues, type ConnQueues, type PeerResources } from './conn-queues.js';
import { LogLevel, log } from './log.js';
import type { MrLocal } from './mr.js';

/** Connection parameters of librpma, within the device's limits. */
const PARAM: ConnParam = {
  responderResources: 128,
  initiatorDepth: 128,
  flowControl: 1,
  retryCount: 7,
  rnrRetryCount: 7,
};
/** 4.3 s, as librdmacm has it. */
const CM_RESPONSE_TIMEOUT = 20;

/** `struct rpma_conn_req`: a connection request, sent or received. */
export class ConnReq {
  readonly #peer: PeerResources;
  readonly #id: CmId;
  readonly #queues: ConnQueues;
  readonly #isPassive: boolean;
  readonly #privateData: Uint8Array | undefined;
  readonly #doubledFlushIcrc: boolean | undefined;
  readonly #auth: AuthOptions | undefined;
  #isUsed = false;

  private constructor(
    peer: PeerResources,
    id: CmId,
    cfg: ConnCfg,
    isPassive: boolean,
    privateData?: Uint8Array,
  ) {
    this.#peer = peer;
    this.#id = id;
    this.#doubledFlushIcrc = cfg.getDoubledFlushIcrc();
    this.#auth = isPassive ? undefined : cfg.getAuth();
    this.#queues = makeQueues(peer, id, cfg);
    this.#isPassive = isPassive;
    this.#privateData = privateData;
  }

  /** @internal Use `peer.connReqNew()`. */
  static async towards(peer: PeerResources, target: CmAddress, cfg: ConnCfg): Promise<ConnReq> {
    const channel = createEventChannel(peer.context);
    try {
      const id = channel.createId();
      id.resolveAddr(target);
      await channel.getEvent();
      id.resolveRoute();
      await channel.getEvent();
      return new ConnReq(peer, id, cfg, false);
    } catch (error) {
      channel.destroy();
      throw error;
    }
  }

  /** @internal Use `ep.nextConnReq()`. */
  static from(peer: PeerResources, event: CmEvent, cfg: ConnCfg): ConnReq {
    const { id, privateData } = event;
    try {
      id.migrate(createEventChannel(peer.context));
      return new ConnReq(peer, id, cfg, true, privateData);
    } catch (error) {
      // Destroying the id rejects the request at the requester.
      const { channel } = id;
      id.destroy();
      channel.destroy();
      throw error;
    }
  }

  /** `rpma_conn_req_get_private_data`: of a received request; undefined for an own request. */
  getPrivateData(): Uint8Array | undefined {
    return this.#privateData;
  }

  /** Of the other side. No counterpart in librpma. */
  getPeerAddr(): Required<CmAddress> {
    return this.#id.getPeerAddr()!;
  }

  /**
   * `rpma_conn_req_recv`: a receive that is there before the other side can send. Throws as
   * `qp.postRecv`.
   */
  recv(dst: MrLocal | null, offset: number, length: number, opContext: number | bigint = 0): void {
    this.#check();
    const sgList = dst ? [dst.sge(offset, length)] : [];
    this.#id.qp!.postRecv({ wrId: opContext, sgList });
  }

  /**
   * `rpma_conn_req_connect`: sends or accepts the request; `conn.nextEvent()` reports the result.
   * The request is used up. A request takes at most 56 bytes of private data, an answer 196. Throws
   * MisuseError; RefusalError EINVAL (the requester has given up).
   */
  connect(privateData?: Uint8Array): Conn {
    this.#check();
    const param = privateData ? { ...PARAM, privateData } : PARAM;
    const [doubledFlushIcrc, auth] = [this.#doubledFlushIcrc, this.#auth];
    this.#id.setOption({
      cmResponseTimeout: CM_RESPONSE_TIMEOUT,
      ...(doubledFlushIcrc === undefined ? {} : { doubledFlushIcrc }),
      ...(auth === undefined ? {} : { auth }),
    });
    if (this.#isPassive) this.#id.accept(param);
    else this.#id.connect(param);
    this.#isUsed = true;
    log(LogLevel.NOTICE, 'connReq.connect', this.#isPassive ? 'accepting' : 'connecting');
    return new Conn(this.#peer, this.#id, this.#queues, this.#privateData);
  }

  /** `rpma_conn_req_delete`: rejects a received request. */
  delete(): void {
    if (this.#isUsed) return;
    this.#isUsed = true;
    const { channel } = this.#id;
    this.#id.destroy();
    channel.destroy();
    deleteQueues(this.#queues);
  }

  [Symbol.dispose](): void {
    this.delete();
  }

  #check(): void {
    if (this.#isUsed)
      throw new MisuseError('connection request', 'is used up: connect and delete end it');
  }
}
