import * as net from 'node:net';
import fc from 'fast-check';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { isIP, isIPv4, isIPv6 } from '../../../host/link/ip-address.js';

const ODD = [
  '',
  ' ',
  '1.2.3.4',
  '1.2.3',
  '1.2.3.4.5',
  '01.2.3.4',
  '256.1.1.1',
  '1.2.3.4 ',
  '::',
  ':',
  ':::',
  '::1',
  '1::',
  '1::2::3',
  '1:2:3:4:5:6:7:8',
  '1:2:3:4:5:6:7',
  '1:2:3:4:5:6:7:8:9',
  '1:2:3:4:5:6:7::',
  '::2:3:4:5:6:7:8',
  '1::3:4:5:6:7:8',
  '1:2:3:4::5:6:7:8',
  '12345::',
  'g::',
  '::ffff:1.2.3.4',
  '::1.2.3.4',
  '1:2:3:4:5:6:1.2.3.4',
  '1:2:3:4:5:6:7:1.2.3.4',
  '1.2.3.4::',
  '::1.2.3',
  '::ffff:1.2.3.400',
  'fe80::1%eth0',
  'fe80::1%',
  'fe80::1%a b',
  ':1:2:3:4:5:6:7',
  '1:2:3:4:5:6:7:',
  '::1]',
];

/** The same in every run; the counterexample that others found is among them. */
const RUNS = { seed: 256947763, numRuns: 1000 };

function agree(text: string): void {
  assert.is(isIPv4(text), net.isIPv4(text), `"${text}"`);
  assert.is(isIPv6(text), net.isIPv6(text), `"${text}"`);
  assert.is(isIP(text), net.isIP(text), `"${text}"`);
}

test('odd texts get the verdict of node:net', () => {
  for (const text of ODD) agree(text);
});

test('addresses, and texts that resemble one, get the verdict of node:net', () => {
  const part = fc.constantFrom('', '0', '1', 'ff', 'abcd', '12345', ':', '.', '1.2.3.4', 'g', '%1');
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => agree(parts.join(':'))),
    RUNS,
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => agree(parts.join(''))),
    RUNS,
  );
  fc.assert(fc.property(fc.ipV4(), agree), RUNS);
  fc.assert(fc.property(fc.ipV6(), agree), RUNS);
});

test.run();
