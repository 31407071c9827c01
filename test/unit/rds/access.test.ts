/** The access file, interface requests, and what the masks of the configuration let through. */
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, openDevice, rds, type Context } from '../../../host/index.js';
import { AccessList, ownIdentity } from '../../../host/rds/access.js';
import { interfaceAnswer } from '../../../host/rds/socket/ioctl.js';
import { RdsNodes, address } from '../../support/rds-nodes.js';
import { codeOf, expectCode } from '../../support/refusal.js';

const { AF_INET_OFFLOAD, DebugLevel, IoctlRequest, SOCK_DGRAM, TraceLevel } = rds;
const PORT = 4000;
const SECOND = 1_000_000;

const numberOf = (kind: string, name: string): number => {
  if (name === 'alice') return kind === 'user' ? 1000 : 2000;
  throw Object.assign(new Error(name), { code: 'EACCES' });
};

test('users and groups, by name and by number; everything else is refused', () => {
  const list = new AccessList('# users\nuser alice # her\n\n  group 77\nuser 5\n', numberOf);
  const rows: readonly [number, readonly number[], boolean][] = [
    [1000, [], true],
    [5, [], true],
    [6, [77], true],
    [6, [1, 77], true],
    [77, [], false],
    [2000, [2000], false],
    [0, [0], false],
  ];
  for (const [uid, gids, isAllowed] of rows) {
    assert.is(list.allows({ uid, gids }), isAllowed, `${uid} of ${gids}`);
  }
  assert.not(list.allows(undefined));
  assert.not(new AccessList('', numberOf).allows({ uid: 0, gids: [0] }));
});

test('a line that is not understood makes the whole file refuse', () => {
  for (const text of [
    'user',
    'user bob',
    'group missing',
    'alice',
    'user alice extra',
    'users 1',
    'user -1',
    'user 4294967296',
    'user 1e3',
    '\u0000',
    'USER 1',
  ]) {
    expectCode(() => new AccessList(`user 1\n${text}\n`, numberOf), 'EACCES', text);
  }
});

async function withDevice(run: (context: Context, folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'rds-access-'));
  const context = await openDevice({ link: createLoopbackPair().a });
  try {
    await run(context, folder);
  } finally {
    await context.close();
    rmSync(folder, { recursive: true });
  }
}

test('no file admits all users; a file admits those in it; a wrong one admits none', () =>
  withDevice(async (context, folder) => {
    const accessFile = join(folder, 'access');
    rds.RdsNode.of(context, { accessFile });
    const open = (): string =>
      codeOf(() => rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context).close());
    assert.is(open(), 'OK');
    const identity = ownIdentity();
    if (identity) {
      writeFileSync(accessFile, `user ${identity.uid}\n`);
      assert.is(open(), 'OK');
      writeFileSync(accessFile, `group ${identity.gids[0]}\n`);
      assert.is(open(), 'OK');
    }
    for (const text of ['', 'user 4294967295\n', 'nonsense\n']) {
      writeFileSync(accessFile, text);
      assert.is(open(), 'EACCES', text);
    }
    rmSync(accessFile);
    assert.is(open(), 'OK');
    symlinkSync(join(folder, 'nothing'), accessFile);
    assert.is(open(), 'EACCES');
  }));

test('a file that cannot be read lets no process create a node', () =>
  withDevice(async (context, folder) => {
    // A folder is no file.
    expectCode(() => rds.RdsNode.of(context, { accessFile: folder }), 'EACCES');
  }));

test('a peer whose user may not be here gets nothing through, and others do', () => {
  const nodes = new RdsNodes();
  const admits = (user: { uid: number } | undefined): boolean => user?.uid === 7;
  const guarded = nodes.start(0, { admits, identity: { uid: 1, gids: [] } });
  const friend = nodes.start(1, { identity: { uid: 7, gids: [9] } });
  const stranger = nodes.start(2, { identity: { uid: 8, gids: [7] } });
  const nameless = nodes.start(3);
  const [there, ...senders] = [guarded, friend, stranger, nameless].map((node) =>
    nodes.bind(node, PORT),
  );
  const codes = senders.map((socket, index) => socket.sendSoon(address(0), PORT, index + 1));
  for (const size of [10, 5000]) senders[0]!.sendSoon(address(0), PORT, 4, size);
  nodes.run(30 * SECOND);
  assert.equal(there!.read, [1, 4, 4]);
  assert.is(codes[0], 'OK');
  // A message that it accepted must be reported as lost, which it does at once.
  for (const socket of senders.slice(1)) {
    assert.is(socket.port.sending, 0);
    assert.not.equal(socket.sendSoon(address(0), PORT, 5), 'OK');
  }
});

test('interface requests know what carries RDP, and nothing else', () =>
  withDevice(async (context) => {
    const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    const list = socket.ioctl(IoctlRequest.SIOCGIFCONF) as readonly rds.InterfaceRequest[];
    assert.equal(
      list.map(({ address: own }) => own),
      [`${context.local.gid}`],
    );
    const [{ name, mtu }] = list as [rds.InterfaceRequest];
    assert.is(socket.ioctl(IoctlRequest.SIOCGIFADDR, name), `${context.local.gid}`);
    assert.is(socket.ioctl(IoctlRequest.SIOCGIFMTU, name), mtu);
    assert.is((socket.ioctl(IoctlRequest.SIOCGIFFLAGS, name) as number) & 1, 1);
    expectCode(() => socket.ioctl(IoctlRequest.SIOCGIFADDR, 'eth-none'), 'EADDRNOTAVAIL');
    for (const one of [name, undefined]) {
      expectCode(() => socket.ioctl(0x1234, one), 'EINVAL');
    }
    assert.is(socket.ioctl(IoctlRequest.FIONREAD), 0);
    assert.is(socket.ioctl(IoctlRequest.SIOCOUTQ), 0);
  }));

test('of two interfaces the name says which', () => {
  const [eth, lo] = [
    { name: 'eth0', address: '10.0.0.1', netmask: '255.255.0.0', mtu: 1500, flags: 0x41 },
    { name: 'lo', address: '127.0.0.1', netmask: '255.0.0.0', mtu: 65536, flags: 0x49 },
  ];
  for (const one of [eth, lo]) {
    const ask = (request: number): unknown => interfaceAnswer(request, one.name, [eth, lo]);
    assert.equal(
      [
        ask(IoctlRequest.SIOCGIFADDR),
        ask(IoctlRequest.SIOCGIFNETMASK),
        ask(IoctlRequest.SIOCGIFMTU),
        ask(IoctlRequest.SIOCGIFFLAGS),
      ],
      [one.address, one.netmask, one.mtu, one.flags],
    );
  }
  assert.equal(interfaceAnswer(IoctlRequest.SIOCGIFCONF, undefined, [eth, lo]), [eth, lo]);
});

/** The levels of what two nodes that speak to each other say. */
async function levelsOf(RdsDbgLvl: number): Promise<Set<string>> {
  const links = createLoopbackPair();
  const [here, there] = [await openDevice({ link: links.a }), await openDevice({ link: links.b })];
  const lines: string[] = [];
  rds.RdsNode.of(here, { parameters: { RdsDbgLvl }, log: (line) => lines.push(line) });
  const [one, other] = [here, there].map((context) => {
    const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: PORT });
    return socket;
  }) as [rds.RdsSocket, rds.RdsSocket];
  await one.send(other.getsockname()!, new Uint8Array(3));
  await other.recv();
  await other.send(one.getsockname()!, new Uint8Array(3));
  await one.recv();
  await there.close();
  await here.close();
  return new Set(lines.map((line) => /^rds [\d.]+ (\w+): ./.exec(line)?.[1] ?? line));
}

test('RdsDbgLvl lets through what it names, and nothing else', async () => {
  const quiet = ['SERIOUS_ERRORS', 'ERRORS', 'WARNINGS'];
  for (const [name, level] of Object.entries(DebugLevel)) {
    const expected = quiet.includes(name) ? [] : [name];
    assert.equal([...(await levelsOf(level))], expected);
  }
  assert.equal(await levelsOf(0), new Set());
});

test('a failure is logged as an error if data are lost, else as a warning', () => {
  const lines: string[] = [];
  const nodes = new RdsNodes();
  const here = nodes.bind(nodes.start(0, { log: (line) => lines.push(line) }), PORT);
  nodes.bind(nodes.start(1), PORT);
  here.sendSoon(address(1), PORT, 1);
  nodes.run(SECOND);
  nodes.network.cut(0, 1);
  here.send(address(1), PORT, 2);
  nodes.run(30 * SECOND);
  here.send(address(1), PORT, 2);
  here.send(address(1), PORT, 3);
  nodes.run(30 * SECOND);
  assert.is(lines.length, 2);
  assert.match(lines[0]!, / ERRORS: .*1 messages are lost$/);
  assert.match(lines[1]!, / WARNINGS: .*0 messages are lost$/);
});

test('RdsTraceLvl says how long calls of each kind take', () =>
  withDevice(async (context) => {
    const lines: string[] = [];
    const node = rds.RdsNode.of(context, { log: (line) => lines.push(line) });
    const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: PORT });
    const name = { ...socket.getsockname()! };
    const calls = async (): Promise<string[]> => {
      lines.length = 0;
      socket.sendmsg({ name, iov: [new Uint8Array(3)] });
      await socket.poll(rds.PollEvent.IN);
      socket.recvmsg([new Uint8Array(3)]);
      socket.ioctl(IoctlRequest.FIONREAD);
      return lines.map((line) => /^rds [\d.]+ TRACE: (\w+) [\d.]+ us$/.exec(line)?.[1] ?? line);
    };
    assert.equal(await calls(), []);
    for (const [level, expected] of [
      [TraceLevel.SENDS, ['sendmsg']],
      [TraceLevel.RECVS, ['recvmsg']],
      [TraceLevel.POLL, ['poll']],
      [TraceLevel.CTRL, ['ioctl']],
      [TraceLevel.SENDS | TraceLevel.CTRL, ['sendmsg', 'ioctl']],
      [TraceLevel.ALL, ['sendmsg', 'poll', 'recvmsg', 'ioctl']],
    ] as const) {
      node.writeConfig(`RdsTraceLvl=${level}`);
      assert.equal(await calls(), expected);
    }
  }));

test.run();
