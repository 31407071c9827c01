/** A listener that accepts in parallel: no peer delays another one. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  CmEventType,
  ConnectError,
  MisuseError,
  RefusalError,
  RejectReason,
  connect,
  createEventChannel,
  listen,
  openDevice,
  type Context,
  type RdmaConnection,
  type RdmaListener,
} from '../../../host/index.js';
import { parseUrl } from '../../../host/cm/url.js';
import { rejection } from '../../support/refusal.js';

const ADDRESS = '127.0.0.1';
const PORT = 7471;

/** A listener, and the context of its clients; `udpPort`: port of the listener's device. */
async function withListener(
  work: (listener: RdmaListener, context: Context, udpPort: number) => Promise<void>,
): Promise<void> {
  await using server = await openDevice({ address: ADDRESS, port: 0 });
  await using client = await openDevice({ address: ADDRESS, port: 0 });
  const listener = await listen({ address: ADDRESS, port: PORT }, { context: server });
  await work(listener, client, server.device.info.local.port);
  await listener.close();
}

/** Sends a REQ, and no RTU: without a queue pair the application is responsible for the RTU. */
async function askInSilence(context: Context, udpPort: number): Promise<void> {
  const channel = createEventChannel(context);
  const id = channel.createId();
  id.resolveAddr({ address: ADDRESS, port: PORT, udpPort });
  await channel.getEvent();
  id.resolveRoute();
  await channel.getEvent();
  id.connect({ qpNum: 0x123 });
  const event = await channel.getEvent();
  assert.is(event?.event, CmEventType.CONNECT_RESPONSE);
}

test('a closed context leaves no listener to the other contexts of its device', async () => {
  await using first = await openDevice({ address: ADDRESS, port: 0 });
  await using client = await openDevice({ address: ADDRESS, port: 0 });
  const second = first.openDevice();
  await listen({ address: ADDRESS, port: PORT }, { context: second });
  await second.close();
  const target = { address: ADDRESS, port: PORT };
  const udpPort = first.local.port;
  const refused = await rejection(connect(target, { context: client, udpPort }));
  assert.is((refused as ConnectError).code, 'ECONNREFUSED');
  // The service is free for another context.
  await using listener = await listen(target, { context: first });
  const connection = connect(target, { context: client, udpPort });
  await (await listener.getRequest())!.accept();
  await (await connection).close();
});

test('a request that ended before it is accepted leaves nothing', () =>
  withListener(async (listener, context, udpPort) => {
    const { endings } = listener.context;
    const before = endings.size;
    const ask = async (timeout: number): Promise<void> => {
      const late = connect({ address: ADDRESS, port: PORT }, { context, udpPort, timeout });
      assert.is(((await rejection(late)) as ConnectError).code, 'ETIMEDOUT');
    };
    await ask(50);
    const request = (await listener.getRequest())!;
    await ask(50);
    // Takes the end of the first one as well.
    await listener.getRequest();
    const refused = await rejection(request.accept());
    assert.instance(refused, RefusalError);
    assert.is((refused as RefusalError).code, 'EINVAL');
    assert.is(endings.size, before);
  }));

test('a peer that sends a REQ and then stays silent delays no other peer', () =>
  withListener(async (listener, context, udpPort) => {
    const connections = listener.connections();
    const first = connections.next();
    await askInSilence(context, udpPort);
    const honest = await connect({ address: ADDRESS, port: PORT }, { context, udpPort });
    const { value: accepted } = await first;
    await honest.close();
    await accepted!.disconnected;
  }));

test('a requester that ends before its RTU is the reason of the failure, not a device to open', () =>
  withListener(async (listener, context, udpPort) => {
    const failed = new Promise<Error>((resolve) => {
      const quick = { cmResponseTimeout: 12, maxCmRetries: 0 };
      void listener.connections({ ...quick, onFailed: resolve }).next();
    });
    await askInSilence(context, udpPort);
    const sentence = 'accept: no RTU came from the peer; it has ended (ETIMEDOUT)';
    assert.is((await failed).message, sentence);
  }));

test('connect ends with its timeout or its signal, and leaves nothing behind', () =>
  withListener(async (listener, context, udpPort) => {
    const target = { address: ADDRESS, port: PORT };
    // Nothing accepts.
    const begin = performance.now();
    const late = await rejection(connect(target, { context, udpPort, timeout: 50 }));
    assert.is((late as ConnectError).code, 'ETIMEDOUT');
    assert.match(
      (late as Error).message,
      /connect: no answer came from the peer within 50 ms; che/,
    );
    // Without its timeout it ends after a minute.
    assert.ok(performance.now() - begin < 20_000);
    const controller = new AbortController();
    const going = connect(target, { context, udpPort, signal: controller.signal });
    controller.abort(new Error('stop'));
    assert.is(((await rejection(going)) as Error).message, 'stop');
    const aborted = { context, udpPort, signal: AbortSignal.abort(new Error('before')) };
    assert.is(((await rejection(connect(target, aborted))) as Error).message, 'before');
    assert.instance(await rejection(connect(target, { timeout: -1 })), MisuseError);
    // The listener still has the requests, which have ended.
    for (let count = 0; count < 2; count++) {
      const request = await listener.getRequest({ timeout: 5000 });
      assert.instance(await rejection(request!.accept()), RefusalError);
    }
  }));

test('an absent peer is reported after 3 s, and one that accepts later is waited for', () =>
  withListener(async (listener, context, udpPort) => {
    const begin = performance.now();
    const absent = rejection(connect({ address: '127.0.0.99', port: PORT }, { context })).then(
      (error) => [error, performance.now() - begin] as const,
    );
    const going = connect({ address: ADDRESS, port: PORT }, { context, udpPort });
    const request = (await listener.getRequest())!;
    const [error, millis] = await absent;
    assert.is((error as ConnectError).code, 'ETIMEDOUT');
    assert.match((error as Error).message, /check that a device is open there, at that address/);
    // All tries take a minute.
    assert.ok(millis > 2500 && millis < 20_000, `${millis} ms`);
    await sleep(500);
    const accepted = request.accept();
    const connection = await going;
    assert.ok(performance.now() - begin > 3000);
    await connection.close();
    await (
      await accepted
    ).disconnected;
  }));

test('getRequest ends with its timeout or its signal, and no request is lost', () =>
  withListener(async (listener, context, udpPort) => {
    const late = await rejection(listener.getRequest({ timeout: 20 }));
    assert.is(
      (late as Error).message,
      'getRequest: no request came within 20 ms; raise timeout (ETIMEDOUT)',
    );
    const controller = new AbortController();
    const asked = listener.getRequest({ signal: controller.signal });
    controller.abort(new Error('stop'));
    assert.is(((await rejection(asked)) as Error).message, 'stop');
    const going = connect({ address: ADDRESS, port: PORT }, { context, udpPort });
    const request = await listener.getRequest({ timeout: 5000 });
    const connection = await request!.accept({ timeout: 5000 });
    await (await going).close();
    await connection.disconnected;
  }));

test('reject with a wrong argument has no effect: the request can be accepted', () =>
  withListener(async (listener, context, udpPort) => {
    const going = connect({ address: ADDRESS, port: PORT }, { context, udpPort });
    const request = await listener.getRequest({ timeout: 5000 });
    for (const wrong of ['text', 5, new Uint8Array(149)]) {
      assert.throws(
        () => request!.reject(wrong as never),
        (error: unknown) => error instanceof MisuseError && error.argument === 'privateData',
      );
    }
    const connection = await request!.accept({ timeout: 5000 });
    await (await going).close();
    await connection.disconnected;
  }));

test('accept ends with its timeout', () =>
  withListener(async (listener, context, udpPort) => {
    const asking = askInSilence(context, udpPort);
    const request = (await listener.getRequest())!;
    const late = await rejection(request.accept({ timeout: 50 }));
    assert.match((late as Error).message, /accept: no answer came from the peer within 50 ms/);
    await asking;
  }));

test('the URL of a listener has the port, and the UDP port if it is another one', () =>
  withListener(async (listener, _, udpPort) => {
    assert.is(listener.url, `rdma://${ADDRESS}:${PORT}?udp=${udpPort}`);
    assert.equal(parseUrl('connect', listener.url), { address: ADDRESS, port: PORT, udpPort });
  }));

test('a request that cannot be accepted is rejected, reported and counted; the next one is accepted', () =>
  withListener(async (listener, context, udpPort) => {
    const { queuePairsMax } = listener.context.device.limits;
    const failures: Error[] = [];
    const cap = { maxSendWr: 1, maxRecvWr: 1 };
    const connections = listener.connections({
      qp: { cap },
      onFailed: (error) => failures.push(error),
    });
    const next = connections.next();
    const pd = listener.context.allocPd();
    const cq = listener.context.createCq(16);
    const taken = [];
    try {
      for (;;) taken.push(pd.createQp({ sendCq: cq, recvCq: cq, cap }));
    } catch {
      assert.ok(taken.length <= queuePairsMax);
    }
    const target = { address: ADDRESS, port: PORT };
    const error = await rejection(connect(target, { context, udpPort }));
    assert.is((error as ConnectError).code, 'ECONNREFUSED');
    assert.is((error as ConnectError).reason, RejectReason.NO_QP);
    assert.is(failures.length, 1);
    assert.is(listener.failed, 1);
    taken.pop()!.destroy();
    await connect(target, { context, udpPort });
    assert.ok((await next).value);
  }));

test('an address has as many connections as it may, and another one when one of them ends', () =>
  withListener(async (listener, context, udpPort) => {
    const codes: string[] = [];
    const connections = listener.connections({
      connectionsPerSource: 2,
      onFailed: (error) => {
        assert.instance(error, RefusalError);
        codes.push((error as RefusalError).code);
      },
    });
    const accepted: RdmaConnection[] = [];
    void (async () => {
      for await (const connection of connections) accepted.push(connection);
    })();
    const ask = (): Promise<RdmaConnection> =>
      connect({ address: ADDRESS, port: PORT }, { context, udpPort });
    const [first] = [await ask(), await ask()];
    for (let turn = 0; turn < 2; turn++) {
      const error = await ask().then(
        () => undefined,
        (reason: unknown) => reason as ConnectError,
      );
      assert.is(error?.reason, RejectReason.NO_RESOURCES);
    }
    assert.equal(codes, ['EMFILE', 'EMFILE']);
    assert.is(listener.failed, 2);
    await first!.close();
    await accepted[0]!.disconnected;
    await (await ask()).close();
    const wrong = listener.connections({ connectionsPerSource: 0 }).next();
    assert.instance(await rejection(wrong), MisuseError);
  }));

test('options that are invalid for every request end the loop, and reject the peer', () =>
  withListener(async (listener, context, udpPort) => {
    const connections = listener.connections({ qp: { cap: { maxSendWr: 1e9 } } });
    const [own, peer] = await Promise.allSettled([
      connections.next(),
      connect({ address: ADDRESS, port: PORT }, { context, udpPort }),
    ]);
    assert.instance((own as PromiseRejectedResult).reason, MisuseError);
    assert.is((peer as PromiseRejectedResult).reason.code, 'ECONNREFUSED');
  }));

test('callbacks of a wrong type are refused before the first request', () =>
  withListener(async (listener, context, udpPort) => {
    for (const call of [
      listener.connections({ onFailed: 5 as never }).next(),
      listener.connections({}, 5 as never).next(),
      connect({ address: ADDRESS, port: PORT }, { context, udpPort }, 5 as never),
    ]) {
      const error = await rejection(call);
      assert.instance(error, MisuseError, String(error));
      assert.match((error as Error).message, /^(onFailed|prepare): must be a function, got number/);
    }
  }));

test('an error of `prepare`, also of its promise, ends that attempt alone', () =>
  withListener(async (listener, context, udpPort) => {
    const target = { address: ADDRESS, port: PORT };
    const failed: Error[] = [];
    let fails = true;
    const prepare = async (): Promise<void> => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (fails) throw new Error('no buffers');
    };
    const next = listener.connections({ onFailed: (error) => failed.push(error) }, prepare).next();
    const refused = await rejection(connect(target, { context, udpPort }));
    assert.is((refused as ConnectError).code, 'ECONNREFUSED');
    const own = await rejection(connect(target, { context, udpPort }, prepare));
    assert.is((own as Error).message, 'no buffers');
    fails = false;
    await connect(target, { context, udpPort }, prepare);
    await next;
    assert.equal(
      failed.map(({ message }) => message),
      ['no buffers'],
    );
  }));

test('a loop that is left early takes no request from the next loop', () =>
  withListener(async (listener, context, udpPort) => {
    const target = { address: ADDRESS, port: PORT };
    const first = listener.connections();
    const pending = first.next();
    await connect(target, { context, udpPort });
    await pending;
    await first.return();
    const asked = listener.getRequest();
    const connecting = connect(target, { context, udpPort });
    await (await asked)!.accept();
    await connecting;
  }));

test.run();
