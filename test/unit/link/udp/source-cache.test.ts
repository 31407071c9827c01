import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { SourceCache } from '../../../../host/link/udp/source-cache.js';

/** sockaddr_in as words: family, port, address. */
function ipv4(port: number, ...address: number[]): Uint32Array {
  return new Uint32Array(Uint8Array.of(2, 0, port >> 8, port & 255, ...address).buffer);
}

test('an address is found again as the same object, at any place', () => {
  const cache = new SourceCache(true);
  const words = Uint32Array.of(7, 7, 7, ...ipv4(0x12b7, 10, 0, 0, 1));
  const endpoint = cache.intern(words, 3);
  assert.is(endpoint.toString(), '10.0.0.1:4791');
  assert.is(cache.intern(ipv4(1, 10, 0, 0, 1), 0).toString(), '10.0.0.1:1');
  assert.is(cache.intern(ipv4(0x12b7, 10, 0, 0, 2), 0).toString(), '10.0.0.2:4791');
  assert.is(cache.intern(ipv4(0x12b7, 10, 0, 0, 1), 0), endpoint);
});

test('IPv6 addresses are distinguished by every word, and not by the flow label', () => {
  const cache = new SourceCache(false);
  const address = (flow: number, ...rest: number[]): Uint32Array =>
    Uint32Array.of(10 | (0xb712 << 16), flow, ...rest, 0);
  const endpoint = cache.intern(address(1, 0xfd, 0, 0, 0x01000000), 0);
  assert.is(endpoint.toString(), '[fd00::1]:4791');
  assert.is(cache.intern(address(2, 0xfd, 0, 0, 0x01000000), 0), endpoint);
  for (const words of [
    [0xfe, 0, 0, 0x01000000],
    [0xfd, 1, 0, 0x01000000],
    [0xfd, 0, 1, 0x01000000],
    [0xfd, 0, 0, 0x02000000],
  ]) {
    assert.is.not(cache.intern(address(1, ...words), 0), endpoint);
  }
  assert.is(cache.intern(address(1, 0xfd, 0, 0, 0x01000000), 0), endpoint);
});

test('strangers without end displace those that came long before, and take no more room', () => {
  const cache = new SourceCache(true);
  const stranger = (index: number): Uint32Array => ipv4(4791, 10, 1, index >> 8, index & 255);
  const first = Array.from({ length: 20_000 }, (_, index) => cache.intern(stranger(index), 0));
  const kept = (index: number): boolean => cache.intern(stranger(index), 0) === first[index];
  // 4096 places: nearly all of the last thousand are there, none of the first.
  const late = Array.from({ length: 1000 }, (_, index) => kept(19_999 - index));
  assert.ok(late.filter(Boolean).length > 950, `${late.filter(Boolean).length}`);
  assert.not(Array.from({ length: 1000 }, (_, index) => kept(index)).some(Boolean));
  assert.is(first[777]!.toString(), '10.1.3.9:4791');
});

test.run();
