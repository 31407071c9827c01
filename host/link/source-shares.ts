/** A quota with a total and a limit per source address, so that one source cannot use it all. */
import { Gid } from './endpoint.js';

/** Bytes of an IPv6 address that name a network: a host has all addresses below it (RFC 4291). */
const NETWORK_BYTES = 8;
const IPV4_MAPPED = '::ffff:';

/** The source that a remote address is of: an IPv4 address, or the /64 network of an IPv6 one. */
export function sourceOf(address: string | undefined): string {
  const plain = (address ?? '').split('%', 1)[0]!;
  if (plain.startsWith(IPV4_MAPPED) || !plain.includes(':')) return plain.replace(IPV4_MAPPED, '');
  try {
    const network = Gid.parse(plain).bytes.subarray(0, NETWORK_BYTES);
    return `${Array.from(network, (byte) => byte.toString(16).padStart(2, '0')).join('')}/64`;
  } catch {
    // No address: a name of a peer's candidate.
    return plain;
  }
}

export class SourceShares {
  readonly #max: number;
  readonly #perSource: number;
  readonly #held = new Map<string, number>();
  #count = 0;

  constructor(max: number, perSource: number) {
    this.#max = max;
    this.#perSource = perSource;
  }

  /** Takes one for this remote address; the result gives it back. Undefined: it has its share. */
  take(address: string | undefined): (() => void) | undefined {
    const source = sourceOf(address);
    const held = this.#held.get(source) ?? 0;
    if (this.#count >= this.#max || held >= this.#perSource) return undefined;
    this.#held.set(source, held + 1);
    this.#count++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#count--;
      const left = this.#held.get(source)! - 1;
      if (left > 0) this.#held.set(source, left);
      else this.#held.delete(source);
    };
  }
}
