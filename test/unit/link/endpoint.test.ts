import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError } from '../../../host/errors/errors.js';
import { Endpoint, Gid } from '../../../host/link/endpoint.js';

test('a GID of an IPv4 address is IPv4-mapped', () => {
  const gid = Gid.parse('10.77.0.2');
  assert.equal([...gid.bytes], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 77, 0, 2]);
  assert.ok(gid.isIpv4);
  assert.is(gid.toString(), '10.77.0.2');
  assert.ok(gid.equals(Gid.parse('::ffff:10.77.0.2')));
  assert.ok(gid.equals(Gid.parse('::ffff:a4d:2')));
});

test('a GID reads and writes IPv6 in its shortest form', () => {
  const cases = [
    ['::1', '::1'],
    ['::', '::'],
    ['fe80::5054:ff:fe77:1', 'fe80::5054:ff:fe77:1'],
    ['FE80:0:0:0:5054:00FF:FE77:0001', 'fe80::5054:ff:fe77:1'],
    ['2001:db8::', '2001:db8::'],
    ['1:2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
  ] as const;
  for (const [text, expected] of cases) {
    const gid = Gid.parse(text);
    assert.is(gid.toString(), expected);
    assert.not(gid.isIpv4);
    assert.ok(Gid.parse(gid.toString()).equals(gid));
  }
});

test('a zone is no part of a GID', () => {
  assert.ok(Gid.parse('fe80::1%eth0').equals(Gid.parse('fe80::1')));
});

test('an invalid address is refused with its text', () => {
  for (const text of ['', 'localhost', '1.2.3', '1.2.3.256', ':::', 'fe80::1::2', '1.2.3.4%eth0']) {
    assert.throws(
      () => Gid.parse(text),
      (error: Error) => error instanceof MisuseError && error.message.includes(`"${text}"`),
    );
  }
  assert.throws(() => new Gid(new Uint8Array(4)), /16 bytes/);
});

test('a GID keeps its own bytes', () => {
  const bytes = new Uint8Array(16).fill(1);
  const gid = new Gid(bytes);
  bytes.fill(2);
  assert.is(gid.bytes[0], 1);
});

test('the words of a GID are its bytes, little-endian', () => {
  const { words } = Gid.parse('1.2.3.4');
  assert.equal([...words], [0, 0, 0xffff0000, 0x04030201]);
});

test('endpoints are equal when GID and port are', () => {
  const endpoint = Endpoint.parse('127.0.0.1', 4791);
  assert.ok(endpoint.equals(Endpoint.parse('::ffff:127.0.0.1', 4791)));
  assert.not(endpoint.equals(Endpoint.parse('127.0.0.1', 4792)));
  assert.not(endpoint.equals(Endpoint.parse('127.0.0.2', 4791)));
});

test('an endpoint is written as programs write it', () => {
  assert.is(Endpoint.parse('127.0.0.1', 4791).toString(), '127.0.0.1:4791');
  assert.is(Endpoint.parse('::1', 4791).toString(), '[::1]:4791');
});

test.run();
