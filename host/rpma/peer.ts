/** `rpma_peer`: a device and a protection domain, from which all else is made. */
import { checkKeys } from '../base/options.js';
import { copyAuth } from '../cm/auth-option.js';
import { createEventChannel } from '../cm/event-channel.js';
import { checkContext, type Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import { ConnCfg, checkCfg } from './conn-cfg.js';
import { ConnReq } from './conn-req.js';
import { Ep, type EpOptions } from './ep.js';
import { MrLocal } from './mr.js';
import { Srq, SrqCfg } from './srq.js';
import { targetOf, type Port } from './utils.js';

/** `struct rpma_peer`: a device and a protection domain (`peerNew`). */
export class Peer {
  /** @internal */
  readonly pd: ProtectionDomain;

  /** @internal Use `peerNew`. */
  constructor(readonly context: Context) {
    this.pd = context.allocPd();
  }

  /**
   * `rpma_mr_reg`: `usage` is made of MrUsage. Throws MisuseError; RefusalError ENOMEM, EINVAL
   * (FLUSH_TYPE_PERSISTENT for memory that is not persistent: `context.openPmem`).
   */
  mrReg(buffer: Uint8Array, usage: number): MrLocal {
    return MrLocal.reg(this.pd, buffer, usage);
  }

  /**
   * `rpma_conn_req_new`: a request to connect to that address. `udpPort`: of the peer's device.
   * Default 4791. Rejects with MisuseError; RefusalError ENOENT (no such host), EAGAIN
   * (the resolver does not answer now), ENOMEM, EADDRNOTAVAIL.
   */
  async connReqNew(
    addr: string,
    port: Port,
    cfg: ConnCfg = new ConnCfg(),
    udpPort?: number,
  ): Promise<ConnReq> {
    checkCfg(cfg);
    const target = await targetOf(addr, port, cfg.getTimeout());
    return ConnReq.towards(this, udpPort === undefined ? target : { ...target, udpPort }, cfg);
  }

  /**
   * `rpma_ep_listen`: at an address of this peer's device; port 0 takes a free one. Rejects with
   * MisuseError; RefusalError EADDRINUSE, EADDRNOTAVAIL, ENOENT, EOPNOTSUPP (`auth` in a browser).
   */
  async epListen(addr: string, port: Port, options: EpOptions = {}): Promise<Ep> {
    checkKeys('epListen', options, 'auth');
    const auth = copyAuth(options.auth);
    const target = await targetOf(addr, port);
    const channel = createEventChannel(this.context);
    try {
      const id = channel.createId();
      if (auth !== undefined) id.setOption({ auth });
      id.bindAddr(target);
      id.listen();
      return new Ep(this, channel, id, auth);
    } catch (error) {
      channel.destroy();
      throw error;
    }
  }

  /** `rpma_srq_new`. Throws RefusalError ENOMEM. */
  srqNew(cfg: SrqCfg = new SrqCfg()): Srq {
    return new Srq(this.pd, cfg);
  }

  /** `rpma_peer_delete`. Throws RefusalError EBUSY while something made from it exists. */
  delete(): void {
    this.pd.dealloc();
  }
}

/** `rpma_peer_new`. Throws RefusalError ENOMEM. */
export function peerNew(context: Context): Peer {
  checkContext('peerNew', context);
  return new Peer(context);
}
