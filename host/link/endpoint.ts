/**
 * Where packets come from and go to: a GID and a UDP port. IPv4 addresses are written as
 * IPv4-mapped IPv6 addresses, `::ffff:a.b.c.d`, as RoCEv2 does (IBA Annex A17.4.1).
 */
import { isIPv4, isIPv6 } from './ip-address.js';
import { checkBytes } from '../errors/check-bytes.js';
import { shown } from '../errors/check-whole.js';
import { MisuseError } from '../errors/errors.js';

/** A 16-byte global identifier, immutable. */
export class Gid {
  /** Network order, 16 bytes. Do not write to it. */
  readonly bytes: Uint8Array;
  /** The same bytes as four little-endian words: what the engine's memory holds. */
  readonly words: Uint32Array;
  /** Cached text: a caller that names peers by address needs it for each message. */
  #text: string | undefined;

  constructor(bytes: Uint8Array) {
    checkBytes('gid', bytes);
    if (bytes.length !== 16)
      throw new MisuseError('gid', `must have 16 bytes, got ${bytes.length}`);
    this.bytes = Uint8Array.from(bytes);
    this.words = new Uint32Array(this.bytes.buffer);
  }

  /** Is this an IPv4-mapped address? */
  get isIpv4(): boolean {
    const [a, b, c] = this.words;
    return a === 0 && b === 0 && c === 0xffff0000;
  }

  /** Does it name a multicast group? (224.0.0.0/4, ff00::/8) */
  get isMulticast(): boolean {
    return this.isIpv4 ? this.bytes[12]! >> 4 === 0xe : this.bytes[0] === 0xff;
  }

  /** From an IPv4 or IPv6 address. Throws MisuseError when `text` is neither. */
  static parse(text: string): Gid {
    if (isIPv4(text)) {
      const bytes = new Uint8Array(16);
      bytes.set([0xff, 0xff, ...text.split('.').map(Number)], 10);
      return new Gid(bytes);
    }
    const address = typeof text === 'string' ? text.split('%', 1)[0]! : '';
    if (!isIPv6(address)) {
      throw new MisuseError('address', `must be an IPv4 or IPv6 address, got ${shown(text)}`);
    }
    return new Gid(parseIpv6(address));
  }

  equals({ words }: Gid): boolean {
    const own = this.words;
    return own[3] === words[3] && own[2] === words[2] && own[1] === words[1] && own[0] === words[0];
  }

  /** The address as programs write it: dotted for IPv4, colons otherwise. */
  toString(): string {
    return (this.#text ??= this.#write());
  }

  #write(): string {
    if (this.isIpv4) return this.bytes.subarray(12).join('.');
    const groups = Array.from({ length: 8 }, (_, i) =>
      ((this.bytes[2 * i]! << 8) | this.bytes[2 * i + 1]!).toString(16),
    );
    return new URL(`http://[${groups.join(':')}]/`).hostname.slice(1, -1);
  }
}

function parseIpv6(address: string): Uint8Array {
  // A dotted tail stands for the last two groups.
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(address);
  let text = address;
  if (dotted) {
    const [a, b, c, d] = dotted[2]!.split('.').map(Number) as [number, number, number, number];
    text = `${dotted[1]}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [head = '', tail] = text.split('::') as [string, string?];
  const left = head === '' ? [] : head.split(':');
  const right = tail === undefined || tail === '' ? [] : tail.split(':');
  const groups = [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right];
  return Uint8Array.from(
    groups.flatMap((group) => [parseInt(group, 16) >> 8, parseInt(group, 16) & 255]),
  );
}

/** A GID and a UDP port; of a destination, also the port that packets leave from to it. */
export class Endpoint {
  #text: string | undefined;

  constructor(
    readonly gid: Gid,
    /** UDP port, 1..65535. */
    readonly port: number,
    /** Of a destination: one of the link's `info.flowPorts`. Anything else: the link's own port. */
    readonly sourcePort: number = 0,
  ) {}

  static parse(address: string, port: number): Endpoint {
    return new Endpoint(Gid.parse(address), port);
  }

  equals(other: Endpoint): boolean {
    return this.port === other.port && this.gid.equals(other.gid);
  }

  toString(): string {
    const { gid, port } = this;
    return (this.#text ??= gid.isIpv4 ? `${gid}:${port}` : `[${gid}]:${port}`);
  }
}
