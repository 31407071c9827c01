/** Messages to queue pair 1 by a multicast group are no messages of a peer. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isToGroup } from '../../../host/cm/group-datagrams.js';
import { Gid } from '../../../host/link/endpoint.js';

const GRH_BYTES = 40;

/** The bytes before a datagram to this address. */
function grhTo(address: string): Uint8Array {
  const gid = Gid.parse(address);
  const grh = new Uint8Array(GRH_BYTES);
  grh[gid.isIpv4 ? 20 : 0] = gid.isIpv4 ? 0x45 : 0x60;
  grh.set(gid.isIpv4 ? gid.bytes.subarray(12) : gid.bytes, gid.isIpv4 ? 36 : 24);
  return grh;
}

test('the destination in the GRH says whether a datagram was sent to a group', () => {
  for (const group of ['224.0.0.1', '239.255.255.255', 'ff02::1', 'ff0e::7']) {
    assert.is(isToGroup(grhTo(group)), true, group);
  }
  for (const address of [
    '127.0.0.1',
    '223.255.255.255',
    '240.0.0.1',
    '::1',
    'fe80::ff',
    'fd00::1',
  ]) {
    assert.is(isToGroup(grhTo(address)), false, address);
  }
});

test.run();
