/** Addresses from certificates and descriptions. */
import { createHash, X509Certificate } from 'node:crypto';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { LinkError } from '../../../../host/errors/errors.js';
import { makeCertificate } from '../../../../host/link/rtc/certificate.js';
import {
  checkDescription,
  gidOfDescription,
  gidOfFingerprint,
} from '../../../../host/link/rtc/fingerprint.js';

const PRINT = Array.from({ length: 32 }, (_, i) => (i * 7).toString(16).padStart(2, '0')).join(':');
const OTHER = PRINT.replace('07', '08');
const GID = 'fd00:70e:151c:232a:3138:3f46:4d54:5b62';

function sdp(...lines: string[]): { type: 'offer'; sdp: string } {
  const media = 'm=application 9 UDP/DTLS/SCTP webrtc-datachannel';
  return { type: 'offer', sdp: ['v=0', 's=-', media, ...lines, ''].join('\r\n') };
}

function refused(action: () => unknown): void {
  assert.throws(action, (error: unknown) => error instanceof LinkError && error.code === 'EPROTO');
}

test('an address is 0xfd and the first 15 bytes of the SHA-256', () => {
  assert.is(gidOfFingerprint(PRINT).toString(), GID);
  assert.is(gidOfFingerprint(PRINT.toUpperCase()).toString(), GID);
  assert.is(gidOfDescription(sdp(`a=fingerprint:sha-256 ${PRINT}`)).toString(), GID);
  const twice = sdp(
    `a=fingerprint:SHA-256 ${PRINT}`,
    `a=fingerprint:sha-256 ${PRINT.toUpperCase()}`,
  );
  assert.is(gidOfDescription(twice).toString(), GID, 'the same one twice is one');
});

test('a fingerprint of another length, or of other digits, is rejected', () => {
  for (const print of [
    '',
    PRINT.slice(3),
    `${PRINT}:00`,
    PRINT.replace('07', '7'),
    PRINT.replace('07', 'zz'),
  ]) {
    refused(() => gidOfFingerprint(print));
  }
});

test('a description with two fingerprints, or one of another kind, has no address', () => {
  refused(() => gidOfDescription(sdp()));
  refused(() => gidOfDescription(sdp(`a=fingerprint:sha-1 ${PRINT}`)));
  refused(() =>
    gidOfDescription(sdp(`a=fingerprint:sha-256 ${PRINT}`, `a=fingerprint:sha-256 ${OTHER}`)),
  );
  refused(() =>
    gidOfDescription(sdp(`a=fingerprint:sha-512 ${PRINT}`, `a=fingerprint:sha-256 ${PRINT}`)),
  );
  // However the line is written or ended.
  const hidden = sdp(`a=fingerprint:sha-256 ${PRINT}`);
  for (const end of ['\n', '\r']) {
    refused(() =>
      gidOfDescription({ ...hidden, sdp: `${hidden.sdp}A=Fingerprint:sha-256 ${OTHER}${end}` }),
    );
  }
});

test('a description of anything but one data channel has no address', () => {
  const print = `a=fingerprint:sha-256 ${PRINT}`;
  refused(() => gidOfDescription({ type: 'offer', sdp: `v=0\r\n${print}\r\n` }));
  refused(() => gidOfDescription(sdp('m=audio 9 UDP/TLS/RTP/SAVPF 111', print)));
  refused(() =>
    gidOfDescription({ type: 'offer', sdp: `m=video 9 UDP/TLS/RTP/SAVPF 96\r\n${print}\r\n` }),
  );
});

test('several connections of one description are of one peer', () => {
  const [own, foreign] = [PRINT, OTHER].map((print) => sdp(`a=fingerprint:sha-256 ${print}`).sdp);
  const offer = { type: 'offer', sdp: own! } as const;
  assert.is(gidOfDescription({ ...offer, more: [own!, own!] }).toString(), GID);
  refused(() => gidOfDescription({ ...offer, more: [own!, foreign!] }));
  refused(() => gidOfDescription({ ...offer, more: [''] }));
  assert.is(checkDescription({ ...offer, more: Array(7).fill(own) }, 'offer').more?.length, 7);
  for (const more of [Array(8).fill(own), [own, 1], ['x'.repeat(32769)]]) {
    refused(() => checkDescription({ ...offer, more }, 'offer'));
  }
});

test('a malformed description is refused before it is parsed', () => {
  const whole = sdp(`a=fingerprint:sha-256 ${PRINT}`);
  assert.equal(checkDescription({ ...whole, more: 1 }, 'offer'), whole);
  const odd: unknown[] = [
    undefined,
    null,
    1,
    'offer',
    [],
    {},
    { type: 'offer' },
    { ...whole, sdp: 1 },
  ];
  odd.push({ ...whole, type: 'answer' }, { ...whole, sdp: 'x'.repeat(32769) });
  for (const value of odd) refused(() => checkDescription(value, 'offer'));
});

test('the certificate that we make is one, signed by itself', () => {
  for (let count = 0; count < 20; count++) {
    const { certificatePem, keyPem, fingerprint } = makeCertificate();
    const certificate = new X509Certificate(certificatePem);
    assert.ok(certificate.verify(certificate.publicKey));
    assert.is(certificate.fingerprint256, fingerprint);
    assert.is(createHash('sha256').update(certificate.raw).digest('hex').length, 64);
    assert.match(keyPem, /^-----BEGIN PRIVATE KEY-----/);
    assert.ok(Date.parse(certificate.validTo) > Date.parse('2049-01-01'));
    assert.is(certificate.subject, 'CN=verbena');
  }
});

test.run();
