/** Errors of `share` and `connect`: what they say of a completion, and what to do on which side. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { VendorError, WcStatus } from '#build/abi.js';
import { After, completionError, endedError } from '../../../host/remote/remote-error.js';

const RETRIES = WcStatus.RETRY_EXC_ERR;

test('a path MTU that is too large has a text of its own, beside a silent peer', () => {
  const cases: [vendorErr: number, code: string, text: RegExp][] = [
    [0, 'ETIMEDOUT', /^read of a: the peer does not answer any more; check that its process runs/],
    [VendorError.PATH_MTU + 4096, 'EMSGSIZE', /^read of a: the network drops .* path MTU 4096, /],
    [VendorError.PATH_MTU_REFUSED + 2048, 'EMSGSIZE', /the system refuses packets of .* MTU 2048/],
  ];
  for (const [vendorErr, code, text] of cases) {
    const error = completionError('read of a', { status: RETRIES, vendorErr }, After.CONNECT);
    assert.is(error.code, code);
    assert.match(error.message, text);
    assert.is(/MTU/.test(error.explanation), vendorErr !== 0, error.explanation);
    assert.is(error.status, RETRIES);
  }
});

test('only a client without reconnect is pointed to that option', () => {
  const statuses = [RETRIES, WcStatus.REM_ACCESS_ERR, WcStatus.WR_FLUSH_ERR, WcStatus.GENERAL_ERR];
  for (const after of Object.values(After)) {
    const texts = statuses.map(
      (status) => completionError('read', { status, vendorErr: 0 }, after).message,
    );
    texts.push(endedError('connection', 'it was closed', after).message);
    for (const text of texts) {
      assert.ok(text.includes(after), text);
      assert.is(text.includes('set the option reconnect'), after === After.CONNECT, text);
    }
  }
});

test.run();
