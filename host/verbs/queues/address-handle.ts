/** `ibv_ah`: where datagrams go. */
import { QueuePairAttributesLayout } from '#build/abi.js';
import { structAt } from '../../engine/struct.js';
import { mustBe } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { Endpoint } from '../../link/endpoint.js';
import { ROCE_PORT } from '../../link/link.js';
import { fillAddress, type AddressAttributes } from './address-attributes.js';
import { flowPort } from './flow.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { taken } from '../refuse.js';

/** `struct ibv_ah`: where datagrams go (`pd.createAh`). IBA 10.2.2.2. */
export class AddressHandle {
  #destroyed = false;

  private constructor(
    readonly pd: ProtectionDomain,
    /** Address of the engine's struct. */
    readonly handle: number,
    readonly destination: Endpoint,
  ) {
    pd.resources.add(this);
  }

  /** @internal Use `pd.createAh()`. */
  static create(pd: ProtectionDomain, address: AddressAttributes): AddressHandle {
    checkIcrc(address);
    const { arena, engine, limits } = pd.context.device;
    const at = arena.heap.alloc(QueuePairAttributesLayout.size);
    try {
      const struct = structAt(arena.memory, QueuePairAttributesLayout, at);
      const destination = fillAddress(struct, address);
      const { local, flowPorts } = pd.context.device.info;
      // A datagram is answered at the port that it came from, or at 4791 (`answerPort`).
      if (address.flowLabel !== undefined && local.port === ROCE_PORT) {
        struct.sourcePort = flowPort(flowPorts, address.flowLabel);
      }
      const handle = arena.exports.createAh(engine.context, pd.handle, at);
      if (handle === 0) {
        throw new RefusalError(
          'ENOMEM',
          `createAh: ${taken(`${limits.addressHandlesMax} address handles`)}`,
        );
      }
      return new AddressHandle(pd, handle, destination);
    } finally {
      arena.heap.free(at);
    }
  }

  /** `ibv_destroy_ah`. */
  destroy(): void {
    if (this.#destroyed) throw new MisuseError('address handle', 'is destroyed');
    const { arena, engine } = this.pd.context.device;
    arena.exports.destroyAh(engine.context, this.handle);
    this.#destroyed = true;
    this.pd.resources.delete(this);
  }

  /** @internal */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  [Symbol.dispose](): void {
    if (!this.#destroyed) this.destroy();
  }
}

/** Packets of UD have an ICRC. Throws MisuseError. */
function checkIcrc(address: AddressAttributes): void {
  if (address?.skipIcrc) throw mustBe('skipIcrc', 'false', true);
}
