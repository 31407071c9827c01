/** An attack: one row of the table in the guide's ATTACKS page. */

/** The position of the attacker. */
export type Position =
  /** A relay between client and server: it reads, changes, drops and adds packets. */
  | 'on path'
  /** A process of another user on this machine, or a remote host that forges a source address. */
  | 'forged source'
  /** Any host that can send a datagram from its own address. */
  | 'any host'
  /** A connected peer. */
  | 'peer'
  /** A page of another site, in a browser that reaches the server. */
  | 'foreign page'
  /** Another process of the same shared device. */
  | 'co-process'
  /** Another user of the machine. */
  | 'local user'
  /** The author of a file that the victim opens. */
  | 'file';

export interface Attack {
  /** The property of the victim that the attack must not break: a sentence. */
  readonly name: string;
  readonly position: Position;
  /** The unit of the count that `run` returns. Default: datagrams. */
  readonly unit?: string;
  /** Rejects if the attack succeeds. Resolves to the number of datagrams (`unit`) that it sent. */
  readonly run: () => Promise<number>;
}
