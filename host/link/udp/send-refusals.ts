/**
 * Causes of refused sends. Such a packet is lost and retransmitted, as on any network. Each link
 * warns once, because otherwise the cause of the loss would be invisible.
 */
import { warn } from '../../base/warning.js';
import { Gid } from '../endpoint.js';
import { IPV4_UDP_OVERHEAD, IPV6_UDP_OVERHEAD, interfaceMtu } from '../interface.js';

/** BTH, RETH, immediate data, ICRC: the most that is around the payload. */
const PACKET_HEADER_BYTES = 64;
const PATH_MTUS = [4096, 2048, 1024, 512, 256];

const MEANINGS: Readonly<Record<string, string>> = {
  EACCES: 'a route or a packet filter forbids it',
  EPERM: 'a packet filter forbids it',
  ENOBUFS: "the interface's queue is full",
  ENETDOWN: 'the interface is down',
  ENETUNREACH: 'there is no way there: is the interface gone?',
  EHOSTUNREACH: 'there is no way there',
  ENODEV: 'the interface is gone',
  EADDRNOTAVAIL: 'the address is gone from this machine',
};

export class Refusals {
  readonly #local: string;
  readonly #reported = new Set<string>();

  /** `local`: the address that packets leave from. */
  constructor(local: string) {
    this.#local = local;
  }

  /** A packet was refused with this errno. */
  tell(code: string): void {
    if (this.#reported.has(code)) return;
    const meaning = MEANINGS[code];
    if (meaning === undefined && code !== 'EMSGSIZE') return;
    this.#reported.add(code);
    if (meaning !== undefined) this.#warn(code, meaning);
    else void tooLongMeaning(Gid.parse(this.#local)).then((text) => this.#warn(code, text));
  }

  #warn(code: string, meaning: string): void {
    warn(`the system does not send what ${this.#local} has to send (${code}): ${meaning}`);
  }
}

/** Names the MTU of the interface as it is now, and the path MTU that fits. */
async function tooLongMeaning(gid: Gid): Promise<string> {
  const mtu = await interfaceMtu(gid);
  const room = mtu - (gid.isIpv4 ? IPV4_UDP_OVERHEAD : IPV6_UDP_OVERHEAD) - PACKET_HEADER_BYTES;
  const fits = PATH_MTUS.find((bytes) => bytes <= room) ?? 0;
  const remedy =
    fits === 0
      ? 'raise the MTU of the interface'
      : `connect with pathMtu Mtu.MTU_${fits} or less, or raise the MTU of the interface`;
  return `packets are longer than the MTU of the interface, ${mtu} bytes: ${remedy}`;
}
