/** The access file, interface requests, and what the masks of the configuration let through. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, openDevice, rds, type Context } from '../../../host/index.js';
import { AccessList, ownIdentity } from '../../../host/rds/access.js';
import { RdsNodes, address, codeOf } from '../../support/rds-nodes.js';

const { AF_INET_OFFLOAD, IoctlRequest, SOCK_DGRAM } = rds;
const PORT = 4000;
const SECOND = 1_000_000;

const numberOf = (kind: string, name: string): number => {
  if (name === 'alice') return kind === 'user' ? 1000 : 2000;
  throw Object.assign(new Error(name), { code: 'EACCES' });
};

test('users and groups, by name and by number; everything else is refused', () => {
  const list = new AccessList('# who\nuser alice # her\n\n  group 77\nuser 5\n', numberOf);
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

test('a line that nobody understands makes the whole file refuse', () => {
  for (const text of [
    'user',
    'user bob',
    'group nobody',
    'alice',
    'user alice extra',
    'users 1',
    'user -1',
    'user 4294967296',
    'user 1e3',
    '\u0000',
    'USER 1',
  ]) {
    assert.is(
      codeOf(() => new AccessList(`user 1\n${text}\n`, numberOf)),
      'EACCES',
      text,
    );
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

test('no file: everybody; with one, who is in it; one that is wrong, nobody', () =>
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
  }));

test('a file that cannot be read lets nobody make a node', () =>
  withDevice(async (context, folder) => {
    // A folder is no file.
    assert.is(
      codeOf(() => rds.RdsNode.of(context, { accessFile: folder })),
      'EACCES',
    );
  }));

test('a peer whose user may not be here gets nothing through, and others do', () => {
  const nodes = new RdsNodes();
  const admits = (who: { uid: number } | undefined): boolean => who?.uid === 7;
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
  // What it took it must say that it lost, and then it says so at once.
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
    assert.is(
      codeOf(() => socket.ioctl(IoctlRequest.SIOCGIFADDR, 'eth-none')),
      'EADDRNOTAVAIL',
    );
    assert.is(
      codeOf(() => socket.ioctl(0x1234, name)),
      'EINVAL',
    );
    assert.is(socket.ioctl(IoctlRequest.FIONREAD), 0);
    assert.is(socket.ioctl(IoctlRequest.SIOCOUTQ), 0);
  }));

test('RdsDbgLvl lets through what it names, RdsTraceLvl times calls', () =>
  withDevice(async (context) => {
    const lines: string[] = [];
    const node = rds.RdsNode.of(context, { log: (line) => lines.push(line) });
    const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
    socket.bind({ port: PORT });
    const name = { ...socket.getsockname()! };
    const say = (): void => {
      lines.length = 0;
      socket.sendmsg({ name, iov: [new Uint8Array(3)] });
      socket.recvmsg([new Uint8Array(3)]);
    };
    say();
    assert.equal(lines, []);
    node.writeConfig('RdsTraceLvl=0x1000');
    say();
    assert.is(lines.length, 1);
    assert.match(lines[0]!, /^rds [\d.]+ TRACE: sendmsg [\d.]+ us$/);
    node.writeConfig('RdsTraceLvl=0x80000000');
    say();
    assert.is(lines.length, 2);
    node.writeConfig('RdsTraceLvl=0');
    node.writeConfig('RdsDbgLvl=0x80');
    lines.length = 0;
    socket.close();
    assert.is(lines.length, 1);
    assert.match(lines[0]!, /ULP: port 4000 is free$/);
  }));

test.run();
