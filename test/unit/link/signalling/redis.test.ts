/** Failures of Redis: each is a warning, and rooms are shared again when it works. */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { redirectWarnings } from '../../../../host/base/warning.js';
import { MisuseError, type RefusalError } from '../../../../host/index.js';
import { redisBus, type RedisOptions } from '../../../../host/link/signalling/redis-bus.js';
import type { SignallingBus } from '../../../../host/link/signalling/signalling-bus.js';
import { Workspace, freePort } from '../../../support/processes.js';
import { eventually, settle } from '../../../support/receiver.js';

let warnings: string[] = [];
let ends: (() => unknown)[] = [];

test.before.each(() => {
  warnings = [];
  redirectWarnings((sentence) => warnings.push(sentence));
});

test.after.each(async () => {
  for (const end of ends) await end();
  ends = [];
  redirectWarnings((sentence) => process.emitWarning(sentence));
});

/** Runs `work` with a redis-server of its own. */
async function withRedis(words: readonly string[], work: (port: number) => Promise<void>) {
  await Workspace.use(async (space) => {
    const port = await freePort('127.0.0.1');
    const place = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', space.directory];
    const redis = space.startProcess('redis-server', [...place, '--save', '', ...words]);
    await redis.printed('stdout', /Ready to accept connections/);
    await work(port);
  });
}

function busAt(url: string, options: RedisOptions = {}): SignallingBus {
  const bus = redisBus(url, options);
  ends.push(() => bus.close());
  return bus;
}

/** Publishes until the message has come back: the bus works. */
async function passes(bus: SignallingBus): Promise<void> {
  const heard: string[] = [];
  await bus.subscribe('channel', (message) => heard.push(message));
  await eventually(() => {
    bus.publish('channel', 'hello');
    return heard.includes('hello');
  });
}

const PASSWORD = ['--requirepass', 'secret'];

for (const [title, user, pattern] of [
  ['no password', '', /NOAUTH/],
  ['a wrong password', ':wrong@', /WRONGPASS/],
] as const) {
  test(`${title} for Redis is one warning, without the password`, () =>
    withRedis(PASSWORD, async (port) => {
      const bus = busAt(`redis://${user}127.0.0.1:${port}`);
      let isSubscribed = false;
      void bus.subscribe('channel', () => undefined).then(() => (isSubscribed = true));
      await eventually(() => warnings.length > 0);
      await settle(500);
      assert.is(warnings.length, 1, 'two connections, and attempts that follow');
      assert.match(warnings[0]!, pattern);
      assert.ok(warnings[0]!.startsWith(`redisBus: redis://127.0.0.1:${port}: `), warnings[0]);
      assert.not.match(warnings[0]!, /wrong@/);
      assert.not.ok(isSubscribed);
    }));
}

test('the right password and database bring messages, without a warning', () =>
  withRedis(PASSWORD, async (port) => {
    await passes(busAt(`redis://:secret@127.0.0.1:${port}/3`));
    assert.equal(warnings, []);
  }));

test('a database that Redis does not have is a warning', () =>
  withRedis(['--databases', '2'], async (port) => {
    busAt(`redis://127.0.0.1:${port}/9`);
    await eventually(() => warnings.length > 0);
    assert.match(warnings[0]!, /DB index is out of range/);
  }));

test('a user without the right to a channel has its subscription rejected', () =>
  withRedis('--user guest on >pass +@all resetchannels'.split(' '), async (port) => {
    const bus = busAt(`redis://guest:pass@127.0.0.1:${port}`);
    for (let attempt = 0; attempt < 2; attempt++) {
      const error = await bus
        .subscribe('channel', () => undefined)
        .then(
          () => assert.unreachable('it should have been rejected') as never,
          (reason: RefusalError) => reason,
        );
      assert.is(error.code, 'EACCES');
      assert.match(error.message, /NOPERM/);
    }
    assert.match(warnings.join(), /NOPERM/);
  }));

test('a Redis that is not reached is a warning, and is used as soon as it runs', async () => {
  const port = await freePort('127.0.0.1');
  const bus = busAt(`redis://127.0.0.1:${port}`);
  await eventually(() => warnings.length > 0);
  assert.match(warnings[0]!, /ECONNREFUSED/);
  await Workspace.use(async (space) => {
    const words = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', space.directory];
    space.startProcess('redis-server', [...words, '--save', '']);
    await passes(bus);
    assert.is(warnings.length, 1);
  });
});

test('a path that loses everything without an end is noticed, and replaced', () =>
  withRedis([], async (port) => {
    let isSilent = false;
    let connections = 0;
    const sockets = new Set<Socket>();
    const path = createServer((near) => {
      connections++;
      const far = connect(port, '127.0.0.1');
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        sockets.add(from);
        from.on('error', () => undefined).on('close', () => to.destroy());
        const isLost = isSilent;
        from.on('data', (bytes) => void (isSilent && !isLost ? undefined : to.write(bytes)));
      }
    });
    await new Promise<void>((resolve) => path.listen(0, '127.0.0.1', resolve));
    ends.push(() => {
      path.close();
      for (const socket of sockets) socket.destroy();
    });
    const at = (path.address() as AddressInfo).port;
    const bus = busAt(`redis://127.0.0.1:${at}`, { aliveMillis: 1000 });
    await passes(bus);
    await settle(1500);
    assert.equal([connections, warnings], [2, []], 'Redis answers each PING');
    isSilent = true;
    await eventually(() => connections === 4);
    await passes(bus);
    assert.is(warnings.length, 1);
    assert.match(warnings[0]!, /no reply within 1000 ms/);
  }));

test('options of a bus are checked', () => {
  for (const options of [{ aliveMillis: 0 }, { nope: 1 }]) {
    assert.throws(
      () => redisBus('redis://127.0.0.1', options),
      (error: Error) => {
        assert.instance(error, MisuseError);
        return true;
      },
    );
  }
});

test.run();
