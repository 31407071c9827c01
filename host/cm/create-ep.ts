/** `rdma_create_ep`: an id with a channel of its own, as far as it comes without the peer. */
import { RefusalError } from '../errors/errors.js';
import type { Context } from '../verbs/context.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { AddressInfo } from './address-info.js';
import type { CmId } from './cm-id.js';
import type { EpInitAttributes } from './end-point.js';
import { CmEventType } from './enums.js';
import { createEventChannel } from './event-channel.js';

/** What the queue pairs of a listener's requests are made with. */
interface Template {
  readonly pd: ProtectionDomain | undefined;
  readonly attributes: EpInitAttributes | undefined;
}

const templates = new WeakMap<CmId, Template>();

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
  const channel = createEventChannel(context);
  try {
    const id = channel.createId(info.portSpace);
    if (info.srcAddr) id.bindAddr(info.srcAddr);
    if (!info.dstAddr) {
      templates.set(id, { pd, attributes });
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

/**
 * The listener's next request, an end point of its own; undefined: the device is closed. Throws
 * RefusalError EINVAL for an id whose channel others may have.
 */
export async function nextRequest(listenId: CmId): Promise<CmId | undefined> {
  const template = templates.get(listenId);
  if (!template)
    throw new RefusalError('EINVAL', 'getRequest: the id is not a listener of createEp');
  for (;;) {
    const event = await listenId.channel.getEvent();
    if (!event || event.event === CmEventType.DEVICE_REMOVAL) return undefined;
    const { id } = event;
    if (event.event !== CmEventType.CONNECT_REQUEST) {
      // It ended before it was answered.
      if (id !== listenId) id.destroy();
      continue;
    }
    try {
      id.migrate(createEventChannel(listenId.context));
      if (template.attributes) id.createQp(template.attributes, template.pd);
      return id;
    } catch (error) {
      // The peer receives a REJ.
      id.destroy();
      throw error;
    }
  }
}
