/** The demo's server: what a request gets that is not that of its page. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { WebSocket } from 'ws';
import { DemoServer } from '../../../host/demo/server.js';
import type { WebSocketLink } from '../../../host/link/channel/websocket.js';
import { contentSecurityPolicy } from '../../../host/demo/page-headers.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';
import { printed } from '../../support/hook.js';
import { eventually } from '../../support/receiver.js';

const test = suite<{ server: DemoServer }>('demo/server');

test.before(
  printed(async (world) => {
    world.server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
  }),
);
test.after(async ({ server }) => {
  await server.close();
  await releaseDataChannels();
});

test('the page may load what this server has and nothing else, and no page may frame it', async ({
  server,
}) => {
  const { headers } = await fetch(server.url);
  const policy = headers.get('content-security-policy')!;
  const { host } = new URL(server.url);
  assert.is(policy, contentSecurityPolicy(host));
  for (const part of ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"]) {
    assert.ok(policy.includes(part), part);
  }
  assert.not.match(policy, /unsafe-inline|'unsafe-eval'|\*/);
  assert.is(headers.get('x-content-type-options'), 'nosniff');
  assert.is(headers.get('referrer-policy'), 'no-referrer');
  assert.is(headers.get('cross-origin-resource-policy'), 'same-origin');
  const worker = await fetch(new URL('worker.js', server.url));
  assert.is(worker.headers.get('content-security-policy'), policy, 'a Worker has its own');
});

test('no request target ends it, and a foreign page gets nothing', async ({ server }) => {
  const { port, host } = new URL(server.url);
  const ask = (target: string, ...headers: string[]): Promise<string> =>
    new Promise((resolve) => {
      const socket = connect(Number(port), '127.0.0.1');
      let heard = '';
      socket.on('data', (data) => (heard += data)).on('error', () => {});
      socket.on('close', () => resolve(heard.slice(9, 12)));
      socket.write(
        `${[`GET ${target} HTTP/1.1`, 'Connection: close', ...headers].join('\r\n')}\r\n\r\n`,
      );
    });
  const own = `Host: ${host}`;
  for (const target of ['//', '//[', 'http://[', '/%']) assert.is(await ask(target, own), '404');
  assert.is(await ask('/', own), '200');
  assert.is(await ask('/', 'Host: attacker.example'), '421');
  assert.is(await ask('/', own, 'Origin: http://attacker.example'), '403');
  const offer = await fetch(new URL('signal', server.url), {
    method: 'POST',
    headers: { origin: 'http://attacker.example' },
    body: '{}',
  });
  assert.is(offer.status, 403);
});

test('the echo stops reading from a peer that does not read', async ({ server }) => {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}echo`);
  await new Promise((resolve) => socket.once('open', resolve));
  let back = 0;
  socket.on('message', () => back++);
  socket.send('once');
  while (back === 0) await new Promise((resolve) => setTimeout(resolve, 10));
  socket.pause();
  const before = process.memoryUsage().rss;
  // Bytes that the echo does not read stay buffered, in this process as well: so send only while
  // they drain.
  const message = Buffer.alloc(4096);
  let sent = 0;
  let idle = 0;
  while (idle < 50 && sent < 64 * 256) {
    if (socket.bufferedAmount > 2 ** 20) idle++;
    else for (let count = 0; count < 64; count++, sent++) socket.send(message);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.ok(sent < 64 * 256, `${sent} messages were read: nothing holds them back`);
  assert.ok(process.memoryUsage().rss - before < 64 * 2 ** 20);
  socket.resume();
  while (back < sent + 1) await new Promise((resolve) => setTimeout(resolve, 10));
  socket.terminate();
});

test('a server with WebSockets, and with connections without a request, ends at once', async () => {
  const server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
  const { port, host } = new URL(server.url);
  const silent = connect(Number(port), '127.0.0.1');
  const begun = connect(Number(port), '127.0.0.1', () => begun.write('GET / HTTP/1.1\r\nHost: '));
  const sockets = ['packets', 'echo'].map((path) => new WebSocket(`ws://${host}/${path}`));
  const isOpen = ({ readyState }: WebSocket): boolean => readyState === WebSocket.OPEN;
  await eventually(() => sockets.every(isOpen) && !silent.pending && !begun.pending);
  const start = performance.now();
  const ended = [silent, begun, ...sockets].map((each) => once(each, 'close'));
  await server.close();
  await Promise.all(ended);
  assert.ok(performance.now() - start < 2000, `${performance.now() - start} ms`);
});

test('a server whose endpoint refuses to close ends all the same, and says so', async () => {
  const server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
  const { endpoint, socketEndpoint } = server;
  const close = endpoint!.close.bind(endpoint);
  endpoint!.close = () => Promise.reject(new Error('busy'));
  const error = await server.close().catch((reason: unknown) => reason);
  assert.is((error as Error).message, 'busy');
  assert.not((socketEndpoint!.link as WebSocketLink).isOpen);
  const again = await fetch(server.url).catch(() => 'refused');
  assert.is(again, 'refused');
  await close();
});

test.run();
