/** `rpma_conn_cfg`: queue sizes and completion channels of a connection. */
import { copyAuth, type AuthOptions } from '../cm/auth-option.js';
import { checkMember } from '../errors/check-member.js';
import { checkWhole, shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';
import { MAX_CQE, MAX_QP_WR } from '../verbs/limits.js';
import { DEFAULT_TIMEOUT_MS } from './constants.js';
import type { Srq } from './srq.js';

/** Of every queue. */
const SIZE = 10;

/** `struct rpma_conn_cfg`: how a connection is to be (`connCfgNew`). */
export class ConnCfg {
  #timeoutMillis = DEFAULT_TIMEOUT_MS;
  #cqSize = SIZE;
  #rcqSize = 0;
  #sqSize = SIZE;
  #rqSize = SIZE;
  #isChannelShared = false;
  #srq: Srq | undefined;
  #doubledFlushIcrc: boolean | undefined;
  #auth: AuthOptions | undefined;

  /** `rpma_conn_cfg_set_timeout`: how long to wait for the other side, milliseconds. */
  setTimeout(timeoutMillis: number): void {
    checkWhole('timeoutMillis', timeoutMillis, 0, 2 ** 31 - 1);
    this.#timeoutMillis = timeoutMillis;
  }

  getTimeout(): number {
    return this.#timeoutMillis;
  }

  /** `rpma_conn_cfg_set_cq_size`: entries of the completion queue. */
  setCqSize(size: number): void {
    checkWhole('cqSize', size, 1, MAX_CQE);
    this.#cqSize = size;
  }

  getCqSize(): number {
    return this.#cqSize;
  }

  /** `rpma_conn_cfg_set_rcq_size`: entries of a queue for receives alone. Default 0: none. */
  setRcqSize(size: number): void {
    checkWhole('rcqSize', size, 0, MAX_CQE);
    this.#rcqSize = size;
  }

  getRcqSize(): number {
    return this.#rcqSize;
  }

  /** `rpma_conn_cfg_set_sq_size`: operations that may be under way. */
  setSqSize(size: number): void {
    checkWhole('sqSize', size, 1, MAX_QP_WR);
    this.#sqSize = size;
  }

  getSqSize(): number {
    return this.#sqSize;
  }

  /** `rpma_conn_cfg_set_rq_size`: receives that may be posted. */
  setRqSize(size: number): void {
    checkWhole('rqSize', size, 0, MAX_QP_WR);
    this.#rqSize = size;
  }

  getRqSize(): number {
    return this.#rqSize;
  }

  /** `rpma_conn_cfg_set_compl_channel`: one for both completion queues, and `conn.wait`. */
  setComplChannel(isShared: boolean): void {
    this.#isChannelShared = isShared;
  }

  getComplChannel(): boolean {
    return this.#isChannelShared;
  }

  /** `rpma_conn_cfg_set_srq`: receives come from there. */
  setSrq(srq: Srq): void {
    checkMember('srq', srq, 'getRcq', 'an Srq');
    this.#srq = srq;
  }

  getSrq(): Srq | undefined {
    return this.#srq;
  }

  /**
   * The ICRC of FLUSH requests. True: as Linux rxe computes it, covering their headers twice.
   * False: the standard ICRC. Undefined (default): rxe's form if the peer is rxe. No counterpart
   * in librpma. Throws MisuseError.
   */
  setDoubledFlushIcrc(isDoubled: boolean | undefined): void {
    if (isDoubled !== undefined && typeof isDoubled !== 'boolean') {
      const rule = `must be true, false or undefined, got ${shown(isDoubled)}`;
      throw new MisuseError('isDoubled', rule);
    }
    this.#doubledFlushIcrc = isDoubled;
  }

  getDoubledFlushIcrc(): boolean | undefined {
    return this.#doubledFlushIcrc;
  }

  /**
   * Authenticates the connection with a pre-shared key, and its packets: required then, without a
   * fallback. For `peer.connReqNew`; an end point has its own (`peer.epListen`), and accepts a
   * configuration with `auth` only if it has one. Undefined (default): no authentication. No
   * counterpart in librpma. Throws MisuseError; RefusalError EOPNOTSUPP in a browser.
   */
  setAuth(auth: AuthOptions | undefined): void {
    this.#auth = copyAuth(auth);
  }

  getAuth(): AuthOptions | undefined {
    return this.#auth;
  }
}

/** `rpma_conn_cfg_new`. */
export function connCfgNew(): ConnCfg {
  return new ConnCfg();
}

/** Throws MisuseError for another object. */
export function checkCfg(cfg: unknown): void {
  checkMember('cfg', cfg, 'getDoubledFlushIcrc', 'a ConnCfg');
}
