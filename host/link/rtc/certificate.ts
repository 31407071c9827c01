/**
 * A self-signed certificate for DTLS, as browsers make themselves one: libdatachannel would make
 * one for every connection, and the certificate is a link's address. X.509 in DER (RFC 5280), by hand,
 * for the one shape that is needed.
 */
import { createHash, generateKeyPairSync, randomFillSync, sign } from 'node:crypto';

export interface Certificate {
  readonly certificatePem: string;
  readonly keyPem: string;
  /** SHA-256 of the certificate, `AB:CD:…`. */
  readonly fingerprint: string;
}

const Tag = {
  INTEGER: 0x02,
  BIT_STRING: 0x03,
  OBJECT_IDENTIFIER: 0x06,
  UTF8_STRING: 0x0c,
  UTC_TIME: 0x17,
  SEQUENCE: 0x30,
  SET: 0x31,
} as const;
/** 1.2.840.10045.4.3.2 */
const ECDSA_WITH_SHA256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/** 2.5.4.3 */
const COMMON_NAME = [0x55, 0x04, 0x03];
const SERIAL_BYTES = 8;
/** Not checked: the fingerprint identifies the certificate. */
const VALID_FROM = '200101000000Z';
const VALID_UNTIL = '491231235959Z';

function der(tag: number, ...contents: (Uint8Array | readonly number[])[]): Buffer {
  const content = Buffer.concat(contents.map((part) => Buffer.from(part)));
  const { length } = content;
  const bytes =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length];
  return Buffer.concat([Buffer.from([tag, ...bytes]), content]);
}

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString('base64').replace(/.{64}(?!$)/g, '$&\n');
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}

export function makeCertificate(): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = der(Tag.SEQUENCE, der(Tag.OBJECT_IDENTIFIER, ECDSA_WITH_SHA256));
  const commonName = der(
    Tag.SEQUENCE,
    der(Tag.OBJECT_IDENTIFIER, COMMON_NAME),
    der(Tag.UTF8_STRING, Buffer.from('verbena')),
  );
  const name = der(Tag.SEQUENCE, der(Tag.SET, commonName));
  const serial = randomFillSync(new Uint8Array(SERIAL_BYTES));
  // Positive, and without a zero in front.
  serial[0] = (serial[0]! & 0x3f) | 0x40;
  const body = der(
    Tag.SEQUENCE,
    der(Tag.INTEGER, serial),
    algorithm,
    name,
    der(
      Tag.SEQUENCE,
      der(Tag.UTC_TIME, Buffer.from(VALID_FROM)),
      der(Tag.UTC_TIME, Buffer.from(VALID_UNTIL)),
    ),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
  );
  const signature = sign('sha256', body, privateKey);
  const certificate = der(Tag.SEQUENCE, body, algorithm, der(Tag.BIT_STRING, [0], signature));
  const hash = createHash('sha256').update(certificate).digest('hex').toUpperCase();
  return {
    certificatePem: pem('CERTIFICATE', certificate),
    keyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    fingerprint: hash.match(/../g)!.join(':'),
  };
}
