/** The parts of `verbena/dgram` that need no socket. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError } from '../../../host/errors/errors.js';
import { isUnicast, localAddresses } from '../../../host/dgram/addresses.js';
import { Outbox, type Addressed } from '../../../host/dgram/outbox.js';
import { parseSend } from '../../../host/dgram/send-arguments.js';
import { parseEnvironment, settingsOf } from '../../../host/dgram/settings.js';
import type { Outcome } from '../../../host/dgram/local-node.js';

test('every form of send has its bytes, destination and callback', () => {
  const bytes = Buffer.from('abcdef');
  const heard = (): void => {};
  const text = (args: readonly unknown[], isConnected = false): string => {
    const request = parseSend(args, isConnected);
    if (!request) return 'odd';
    const { port, address, callback, pieces } = request;
    return `${Buffer.concat(pieces)}|${port}|${address}|${callback === heard}`;
  };
  assert.is(text([bytes, 7]), 'abcdef|7|undefined|false');
  assert.is(text(['äh', '7', heard]), 'äh|7|undefined|true');
  assert.is(text([bytes, 7, '::1', heard]), 'abcdef|7|::1|true');
  assert.is(text([bytes, 1, 3, 7]), 'bcd|7|undefined|false');
  assert.is(text([bytes, 1, 3, 7, 'host', heard]), 'bcd|7|host|true');
  assert.is(
    text([[bytes, 'x', new Uint8Array([121])], 7, undefined, heard]),
    'abcdefxy|7|undefined|true',
  );
  assert.is(text([new DataView(bytes.buffer, bytes.byteOffset + 2, 2), 7]), 'cd|7|undefined|false');
  assert.is(text([[], 7]), '|7|undefined|false');
  assert.is(text([bytes], true), 'abcdef|undefined|undefined|false');
  assert.is(text([bytes, heard], true), 'abcdef|undefined|undefined|true');
  assert.is(text([bytes, 2, 4, heard], true), 'cdef|undefined|undefined|true');
  for (const odd of [[bytes], [bytes, 0], [bytes, 65536], [bytes, 1.5], [bytes, 'x'], [7, 7]]) {
    assert.is(text(odd), 'odd', JSON.stringify(odd));
  }
  for (const odd of [
    [bytes, 7, 1, 7],
    [bytes, -1, 3, 7],
    [bytes, 5, 3, 7],
    [bytes, 7, 5],
    [[5], 7],
  ]) {
    assert.is(text(odd), 'odd', JSON.stringify(odd));
  }
  assert.is(text([bytes, 7, '::1'], true), 'odd');
});

test('groups and broadcast addresses are no peers', () => {
  for (const address of [
    '224.0.0.1',
    '255.255.255.255',
    '0.0.0.0',
    '127.255.255.255',
    'ff02::1',
    '::',
    'fe80::1',
  ]) {
    assert.is(isUnicast(address), false, address);
  }
  for (const address of ['127.0.0.1', '192.0.2.7', '::1', '2001:db8::1', '::ffff:192.0.2.7']) {
    assert.is(isUnicast(address), true, address);
  }
  assert.ok(localAddresses('udp4', false).includes('127.0.0.1'));
  assert.ok(localAddresses('udp6', true).every((address) => address.includes(':')));
});

test('the environment is read, and what is wrong in it is named', () => {
  const read = parseEnvironment('rdp=off,loss=2.5,seed=7,queueMessages=3');
  assert.is(read.isOff, true);
  assert.is(read.loss, 2.5);
  assert.is(read.seed, 7);
  assert.is(read.queueMessages, 3);
  assert.is(parseEnvironment('').isOff, false);
  for (const wrong of [
    'loss',
    'loss=',
    'loss=101',
    'loss=-1',
    'loss=x',
    'rdp=maybe',
    'seed=1.5',
    'isOff=1',
    'lost=1',
    'heartbeatMillis=0',
  ]) {
    assert.throws(
      () => parseEnvironment(wrong),
      (error: unknown) => error instanceof MisuseError,
      wrong,
    );
  }
});

test('what a socket asks of rdp is known, and a number', () => {
  assert.is(settingsOf({ queueMessages: 3 })?.queueMessages, 3);
  assert.is(settingsOf(false), undefined);
  for (const wrong of [{ queueMessages: -1 }, { retryMillis: NaN }, { loss: 1 }, { queue: 1 }]) {
    assert.throws(
      () => settingsOf(wrong),
      (error: unknown) => error instanceof MisuseError,
      Object.keys(wrong)[0],
    );
  }
});

interface Desk {
  readonly outbox: Outbox;
  readonly log: string[];
  /** What happens to the next ones to a port. */
  readonly fates: Map<number, Outcome>;
  readonly datagram: (port: number, text: string) => Addressed;
}

function makeDesk(settings: { retryMillis?: number; resolveMillis?: number } = {}): Desk {
  const log: string[] = [];
  const fates = new Map<number, Outcome>();
  const say = (what: string) => (datagram: Addressed, code?: string) =>
    void log.push(
      [what, datagram.port, String(datagram.pieces[0]), code].filter(Boolean).join(' '),
    );
  const user = {
    attempt: ({ port }: Addressed) => fates.get(port) ?? 'taken',
    taken: say('taken'),
    plain: say('plain'),
    failed: say('failed'),
    unresolved: (address: string) => void log.push(`unresolved ${address}`),
    emptied: () => void log.push('emptied'),
  };
  const bounds = { resolveMillis: 1e6, retryMillis: 1e6, queueMessages: 3, queueBytes: 10 };
  const outbox = new Outbox(user, { ...bounds, ...settings });
  const datagram = (port: number, text: string): Addressed => {
    const pieces = [Buffer.from(text)];
    return { pieces, length: text.length, port, address: '192.0.2.7', callback: undefined };
  };
  return { outbox, log, fates, datagram };
}

test('an outbox keeps the order of each destination, and none waits for another', () => {
  const { outbox, log, fates, datagram } = makeDesk();
  fates.set(1, 'EWOULDBLOCK').set(2, 'ENOBUFS');
  assert.ok(outbox.add(datagram(1, 'a')));
  assert.ok(outbox.add(datagram(2, 'b')));
  assert.ok(outbox.add(datagram(1, 'c')));
  assert.ok(outbox.isBehind(datagram(1, 'x')));
  outbox.flush();
  assert.equal(log, []);
  fates.set(2, 'taken');
  outbox.flush();
  assert.equal(log.splice(0), ['taken 2 b']);
  assert.is(outbox.isBehind(datagram(2, 'x')), false);
  fates.set(1, 'plain');
  outbox.flush();
  assert.equal(log, ['plain 1 a', 'plain 1 c', 'emptied']);
  assert.is(outbox.bytes, 0);
});

test('an outbox is full by messages and by bytes, but one fits always', () => {
  const { outbox, fates, datagram } = makeDesk();
  fates.set(1, 'ENOBUFS');
  assert.ok(outbox.add(datagram(1, 'longer than ten bytes')));
  assert.not(outbox.add(datagram(1, 'x')));
  fates.set(1, 'taken');
  outbox.flush();
  fates.set(1, 'ENOBUFS');
  for (const text of ['a', 'b', 'c']) assert.ok(outbox.add(datagram(1, text)));
  assert.not(outbox.add(datagram(1, '')));
  fates.set(1, 'taken');
  outbox.flush();
});

test('a datagram that waited too long fails; without a node at the peer it goes by UDP', async () => {
  const { outbox, log, fates, datagram } = makeDesk({ retryMillis: 0, resolveMillis: 0 });
  fates.set(1, 'EWOULDBLOCK').set(2, 'resolving').set(3, 'ENOBUFS');
  for (const port of [1, 2, 3]) outbox.add(datagram(port, 'x'));
  // Its own timer tries again.
  while (outbox.count > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(log, [
    'failed 1 x EWOULDBLOCK',
    'unresolved 192.0.2.7',
    'plain 2 x',
    'failed 3 x ENOBUFS',
    'emptied',
  ]);
});

test.run();
