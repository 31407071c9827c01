/**
 * Causes of refused sends. Such a packet is lost and retransmitted, as on any network. Each link
 * warns once, because otherwise the cause of the loss would be invisible.
 */
const MEANINGS: Readonly<Record<string, string>> = {
  EACCES: 'a route or a packet filter forbids it',
  EPERM: 'a packet filter forbids it',
  EMSGSIZE: 'they are longer than the way there takes: its MTU is too small for the path MTU',
  ENOBUFS: "the interface's queue is full",
  ENETDOWN: 'the interface is down',
  ENETUNREACH: 'there is no way there: is the interface gone?',
  EHOSTUNREACH: 'there is no way there',
  ENODEV: 'the interface is gone',
  EADDRNOTAVAIL: 'the address is gone from this machine',
};

export class Refusals {
  readonly #local: string;
  readonly #told = new Set<string>();

  /** `local`: the address that packets leave from. */
  constructor(local: string) {
    this.#local = local;
  }

  /** A packet was refused with this errno. */
  tell(code: string): void {
    const meaning = MEANINGS[code];
    if (meaning === undefined || this.#told.has(code)) return;
    this.#told.add(code);
    process.emitWarning(
      `the system does not send what ${this.#local} has to send (${code}): ${meaning}`,
      { type: 'VerbenaWarning' },
    );
  }
}
