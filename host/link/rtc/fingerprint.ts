/**
 * Addresses from certificates: 0xfd and the first 15 bytes of the certificate's SHA-256, a unique
 * local IPv6 address (RFC 4193). DTLS proves that a peer has the certificate of its description
 * (RFC 8122, RFC 8827), so it cannot use another peer's address.
 */
import { LinkError } from '../../errors/errors.js';
import { Gid } from '../endpoint.js';
import { CONNECTIONS_MAX, type Description } from './connection.js';

const UNIQUE_LOCAL = 0xfd;
const SHA256_BYTES = 32;
/** A description of one data channel with a dozen candidates has 2 KB. */
const SDP_LENGTH_MAX = 32768;

const malformed = (why: string): LinkError =>
  new LinkError('EPROTO', `description: ${why}; pass it on unchanged`);

/** Of `AB:CD:…`, 32 bytes in hexadecimal. */
export function gidOfFingerprint(fingerprint: string): Gid {
  const bytes = fingerprint.split(':').map((byte) => Number.parseInt(byte, 16));
  if (!/^([0-9a-f]{2}:){31}[0-9a-f]{2}$/i.test(fingerprint) || bytes.length !== SHA256_BYTES) {
    throw malformed('its fingerprint is not a SHA-256 in hexadecimal');
  }
  return new Gid(Uint8Array.from([UNIQUE_LOCAL, ...bytes.slice(0, 15)]));
}

/**
 * The address that a description speaks for. It has one medium, a data channel, and one
 * fingerprint: with two of them there could be one to be looked at and another to be proved. Throws
 * LinkError EPROTO.
 */
export function gidOfDescription({ sdp, more = [] }: Description): Gid {
  const gid = gidOfSdp(sdp);
  if (!more.every((other) => gidOfSdp(other).equals(gid))) {
    throw malformed('it has connections of several peers');
  }
  return gid;
}

function gidOfSdp(sdp: string): Gid {
  const lines = sdp.split(/\r\n|\r|\n/);
  const values = (prefix: RegExp): string[] =>
    lines.filter((line) => prefix.test(line)).map((line) => line.replace(prefix, '').trim());
  const media = values(/^m=/i);
  if (media.length !== 1 || !/^application\b.*\bwebrtc-datachannel$/i.test(media[0]!)) {
    throw malformed('it is not that of one data channel');
  }
  const prints = new Set(values(/^a=fingerprint:/i).map((value) => value.toLowerCase()));
  const [algorithm, value = ''] = [...prints][0]?.split(/\s+/) ?? [];
  if (prints.size !== 1 || algorithm !== 'sha-256') {
    throw malformed('it must have exactly one fingerprint, of SHA-256');
  }
  return gidOfFingerprint(value);
}

/**
 * Returns `value`, from an untrusted source, if it is a description of this type. Throws LinkError
 * EPROTO.
 */
export function checkDescription(value: unknown, type: Description['type']): Description {
  const { type: said, sdp, more } = (value ?? {}) as Record<keyof Description, unknown>;
  const others: unknown[] = Array.isArray(more) ? more : [];
  const isGood = (text: unknown): text is string =>
    typeof text === 'string' && text.length <= SDP_LENGTH_MAX;
  if (said !== type || !isGood(sdp) || others.length >= CONNECTIONS_MAX || !others.every(isGood)) {
    throw malformed(`the received message is not an ${type}`);
  }
  return others.length > 0 ? { type, sdp, more: others } : { type, sdp };
}
