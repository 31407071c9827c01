import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { spawn } from 'node:child_process';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { Gid } from '../../../../host/link/endpoint.js';
import {
  AF_INET,
  IP_MTU_DISCOVER,
  PMTUDISC_PROBE,
  PosixError,
  SOL_IP,
  SO_REUSEADDR,
  SO_RCVBUF,
  SOL_SOCKET,
  loadPosix,
} from '../../../../host/link/posix.js';
import {
  FLOW_PORT_MIN,
  bindUdpSocket,
  type BoundSocket,
} from '../../../../host/link/udp/udp-socket.js';
import { root } from '../../../support/paths.js';
import { WITHOUT_KOFFI } from '../../../support/without-koffi.js';

const isLinux = process.platform === 'linux';
const loopback = Gid.parse('127.0.0.1');

let sockets: Socket[] = [];

test.after.each(() => {
  for (const socket of sockets) socket.close();
  sockets = [];
});

async function bound(address = '127.0.0.1', port = 0): Promise<BoundSocket> {
  const gid = Gid.parse(address);
  const create = (): Socket => createSocket(gid.isIpv4 ? 'udp4' : 'udp6');
  const made = await bindUdpSocket({ gid, zone: '', port, bufferBytes: 2 ** 17, create });
  sockets.push(made.socket);
  return made;
}

/** Says on a line what became of a device, in a process that has no koffi. */
const PROGRAM = `
  const { UdpLink } = await import('${new URL('build/host/link/udp/udp.js', root).href}');
  const ports = [];
  for (let i = 0; i < 20; i++) {
    const link = new UdpLink({ address: '127.0.0.1', port: 0 });
    const info = await link.open({ packet() {}, flush() {}, failed() {} });
    ports.push(info.local.port);
    if (i === 0) var { socketOptions } = info;
    await link.close();
  }
  console.log(JSON.stringify({ socketOptions, ports }));
`;

test('the info has the requested options of the socket and the granted ones', async () => {
  if (!isLinux) return;
  const { socketOptions, names } = await describe('127.0.0.1');
  const buffers = ['SO_RCVBUF', 'SO_SNDBUF'];
  const ecn = 'DSCP 0, ECT(0)';
  assert.equal(names, ['IP_MTU_DISCOVER = PROBE', `IP_TOS = ${ecn}`, ...buffers]);
  assert.ok(socketOptions.every(({ granted }) => granted));
  const ipv6 = await describe('::1');
  const wanted = ['IPV6_MTU_DISCOVER = PROBE', 'UDP_NO_CHECK6_RX = 1', `IPV6_TCLASS = ${ecn}`];
  assert.equal(ipv6.names, [...wanted, ...buffers]);
  assert.ok(ipv6.socketOptions.every(({ granted }) => granted));
});

async function describe(address: string) {
  const { options } = await bound(address);
  return { socketOptions: options, names: options.map(({ name }) => name) };
}

test('without koffi a device opens, and one line names the missing package once', async () => {
  if (!isLinux) return;
  const args = [...WITHOUT_KOFFI, '--input-type=module', '--eval', PROGRAM];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let [stdout, stderr] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  await once(child, 'close');
  const told = stderr.match(/VerbenaWarning: .*/g) ?? [];
  assert.is(told.length, 1, stderr);
  assert.match(told[0]!, /koffi is not installed: npm install koffi/);
  const { socketOptions, ports } = JSON.parse(stdout) as {
    socketOptions: { name: string; granted: boolean; reason?: string }[];
    ports: number[];
  };
  assert.is(socketOptions[0]!.name, 'IP_MTU_DISCOVER = PROBE');
  assert.not(socketOptions[0]!.granted);
  assert.match(socketOptions[0]!.reason!, 'npm install koffi');
  assert.ok(Math.max(...ports) < FLOW_PORT_MIN, ports.join());
});

test('a port that the system selects is not a source port of flows', async () => {
  for (let i = 0; i < 40; i++) {
    const { socket } = await bound();
    assert.ok(socket.address().port < FLOW_PORT_MIN, `${socket.address().port}`);
  }
  const { port } = (await bound('127.0.0.1', 0xc123)).socket.address();
  assert.is(port, 0xc123, 'a caller that requests one gets it');
});

test('no other socket can bind the port, whatever options it sets', async () => {
  const { port } = (await bound()).socket.address();
  for (const reuseAddr of [false, true]) {
    const other = createSocket({ type: 'udp4', reuseAddr });
    sockets.push(other);
    other.bind(port, '127.0.0.1');
    const [error] = (await once(other, 'error')) as [NodeJS.ErrnoException];
    assert.is(error.code, 'EADDRINUSE');
  }
  let code: string | undefined;
  await bound('127.0.0.1', port).catch((error: NodeJS.ErrnoException) => (code = error.code));
  assert.is(code, 'EADDRINUSE');
});

test('a socket whose options fail once it is bound is closed', async () => {
  const { posix } = await loadPosix();
  if (!posix) return assert.not(isLinux, 'koffi is a dependency of the tests');
  const setOption = posix.setOption.bind(posix);
  posix.setOption = (fd, level, option, value) => {
    if (option === SO_REUSEADDR) throw new Error('setsockopt says no');
    setOption(fd, level, option, value);
  };
  let made: Socket | undefined;
  const create = (): Socket => (made = createSocket('udp4'));
  try {
    await bindUdpSocket({ gid: loopback, zone: '', port: 0, bufferBytes: 2 ** 17, create });
    assert.unreachable();
  } catch (error) {
    assert.match((error as Error).message, 'setsockopt says no');
  } finally {
    posix.setOption = setOption;
  }
  assert.throws(() => made!.address(), /not running/i);
});

test('system calls have effect, and say no with the name of the errno', async () => {
  const { posix } = await loadPosix();
  if (!posix) return assert.not(isLinux, 'koffi is a dependency of the tests');
  const fd = posix.datagramSocket(AF_INET);
  try {
    posix.setOption(fd, SOL_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE);
    assert.is(posix.getOption(fd, SOL_IP, IP_MTU_DISCOVER), PMTUDISC_PROBE);
    posix.setOption(fd, SOL_SOCKET, SO_RCVBUF, 65536);
    assert.is(posix.getOption(fd, SOL_SOCKET, SO_RCVBUF), 131072);
    posix.bind(fd, loopback, 0, '');
    assert.ok(posix.localPort(fd) > 0);
    const named = (code: string) => (error: Error) =>
      error instanceof PosixError && error.code === code;
    assert.throws(() => posix.bind(fd, loopback, 0, ''), named('EINVAL'));
    assert.throws(() => posix.setOption(fd, 99, 99, 1), named('ENOPROTOOPT'));
  } finally {
    posix.close(fd);
  }
  assert.throws(() => posix.close(fd), /close EBADF/);
});

test.run();
