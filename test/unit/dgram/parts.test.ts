/** The parts of `verbena/dgram` that need no socket. */
import { networkInterfaces } from 'node:os';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { MisuseError } from '../../../host/errors/errors.js';
import { isUnicast, localAddresses, reserveAddresses } from '../../../host/dgram/addresses.js';
import {
  DESTINATIONS_MAX,
  Destinations,
  WaitingQueue,
  type Destination,
  type Waiting,
} from '../../../host/dgram/destination.js';
import { Outbox, type Outcome } from '../../../host/dgram/outbox.js';
import { probePeer } from '../../../host/dgram/peer-probe.js';
import {
  parseSend,
  type Addressed,
  type SendCallback,
} from '../../../host/dgram/send-arguments.js';
import { parseEnvironment, settingsOf, type RdpSettings } from '../../../host/dgram/settings.js';

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
  assert.is(text([bytes, 2, 4, undefined, null, heard], true), 'cdef|undefined|undefined|true');
  // Node drops the callback of the first, and refuses the others.
  for (const odd of [
    [bytes, 7, '::1'],
    [bytes, undefined, heard],
    [bytes, undefined, undefined, heard],
    [bytes, 0, 1, undefined, heard],
  ]) {
    assert.is(text(odd, true), 'odd', `${odd.length}`);
  }
  const moved = new Uint8Array(8);
  structuredClone(moved, { transfer: [moved.buffer] });
  assert.is(text([moved, 7]), '|7|undefined|false');
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

test('rdp of a socket is true, false or an object: the words of the environment are misuse', () => {
  for (const rdp of ['off', 'on', 'x', 5, null, () => undefined]) {
    assert.throws(
      () => settingsOf(rdp as never),
      (error: unknown) => error instanceof MisuseError && error.argument === 'rdp',
      String(rdp),
    );
  }
  assert.is(settingsOf(false), undefined);
});

test('the environment is read, and what is wrong in it is named', () => {
  const read = parseEnvironment('rdp=off,loss=2.5,seed=7,queueBytes=3,progress=inline');
  assert.is(read.isOff, true);
  assert.is(read.loss, 2.5);
  assert.is(read.seed, 7);
  assert.is(read.queueBytes, 3);
  assert.is(read.progress, 'inline');
  assert.is(parseEnvironment('').isOff, false);
  assert.is(parseEnvironment('').failover, 'auto');
  assert.is(parseEnvironment('failover=off').failover, 'off');
  assert.equal(parseEnvironment('failover=10.0.0.1+fd00::1,seed=3').failover, [
    '10.0.0.1',
    'fd00::1',
  ]);
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
    'progress=fast',
    'failover=',
    'failover=host',
    'failover=10.0.0.1+',
    'failover=AUTO',
    'failover=224.0.0.1',
    'failover=255.255.255.255',
    'failover=0.0.0.0',
    'failover=10.0.0.1+::',
    'failover=ff02::1',
    'failover=fe80::1',
    'failover=10.0.0.1+10.0.0.2+10.0.0.3+10.0.0.4+10.0.0.5',
  ]) {
    assert.throws(
      () => parseEnvironment(wrong),
      (error: unknown) => error instanceof MisuseError,
      wrong,
    );
  }
});

test('a node has reserves of its family, at other addresses than its own', () => {
  const listed = [
    '127.0.77.71',
    'fd00::1',
    '127.0.77.72',
    '127.0.77.73',
    '127.0.77.74',
    '127.0.77.75',
  ];
  assert.equal(reserveAddresses('127.0.77.72', listed), [
    '127.0.77.71',
    '127.0.77.73',
    '127.0.77.74',
  ]);
  assert.equal(reserveAddresses('fd00::2', listed), ['fd00::1']);
  assert.equal(reserveAddresses('127.0.77.71', 'off'), []);
  // The loopback interface does not fail, and is no way to another machine.
  assert.equal(reserveAddresses('127.0.77.71', 'auto'), []);
  for (const [name, addresses = []] of Object.entries(networkInterfaces())) {
    const own = addresses.find(({ internal, scopeid }) => !internal && !scopeid);
    const reserves = own ? reserveAddresses(own.address, 'auto') : [];
    assert.not.ok(
      reserves.some((reserve) => addresses.some(({ address }) => address === reserve)),
      name,
    );
  }
});

test('a route that is missing is no rejection by the peer, and ends no program', async () => {
  const isRefused = await new Promise<boolean>((resolve) => {
    // Broadcast addresses need an option that the probe does not set: connect(2) fails.
    probePeer('127.0.77.61', { address: '255.255.255.255', port: 4791 }, resolve);
  });
  assert.is(isRefused, false);
  assert.is(
    await new Promise<boolean>((resolve) => {
      probePeer('127.0.77.61', { address: '127.0.77.62', port: 4792 }, resolve);
    }),
    true,
  );
});

test('the options of a socket for RDP are known, and numbers', () => {
  assert.is(settingsOf({ queueBytes: 3 })?.queueBytes, 3);
  const absent = { retryMillis: undefined, events: undefined } as object;
  assert.equal(settingsOf(absent), settingsOf({}));
  assert.is(settingsOf(false), undefined);
  for (const wrong of [{ queueBytes: -1 }, { retryMillis: NaN }, { loss: 1 }, { events: 1 }]) {
    assert.throws(
      () => settingsOf(wrong as object),
      (error: unknown) => error instanceof MisuseError,
      Object.keys(wrong)[0],
    );
  }
});

interface Desk {
  readonly outbox: Outbox;
  readonly log: string[];
  /** Outcomes of the next datagrams, by port. */
  readonly fates: Map<number, Outcome>;
  readonly destination: (port: number) => Destination;
  readonly add: (port: number, text: string, isHeard?: boolean) => void;
}

test('the queue of a destination keeps its order over removals of any size', () => {
  const queue = new WaitingQueue();
  const waiting = (port: number): Waiting => {
    const datagram = { pieces: [], length: 3, port, address: '', callback: undefined };
    return { datagram, sinceMillis: 0 };
  };
  let [pushed, removed] = [0, 0];
  for (let round = 0; round < 3000; round++) {
    for (let count = 0; count < round % 7; count++) queue.push(waiting(pushed++));
    const count = Math.min(queue.length, round % 5);
    assert.is(queue.remove(count), 3 * count);
    removed += count;
    assert.is(queue.length, pushed - removed);
    if (queue.length === 0) continue;
    assert.is(queue.at(0).datagram.port, removed);
    assert.is(queue.at(queue.length - 1).datagram.port, pushed - 1);
  }
  queue.replace(1, waiting(-1));
  assert.is(queue.at(1).datagram.port, -1);
  assert.is(queue.remove(queue.length), 3 * (pushed - removed));
  assert.is(queue.length, 0);
});

test('a destination in use is remembered, and one with messages in flight in any case', () => {
  const busy = new Set<Destination>();
  const destinations = new Destinations((destination) => busy.has(destination));
  const [used, flying] = [1, 2].map((port) => destinations.at('192.0.2.7', port)) as [
    Destination,
    Destination,
  ];
  busy.add(flying);
  for (let count = 0; count < 3 * DESTINATIONS_MAX; count++) {
    destinations.at(`198.51.${count >> 8}.${count & 255}`, 7);
    assert.is(destinations.at('192.0.2.7', 1), used);
  }
  assert.is(destinations.size, DESTINATIONS_MAX);
  assert.is(destinations.at('192.0.2.7', 2), flying);
  busy.clear();
  for (let count = 0; count < 3 * DESTINATIONS_MAX; count++) destinations.at('203.0.113.7', count);
  assert.is(destinations.size, DESTINATIONS_MAX);
  assert.is.not(destinations.at('192.0.2.7', 2), flying);
});

function makeDesk(limits: Partial<RdpSettings> = {}): Desk {
  const log: string[] = [];
  const fates = new Map<number, Outcome>();
  const destinations = new Destinations();
  const say = (what: string, { port, pieces }: Addressed) =>
    void log.push(`${what} ${port} ${Buffer.from(pieces[0]!)}`);
  const user = {
    attempt: ({ port }: Destination) => fates.get(port) ?? 'taken',
    taken: (datagram: Addressed) => say('taken', datagram),
    plain: (datagram: Addressed) => say('plain', datagram),
    calledLater: (callback: SendCallback, length: number) => callback(null, length),
    dropped: ({ port }: Destination, count: number) => void log.push(`dropped ${port} ${count}`),
    stalled: ({ port }: Destination, isStalled: boolean) =>
      void log.push(`${isStalled ? 'stalled' : 'resumed'} ${port}`),
    emptied: () => void log.push('emptied'),
  };
  const bounds = { retryMillis: 1e6, callbackMillis: 1e6, queueBytes: 1000 };
  const outbox = new Outbox(user, { ...bounds, ...limits });
  const destination = (port: number): Destination => destinations.at('192.0.2.7', port);
  const add = (port: number, text: string, isHeard = false): void => {
    const callback = isHeard
      ? (_: Error | null, n: number) => void log.push(`heard ${n}`)
      : undefined;
    const datagram = { pieces: [Buffer.from(text)], length: text.length, port, callback };
    outbox.add(destination(port), { ...datagram, address: '192.0.2.7' });
  };
  return { outbox, log, fates, destination, add };
}

test('an outbox keeps the order of each destination, and none waits for another', () => {
  const { outbox, log, fates, destination, add } = makeDesk();
  fates.set(1, 'wait').set(2, 'wait');
  add(1, 'a');
  add(2, 'b');
  add(1, 'c');
  assert.is(destination(1).waiting.length, 2);
  outbox.flush();
  assert.equal(log, []);
  fates.set(2, 'taken');
  outbox.flush();
  assert.equal(log.splice(0), ['taken 2 b']);
  assert.is(destination(2).waiting.length, 0);
  fates.set(1, 'plain');
  outbox.flush();
  assert.equal(log, ['plain 1 a', 'plain 1 c', 'emptied']);
  assert.is(outbox.bytes, 0);
});

test('what has left an outbox is not sent again if the next datagram is refused', () => {
  const { outbox, log, fates, add } = makeDesk();
  fates.set(1, 'wait');
  for (const text of ['a', 'b', 'c']) add(1, text);
  const outcomes: Outcome[] = ['taken', 'plain'];
  const refusal = new Error('refused');
  fates.get = () => {
    const outcome = outcomes.shift();
    if (outcome === undefined) throw refusal;
    return outcome;
  };
  assert.throws(() => outbox.flush(), /refused/);
  assert.equal(log, ['taken 1 a', 'plain 1 b']);
  outcomes.push('taken');
  outbox.flush();
  assert.equal(log, ['taken 1 a', 'plain 1 b', 'taken 1 c', 'emptied']);
});

test('a buffer that was shortened after the call leaves with zeros behind it', () => {
  const { outbox, log, fates, destination } = makeDesk();
  const datagram = { address: '192.0.2.7', port: 1, callback: undefined };
  for (const text of ['secret of another', 'ab']) {
    fates.set(1, 'wait');
    outbox.add(destination(1), { ...datagram, pieces: [Buffer.from(text)], length: 17 });
    fates.set(1, 'taken');
    outbox.flush();
  }
  assert.equal(log, [
    'taken 1 secret of another',
    'emptied',
    `taken 1 ab${'\0'.repeat(15)}`,
    'emptied',
  ]);
});

test('an outbox that leaves by UDP leaves in order, and not all at once', async () => {
  const { outbox, log, fates, add } = makeDesk({ queueBytes: 1e6 });
  fates.set(1, 'wait');
  const texts = Array.from({ length: 400 }, (_, index) => `${index}`);
  for (const each of texts) add(1, each);
  fates.set(1, 'plain');
  outbox.flush();
  // The kernel keeps 256 small datagrams for a receiver with the default buffer.
  assert.ok(log.length > 0 && log.length < 100, `${log.length}`);
  const [first, since] = [log.length, performance.now()];
  add(1, 'behind');
  while (outbox.count > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const perMilli = (log.length - first) / (performance.now() - since);
  assert.ok(perMilli < 20, `${perMilli}`);
  assert.equal(log, [...[...texts, 'behind'].map((each) => `plain 1 ${each}`), 'emptied']);
});

test('an outbox is bounded by bytes, drops without an error, and takes one datagram always', () => {
  const { outbox, log, fates, add } = makeDesk();
  fates.set(1, 'wait');
  add(1, 'x'.repeat(2000));
  add(1, 'too much', true);
  assert.equal(log.splice(0), ['heard 8', 'dropped 1 1']);
  outbox.clear();
  assert.is(outbox.count, 0);
  for (const text of ['a', 'b', 'c', 'd']) add(1, text, true);
  assert.equal(log, ['heard 1', 'dropped 1 1']);
  assert.is(outbox.count, 3);
  outbox.clear();
});

test('an outbox copies: the program may change its memory at once', () => {
  const { outbox, log, fates, destination } = makeDesk();
  fates.set(1, 'wait');
  const bytes = Buffer.from('before');
  const datagram = { pieces: [bytes], length: 6, port: 1, address: '192.0.2.7' };
  outbox.add(destination(1), { ...datagram, callback: undefined });
  bytes.fill(0);
  fates.set(1, 'taken');
  outbox.flush();
  assert.equal(log, ['taken 1 before', 'emptied']);
});

test('callbacks of a stalled destination no longer wait; datagrams that are too old are dropped', async () => {
  const { outbox, log, fates, add } = makeDesk({ callbackMillis: 1, retryMillis: 500 });
  fates.set(1, 'wait').set(2, 'wait');
  add(1, 'one', true);
  while (log.length < 1) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.equal(log.splice(0), ['heard 3']);
  add(1, 'other', true);
  assert.equal(log.splice(0), ['heard 5']);
  while (outbox.count > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const dropped = log.filter((line) => line.startsWith('dropped'));
  assert.is(
    dropped.reduce((sum, line) => sum + Number(line.split(' ')[2]), 0),
    2,
  );
  assert.equal(
    log.filter((line) => line.endsWith('ed 1')),
    ['stalled 1', 'resumed 1'],
  );
});

test.run();
