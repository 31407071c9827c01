/** Attacks on `verbena demo`, as a process: its HTTP server, WebSockets, signalling. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import * as assert from 'uvu/assert';
import { WebSocket } from 'ws';
import { NodeConnector } from '../../host/link/rtc/node.js';
import { Workspace, type Program } from '../support/processes.js';
import { Random } from '../simulation/random.js';
import type { Attack } from './attack.js';

const MIB = 2 ** 20;

interface Demo {
  readonly server: Program;
  readonly port: number;
}

/** `verbena demo` at `address`, ended when `work` has. */
async function withDemo(address: string, work: (demo: Demo) => Promise<number>): Promise<number> {
  let sent = 0;
  await Workspace.use(async (workspace) => {
    const server = workspace.start('demo', '--bind', address, '--port', 0);
    const [, port] = await server.printed('stdout', /open http:\S+:(\d+)\//);
    sent = await work({ server, port: Number(port) });
  });
  return sent;
}

/** Resident bytes of a process. */
function residentBytes({ pid }: Program): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))!;
  return Number(kib) * 1024;
}

/** The most that a process has within `millis`. */
async function highestBytes(server: Program, millis: number): Promise<number> {
  let highest = 0;
  for (let waited = 0; waited < millis; waited += 100) {
    highest = Math.max(highest, residentBytes(server));
    await sleep(100);
  }
  return highest;
}

/** Sends `text` on a connection of its own from `from`; what came back until the end or 2 s. */
async function exchange(
  to: { readonly host: string; readonly port: number },
  from: string,
  text: string,
): Promise<string> {
  const socket = connectTcp({ ...to, localAddress: from });
  let heard = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => (heard += chunk));
  socket.on('error', () => {});
  socket.write(text);
  await Promise.race([once(socket, 'close'), sleep(2000)]);
  socket.destroy();
  return heard;
}

const UPGRADE = [
  'Connection: Upgrade',
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
].join('\r\n');

function request(method: string, target: string, headers: readonly string[]): string {
  return `${[`${method} ${target} HTTP/1.1`, ...headers].join('\r\n')}\r\n\r\n`;
}

/** Does an honest client get the page from `from`? Rejects otherwise. */
async function visit(host: string, port: number, from: string): Promise<void> {
  const headers = [`Host: ${host}:${port}`, 'Connection: close'];
  const heard = await exchange({ host, port }, from, request('GET', '/', headers));
  assert.match(heard, /^HTTP\/1\.1 200 /, 'an honest client gets the page');
}

/** A WebSocket that is open, or was refused. */
async function openSocket(url: string, from: string): Promise<WebSocket | undefined> {
  const socket = new WebSocket(url, { localAddress: from });
  socket.on('error', () => {});
  return new Promise((resolve) => {
    socket.once('open', () => resolve(socket));
    socket.once('close', () => resolve(undefined));
  });
}

export const DEMO_ATTACKS: readonly Attack[] = [
  {
    name: 'the demo outlives request targets that are no URL',
    position: 'any host',
    unit: 'requests',
    run: () =>
      withDemo('127.1.20.1', async ({ port }) => {
        const host = '127.1.20.1';
        const targets = ['//', '//[', 'http://', 'http://[::', '/%', '*', '//a:99999/', '/\\\\['];
        for (const target of targets) {
          for (const [method, extra] of [
            ['GET', 'Connection: close'],
            ['POST', 'Content-Length: 0\r\nConnection: close'],
            ['GET', UPGRADE],
          ] as const) {
            await exchange(
              { host, port },
              '127.1.20.2',
              request(method, target, [`Host: ${host}:${port}`, extra]),
            );
          }
          await visit(host, port, '127.1.20.2');
        }
        return 3 * targets.length;
      }),
  },
  {
    name: 'the demo serves no request of a foreign page, nor one by a host name that DNS leads here',
    position: 'foreign page',
    unit: 'requests',
    run: () =>
      withDemo('127.1.20.3', async ({ port }) => {
        const host = '127.1.20.3';
        const own = `Host: ${host}:${port}`;
        const foreign = 'Origin: http://attacker.example';
        const rebound = `Host: attacker.example:${port}`;
        const reboundOrigin = `Origin: http://attacker.example:${port}`;
        const cases = [
          request('GET', '/', [rebound, 'Connection: close']),
          request('POST', '/relay', [own, foreign, 'Content-Length: 0', 'Connection: close']),
          request('POST', '/relay', [
            own,
            'Origin: null',
            'Content-Length: 0',
            'Connection: close',
          ]),
          request('POST', '/relay', [
            rebound,
            reboundOrigin,
            'Content-Length: 0',
            'Connection: close',
          ]),
          `${request('POST', '/signal', [own, foreign, 'Content-Length: 2', 'Connection: close'])}{}`,
          request('GET', '/packets', [own, foreign, UPGRADE]),
          request('GET', '/packets', [rebound, reboundOrigin, UPGRADE]),
          request('GET', '/echo', [own, foreign, UPGRADE]),
          request('GET', '/echo', [rebound, reboundOrigin, UPGRADE]),
        ];
        const accepted = [];
        for (const text of cases) {
          const heard = await exchange({ host, port }, '127.1.20.4', text);
          const [status] = heard.split('\r\n');
          if (!/^HTTP\/1\.1 (403|421) /.test(heard)) accepted.push(`${text} -> ${status}`);
        }
        assert.equal(accepted, []);
        const same = [own, `Origin: http://${host}:${port}`];
        const opened = await exchange(
          { host, port },
          '127.1.20.4',
          request('GET', '/echo', [...same, UPGRADE]),
        );
        assert.match(opened, /^HTTP\/1\.1 101 /);
        await visit(host, port, '127.1.20.4');
        return cases.length;
      }),
  },
  {
    name: '300 silent WebSockets cost the demo 64 MiB at most, and keep no other address out',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withDemo('127.1.20.5', async ({ server, port }) => {
        const host = '127.1.20.5';
        const before = residentBytes(server);
        const sockets = await Promise.all(
          Array.from({ length: 300 }, async (_, index) => {
            const socket = await openSocket(`ws://${host}:${port}/packets`, '127.1.20.6');
            // Above the endpoint's own address: it calls, again and again.
            const gid = `fdff:ffff::${(index + 1).toString(16)}`;
            if (index % 2) socket?.send(JSON.stringify({ verbena: 1, gid }));
            else for (let early = 0; early < 64; early++) socket?.send(Buffer.alloc(65536));
            // Its frames are never read.
            socket?.pause();
            return socket;
          }),
        );
        const cost = (await highestBytes(server, 5000)) - before;
        const honest = await openSocket(`ws://${host}:${port}/packets`, '127.1.20.7');
        assert.ok(honest, 'another address gets a WebSocket');
        await visit(host, port, '127.1.20.7');
        await visit(host, port, '127.1.20.6');
        for (const socket of [...sockets, honest]) socket?.terminate();
        assert.ok(cost < 64 * MIB, `${(cost / MIB).toFixed(0)} MiB`);
        return sockets.length;
      }),
  },
  {
    name: 'a peer that sends to the echo of the demo and never reads costs it 32 MiB at most',
    position: 'any host',
    unit: 'messages',
    run: () =>
      withDemo('127.1.20.8', async ({ server, port }) => {
        const host = '127.1.20.8';
        const socket = await openSocket(`ws://${host}:${port}/echo`, '127.1.20.9');
        assert.ok(socket);
        socket.pause();
        const before = residentBytes(server);
        let sent = 0;
        const message = Buffer.alloc(4096);
        let isOver = false;
        socket.on('close', () => (isOver = true));
        const flood = (async () => {
          while (!isOver) {
            if (socket.bufferedAmount > 4 * MIB) await sleep(1);
            else for (let burst = 0; burst < 256; burst++, sent++) socket.send(message, () => {});
            await new Promise((resolve) => setImmediate(resolve));
          }
        })();
        const cost = (await highestBytes(server, 8000)) - before;
        isOver = true;
        socket.terminate();
        await flood;
        await visit(host, port, '127.1.20.9');
        assert.ok(cost < 32 * MIB, `${(cost / MIB).toFixed(0)} MiB after ${sent} messages`);
        return sent;
      }),
  },
  {
    name: 'a page that sends frames and packets of chance over its WebSocket costs the demo nothing',
    position: 'peer',
    unit: 'messages',
    run: () =>
      withDemo('127.1.20.21', async ({ server, port }) => {
        const host = '127.1.20.21';
        const random = new Random(31);
        const before = residentBytes(server);
        let sent = 0;
        for (let round = 0; round < 24; round++) {
          const socket = await openSocket(`ws://${host}:${port}/packets`, '127.1.20.22');
          assert.ok(socket, `round ${round}: the demo takes no socket any more`);
          // With an address or without, then messages of the format of packets, or of none.
          const gid = `fd12::${round + 1}`;
          if (round % 3 !== 0) socket.send(JSON.stringify({ verbena: 1, gid }));
          for (let message = 0; message < 100; message++, sent++) {
            const length = random.below(random.pick([8, 64, 4200, 70_000]));
            const bytes = Buffer.from(Array.from({ length }, () => random.below(256)));
            if (length > 4 && random.chance(0.5)) bytes.writeUInt16BE((length - 2) & 0xffff, 0);
            if (random.chance(0.1)) socket.send(bytes.toString('latin1'), () => {});
            else socket.send(bytes, { fin: !random.chance(0.05) }, () => {});
          }
          await sleep(50);
          socket.terminate();
        }
        await visit(host, port, '127.1.20.23');
        const cost = (residentBytes(server) - before) / MIB;
        assert.ok(cost < 64, `${cost.toFixed(0)} MiB after ${sent} messages`);
        return sent;
      }),
  },
  {
    name: 'connections without a request do not keep the demo from other addresses, and end',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withDemo('127.1.20.10', async ({ port }) => {
        const host = '127.1.20.10';
        const sockets: Socket[] = [];
        let ended = 0;
        for (let index = 0; index < 600; index++) {
          const socket = connectTcp({ host, port, localAddress: '127.1.20.11' });
          socket.resume();
          socket.on('error', () => {}).on('close', () => ended++);
          socket.write('GET / HTTP/1.1\r\n');
          sockets.push(socket);
        }
        await sleep(500);
        await visit(host, port, '127.1.20.12');
        await sleep(15_000);
        for (const socket of sockets) socket.destroy();
        assert.is(ended, sockets.length, 'ended by the server within 15 s');
        return sockets.length;
      }),
  },
  {
    name: 'an address that a dead WebSocket holds goes to a newcomer that has it as well',
    position: 'any host',
    unit: 'connections',
    run: () =>
      withDemo('127.1.20.13', async ({ port }) => {
        const url = `ws://127.1.20.13:${port}/packets`;
        const hello = JSON.stringify({ verbena: 1, gid: 'fd12::1' });
        const squatter = await openSocket(url, '127.1.20.14');
        squatter!.send(hello);
        await sleep(500);
        // It answers no ping any more: its process is stopped, or its network gone.
        squatter!.pause();
        const honest = await openSocket(url, '127.1.20.15');
        honest!.send(hello);
        let isOver = false;
        honest!.on('close', () => (isOver = true));
        await sleep(8000);
        const wasOver = isOver;
        squatter!.terminate();
        honest!.terminate();
        assert.not(wasOver, 'the honest peer keeps its address');
        return 1;
      }),
  },
  {
    name: '300 offers send no STUN datagram to an address that is not their own, and few in all',
    position: 'any host',
    unit: 'requests',
    run: () =>
      withDemo('127.1.20.16', async ({ port }) => {
        const host = '127.1.20.16';
        const victim = createSocket('udp4');
        // An address of this machine that packets from any of its interfaces reach.
        const { address } = await outgoing();
        victim.bind(0, address);
        await once(victim, 'listening');
        let received = 0;
        victim.on('message', () => received++);
        const connector = new NodeConnector();
        const { description, channel } = await connector.offer();
        const candidate = (index: number): string =>
          `a=candidate:${index} 1 UDP ${2114977791 - index} ${address} ${victim.address().port} typ host`;
        const lines = description.sdp
          .split('\r\n')
          .filter((line) => line !== '' && !/candidate|^c=/.test(line));
        lines.splice(4, 0, `c=IN IP4 ${address}`);
        const sdp = [...lines, ...[1, 2, 3, 4].map(candidate)].join('\r\n') + '\r\n';
        const body = JSON.stringify({ type: 'offer', sdp });
        const answered = await Promise.all(
          Array.from({ length: 300 }, async (_, index) => {
            const changed = body.replace(/(a=ice-ufrag:)\S{4}/, `$1${1000 + index}`);
            const headers = [
              `Host: ${host}:${port}`,
              'Content-Type: application/json',
              `Content-Length: ${Buffer.byteLength(changed)}`,
              'Connection: close',
            ];
            const text = request('POST', index % 2 ? '/bare' : '/signal', headers) + changed;
            const heard = await exchange({ host, port }, '127.1.20.17', text);
            return heard.startsWith('HTTP/1.1 200 ');
          }),
        );
        await sleep(6000);
        victim.close();
        channel.close();
        const sessions = answered.filter(Boolean).length;
        assert.is(received, 0, `datagrams at the victim (${sessions} offers were answered)`);
        assert.ok(sessions <= 64, `${sessions} offers were answered`);
        await visit(host, port, '127.1.20.18');
        return answered.length;
      }),
  },
];

/** The address that packets of this machine leave from. */
async function outgoing(): Promise<{ address: string }> {
  const socket = createSocket('udp4');
  socket.connect(9, '192.0.2.1');
  await once(socket, 'connect');
  const { address } = socket.address();
  socket.close();
  return { address };
}
