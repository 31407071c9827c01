/** `rpma_peer_cfg`: the configuration that a peer sends to the other one. */
import { checkBytes } from '../errors/check-bytes.js';
import { MisuseError } from '../errors/errors.js';
import { PEER_CFG_DESCRIPTOR_SIZE } from './constants.js';

/** `struct rpma_peer_cfg`: what this side declares to its peer (`peerCfgNew`). */
export class PeerCfg {
  #directWriteToPmem = false;

  /** `rpma_peer_cfg_set_direct_write_to_pmem`: does a flush of this peer's memory persist it? */
  setDirectWriteToPmem(supported: boolean): void {
    this.#directWriteToPmem = supported;
  }

  /** `rpma_peer_cfg_get_direct_write_to_pmem`. Default false. */
  getDirectWriteToPmem(): boolean {
    return this.#directWriteToPmem;
  }

  /** `rpma_peer_cfg_get_descriptor`: one byte, for the other side's application. */
  getDescriptor(): Uint8Array {
    return Uint8Array.of(this.#directWriteToPmem ? 1 : 0);
  }

  /** `rpma_peer_cfg_get_descriptor_size`. */
  getDescriptorSize(): number {
    return PEER_CFG_DESCRIPTOR_SIZE;
  }
}

/** `rpma_peer_cfg_new`. */
export function peerCfgNew(): PeerCfg {
  return new PeerCfg();
}

/** `rpma_peer_cfg_from_descriptor`. Throws MisuseError for one that is too short. */
export function peerCfgFromDescriptor(descriptor: Uint8Array): PeerCfg {
  checkBytes('descriptor', descriptor);
  const [byte] = descriptor;
  if (byte === undefined)
    throw new MisuseError('descriptor', `must have at least 1 byte, got ${descriptor.length}`);
  const pcfg = new PeerCfg();
  pcfg.setDirectWriteToPmem(byte !== 0);
  return pcfg;
}
