/** `rdma_create_ep`: an id with a channel of its own, as far as it comes without the peer. */
import { checkObject } from '../base/options.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { AddressInfo } from './address-info.js';
import type { CmId } from './cm-id.js';
import type { EpInitAttributes } from './end-point.js';
import { createEventChannel } from './event-channel.js';

/**
 * With `info.dstAddr`: resolved, with a queue pair when there are attributes; `connect` is next.
 * Otherwise bound to `info.srcAddr`: `listen` is next, and `getRequest` makes queue pairs with these
 * attributes. Its events come to `id.channel`; destroying that is `rdma_destroy_ep`.
 *
 * Throws as `channel.createId`, `id.bindAddr`, `id.resolveAddr`, `id.createQp`.
 */
export async function createEp(
  context: Context,
  info: AddressInfo,
  pd?: ProtectionDomain,
  attributes?: EpInitAttributes,
): Promise<CmId> {
  checkObject('createEp', info, 'info');
  const channel = createEventChannel(context);
  try {
    const id = channel.createId(info.portSpace);
    if (info.srcAddr) id.bindAddr(info.srcAddr);
    if (!info.dstAddr) {
      id.template = { pd, attributes };
      return id;
    }
    id.resolveAddr(info.dstAddr);
    await channel.getEvent();
    id.resolveRoute();
    await channel.getEvent();
    if (attributes) id.createQp(attributes, pd);
    return id;
  } catch (error) {
    channel.destroy();
    throw error;
  }
}
