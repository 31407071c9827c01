/** `rdma_get_request`: the requests of a listener that `createEp` made. */
import { RefusalError } from '../errors/errors.js';
import type { ProtectionDomain } from '../verbs/domains/protection-domain.js';
import type { CmId } from './cm-id.js';
import type { EpInitAttributes } from './end-point.js';
import { CmEventType } from './enums.js';

/** Queue pair options of a listener's requests. */
export interface Template {
  readonly pd: ProtectionDomain | undefined;
  readonly attributes: EpInitAttributes | undefined;
}

/**
 * The listener's next request, an end point of its own; undefined: the device is closed. Throws
 * RefusalError EINVAL for an id whose channel others may have.
 */
export async function nextRequest(listenId: CmId): Promise<CmId | undefined> {
  const { template } = listenId;
  if (!template)
    throw new RefusalError(
      'EINVAL',
      'getRequest: the id is no listener of createEp; use its channel',
    );
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
      id.migrate(listenId.channel.createAnother());
      if (template.attributes) id.createQp(template.attributes, template.pd);
      return id;
    } catch (error) {
      // The peer receives a REJ.
      id.destroy();
      throw error;
    }
  }
}
