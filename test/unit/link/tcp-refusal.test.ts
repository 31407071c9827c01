/** Refusals by the system of ports and routes, with remedies. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { LinkError, RefusalError } from '../../../host/errors/errors.js';
import { localAddressTowards } from '../../../host/link/interface.js';
import { connectRefusal, listenRefusal } from '../../../host/link/tcp-refusal.js';

const NOWHERE = 'no-such-host.invalid';

/** As Node makes them. */
function systemError(syscall: string, code: string): Error {
  return Object.assign(new Error(`${syscall} ${code}: as it is`), { syscall, code });
}

test('the route to an address comes from the system; without a route its error does', async () => {
  for (const [address, code] of [
    // No socket is connected to all hosts unless it asked to be allowed to.
    ['255.255.255.255', /^E(ACCES|NETUNREACH)$/],
    [NOWHERE, /^E/],
  ] as const) {
    const said = await localAddressTowards(address).catch((error: unknown) => error);
    assert.instance(said, RefusalError, `${address} is reached from ${String(said)}`);
    assert.match((said as RefusalError).message, `no route to ${address}`);
    assert.match((said as RefusalError).code, code);
  }
});

test('a refused listen names the port, the cause, and a remedy', () => {
  const place = { address: '192.0.2.1', port: 7471, option: '-p' };
  const rows: readonly (readonly [code: string, says: RegExp])[] = [
    ['EADDRINUSE', /^TCP port 7471 is taken: choose another one \(-p\) \(EADDRINUSE\)$/],
    ['EACCES', /^TCP port 7471 requires more rights: choose another one \(-p\) \(EACCES\)$/],
    ['EADDRNOTAVAIL', /^192.0.2.1 is no address of this machine. This machine has .*127.0.0.1/],
    [
      'EMFILE',
      /^cannot listen on TCP port 7471: the system refuses listen: .*\(ulimit -n\) \(EMFILE\)$/,
    ],
    ['EXDEV', /^cannot listen on TCP port 7471: .*: listen EXDEV: as it is \(EIO\)$/],
  ];
  for (const [code, says] of rows) {
    const refusal = listenRefusal(systemError('listen', code), place);
    assert.instance(refusal, LinkError);
    assert.match((refusal as Error).message, says);
  }
});

test('a refused listen at a host name without an address names the host, not the port', () => {
  const error = Object.assign(systemError('getaddrinfo', 'ENOTFOUND'), { hostname: 'nohost' });
  const refusal = listenRefusal(error, { address: 'nohost', port: 7471 }) as LinkError;
  assert.is(refusal.code, 'EADDRNOTAVAIL');
  assert.match(
    refusal.message,
    /^nohost has no address \(ENOTFOUND\)\. This machine has .*127.0.0.1/,
  );
  assert.not.match(refusal.message, /7471/);
});

test('a name that the resolver cannot answer now is not called unknown', () => {
  const now = /^the resolver does not answer now for the host there \(EAI_AGAIN\); try again later/;
  const rows: readonly (readonly [code: string, says: RegExp, name: string, listens: string])[] = [
    ['EAI_AGAIN', now, 'EAGAIN', 'EAGAIN'],
    ['EAI_FAIL', /^cannot look up the host there: .* EAI_FAIL: as it is/, 'EIO', 'EIO'],
    ['EMFILE', /^cannot look up the host there: .*\(ulimit -n\)/, 'EMFILE', 'EMFILE'],
    ['ENOTFOUND', /^the host there is not known; check the name/, 'ENOENT', 'EADDRNOTAVAIL'],
  ];
  for (const [code, says, name, listens] of rows) {
    const error = Object.assign(systemError('getaddrinfo', code), { hostname: 'there' });
    const refusal = connectRefusal(error, 'there:1', 'verbena it') as RefusalError;
    assert.instance(refusal, RefusalError);
    assert.match(refusal.message, says);
    assert.is(refusal.code, name);
    assert.is(refusal.cause, error);
    const listen = listenRefusal(error, { address: 'there', port: 7471 }) as LinkError;
    assert.instance(listen, LinkError);
    assert.is(listen.code, listens);
    if (code !== 'ENOTFOUND') assert.match(listen.message, says);
    assert.is(listen.cause, error);
  }
});

test('a refused connect names the host, the cause, and a remedy', () => {
  const rows: readonly (readonly [code: string, says: RegExp])[] = [
    ['ECONNREFUSED', /^no process listens at here:1: start "verbena it" there \(ECONNREFUSED\)$/],
    ['ETIMEDOUT', /^no answer from here:1: check that "verbena it" runs there \(ETIMEDOUT\)$/],
    ['EPIPE', /^here:1 closed the connection \(ECONNRESET\)$/],
    ['EHOSTUNREACH', /^no route to here:1 \(ENETUNREACH\)$/],
    [
      'EMFILE',
      /^cannot connect to here:1: the system refuses connect: .*\(ulimit -n\) \(EMFILE\)$/,
    ],
    ['EADDRNOTAVAIL', /^cannot connect to here:1: .*: it is no address .* \(EADDRNOTAVAIL\)$/],
    ['ECONNABORTED', /^cannot connect to here:1: .*: connect ECONNABORTED: as it is \(EIO\)$/],
  ];
  for (const [code, says] of rows) {
    const refusal = connectRefusal(systemError('connect', code), 'here:1', 'verbena it');
    assert.instance(refusal, RefusalError);
    assert.match((refusal as Error).message, says);
  }
});

test("an error that is not the system's stays as it is", () => {
  const silence = new RefusalError('ETIMEDOUT', 'it said nothing for 5 s');
  const aborted = Object.assign(new Error('aborted'), { code: 'ABORT_ERR' });
  assert.is(connectRefusal(silence, 'here:1', 'verbena it'), silence);
  for (const error of [aborted, new TypeError('a mistake of ours')]) {
    assert.is(connectRefusal(error, 'here:1', 'verbena it'), error);
    assert.is(listenRefusal(error, { port: 1 }), error);
  }
});

test.run();
