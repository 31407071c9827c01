/** `--psk-file` of servers and their clients, as real processes: tags in packets, refusals. */
import { chmod, rm, writeFile } from 'node:fs/promises';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { UdpLink, connectNvme, createEp, openDevice, PortSpace } from '../../host/index.js';
import { PMEM_SERVICE } from '../../host/cli/file-transfer/pmem-records.js';
import { Workspace, freePort, type Ended } from '../support/processes.js';
import { keyFile, packetsOf, refused } from '../support/psk.js';
import { longOnly, sample } from '../support/sample.js';
import { checkDenied, checkNoTags, checkTags } from '../support/tags.js';

const test = suite('cli/psk');
const longTest = longOnly(test);
/** Of this file alone. */
const SERVER = '127.0.119.1';
const CLIENT = '127.0.119.2';
const KEY = 'a pre-shared key of enough letters';
const OTHER = 'another pre-shared key of letters';
const COMMANDS = [
  ...['serve', 'put', 'rping', 'pingpong', 'perf'],
  ...['rds-ping', 'rds-stress', 'nvme-target'],
].slice(0, sample(3, 8));
const TEXT = 'a secret text for tests of encryption';

test('the file must be private, and have keys of 16 bytes or more; encryption needs a key', () =>
  Workspace.use(async (space) => {
    for (const command of [...COMMANDS.map((name) => [name]), ['rpma', 'bench']]) {
      const { stdout } = await space.run(...command, '--help');
      assert.match(stdout, /--psk-file <file> +authenticate: pre-shared keys/, command.join(' '));
      assert.match(stdout, /--encrypt /, command.join(' '));
    }
    const path = await keyFile(space, 'keys', KEY);
    const file = await space.file('file', 10);
    const fails = async (pattern: RegExp, ...words: string[]): Promise<void> => {
      const { code, stderr } = await space.run('put', file, SERVER, ...words);
      assert.ok(code === 1 || code === 2, stderr);
      assert.match(stderr, pattern);
      assert.not.match(stderr, new RegExp(`${KEY}|too short`));
    };
    const words = ['--psk-file', path];
    await chmod(path, 0o640);
    await fails(/other users may read .* \(mode 640\): chmod 600 it/, ...words);
    await chmod(path, 0o600);
    await fails(
      /'--token <key>' cannot be used with option '--psk-file <file>'/,
      ...words,
      '--token',
      KEY,
    );
    await fails(/--encrypt: requires a key/, '--encrypt');
    await writeFile(path, `${KEY}\nis too short\n`);
    await fails(/line 2: a key has 16 to 1024 bytes, not 12; make a key by openssl/, ...words);
    await writeFile(path, `${KEY}\u00e9\n`);
    await fails(/line 1: must be printable ASCII/, ...words);
    await writeFile(path, '\n');
    await fails(/must have at least one key/, ...words);
    await rm(path);
    await fails(/cannot read the key in /, ...words);
  }));

for (const encrypt of [false, true]) {
  test(`serve and put: packets are ${encrypt ? 'encrypted' : 'tagged'}`, () =>
    Workspace.use(async (space) => {
      // The new key and the old one; a client of either is served.
      const both = await keyFile(space, 'both', OTHER, KEY);
      const own = await keyFile(space, 'own', KEY);
      const more = encrypt ? ['--encrypt'] : [];
      const words = ['--bind', SERVER, '--psk-file', both, '--pcap', space.path('serve.pcap')];
      const { address, server } = await space.serve(space.directory, ...words, ...more);
      const file = space.path('sent');
      await writeFile(file, TEXT.repeat(1000));
      const pcap = space.path('put.pcap');
      const at = ['--bind', CLIENT, '--pcap', pcap];
      const done = await space.run('put', file, address, ...at, '--psk-file', own);
      assert.is(done.code, 0, done.stderr);
      const packets = packetsOf(pcap);
      checkTags(packets);
      const readable = packets.filter((bytes) => Buffer.from(bytes).includes(TEXT));
      assert.is(readable.length > 0, !encrypt);
      server.kill('SIGTERM');
      await server.ended;
    }));
}

test('serve and put: another key, or one side without, is refused; a token is a key, too', () =>
  Workspace.use(async (space) => {
    const [own, other] = [await keyFile(space, 'own', KEY), await keyFile(space, 'other', OTHER)];
    const file = await space.file('sent', 5000);
    const directory = space.directory;
    const { address } = await space.serve(directory, '--bind', SERVER, '--psk-file', own);
    const put = (to: string, ...words: string[]): Promise<Ended> =>
      space.run('put', file, to, '--bind', CLIENT, ...words);
    refused(await put(address), /wants a pre-shared key: use --psk-file or --token/);
    refused(
      await put(address, '--psk-file', other),
      /does not have the first key of --psk-file or --token: use a key of both/,
    );
    const pcap = space.path('put.pcap');
    const done = await put(address, '--token', KEY, '--pcap', pcap);
    assert.is(done.code, 0, done.stderr);
    checkTags(packetsOf(pcap));
    const { address: open } = await space.serve(directory, '--bind', SERVER);
    refused(
      await put(open, '--psk-file', own),
      /has no key: start it with --psk-file or --token, or leave it out/,
    );
    assert.is((await put(open, '--pcap', space.path('plain.pcap'))).code, 0);
    checkNoTags(packetsOf(space.path('plain.pcap')));
  }));

longTest('serve --pmem and put --pmem: tagged with a key or a token, refused otherwise', () =>
  Workspace.use(async (space) => {
    const [own, other] = [await keyFile(space, 'own', KEY), await keyFile(space, 'other', OTHER)];
    const file = await space.file('sent', 5000);
    const store = ['--pmem', space.path('store'), '--bind', SERVER, '--port', 0];
    const server = space.start('serve', ...store, '--psk-file', own);
    const [, address] = await server.printed('stdout', /serving .* on (\S+:\d+):/);
    const put = (...words: string[]): Promise<Ended> =>
      space.run('put', file, address!, '--pmem', '--bind', CLIENT, ...words);
    refused(await put(), /wants a pre-shared key: use --psk-file/);
    refused(await put('--psk-file', other), /does not have the first key of --psk-file/);
    for (const words of [
      ['--psk-file', own],
      ['--token', KEY, '--encrypt'],
    ]) {
      const pcap = space.path('put.pcap');
      const done = await put(...words, '--pcap', pcap);
      assert.is(done.code, 0, done.stderr);
      checkTags(packetsOf(pcap));
    }
    server.kill('SIGTERM');
    await server.ended;
    const open = space.start('serve', ...store);
    const [, without] = await open.printed('stdout', /serving .* on (\S+:\d+):/);
    const words = ['--pmem', '--bind', CLIENT, '--psk-file', own];
    refused(await space.run('put', file, without!, ...words), /has no key: start it with/);
  }),
);

longTest('serve --pmem: a client that stays half open delays others by little', () =>
  Workspace.use(async (space) => {
    const store = ['--pmem', space.path('store'), '--bind', SERVER, '--port', 0];
    const server = space.start('serve', ...store);
    const [, address] = await server.printed('stdout', /serving .* on (\S+:\d+):/);
    const udpPort = Number(address!.split(':')[1]);
    const link = new UdpLink({ address: '127.0.119.3', port: 0 });
    const send = link.send.bind(link);
    let isSilent = false;
    link.send = (batch) => {
      if (!isSilent) send(batch);
    };
    const silent = await openDevice({ link });
    try {
      const dstAddr = { address: SERVER, port: PMEM_SERVICE, udpPort };
      const info = { flags: 0, portSpace: PortSpace.TCP, dstAddr };
      for (let count = 0; count < 3; count++) {
        const id = await createEp(silent, info, undefined, {});
        id.connect();
      }
      isSilent = true;
      const file = await space.file('sent', 5000);
      const began = performance.now();
      const done = await space.run('put', file, address!, '--pmem', '--bind', CLIENT);
      assert.is(done.code, 0, done.stderr);
      // One turn of the silent source, and what a process takes to start.
      assert.ok(performance.now() - began < 9000, `${performance.now() - began} ms`);
    } finally {
      await silent.close();
    }
  }),
);

test('nvme-target: a host with the key is served, one without is refused', () =>
  Workspace.use(async (space) => {
    const own = await keyFile(space, 'own', KEY);
    const udpPort = await freePort(SERVER);
    const place = ['--bind', SERVER, '--port', 0, '--udp-port', udpPort, '--json'];
    const server = space.start(
      'nvme-target',
      '--ram',
      '1M',
      ...place,
      '--psk-file',
      own,
      '--pcap',
      space.path('n.pcap'),
    );
    const [line] = await server.printed('stdout', /\{.*\}\n/);
    const { nqn, port } = JSON.parse(line) as { nqn: string; port: number };
    const context = await openDevice({ address: CLIENT, port: 0, memoryBytes: 2 ** 28 });
    try {
      const where = { nqn, context, udpPort };
      const auth = { psk: Buffer.from(KEY) };
      const volume = await connectNvme(`${SERVER}:${port}`, { ...where, auth });
      const memory = context.alloc(4096);
      await volume.write(0, memory);
      await volume.close();
      await checkDenied(connectNvme(`${SERVER}:${port}`, where), /set auth: \{ psk \}/);
    } finally {
      await context.close();
    }
    server.kill('SIGTERM');
    await server.ended;
    checkTags(packetsOf(space.path('n.pcap')));
  }));

longTest('rpma bench: client and server have the key', () =>
  Workspace.use(async (space) => {
    const own = await keyFile(space, 'own', KEY);
    const words = ['--sizes', '4k', '--depths', '1', '--seconds', '0.1', '--bind', SERVER];
    const place = ['--dir', space.directory, '--psk-file', own, '--encrypt'];
    const { code, stderr } = await space.run('rpma', 'bench', ...words, ...place);
    assert.is(code, 0, stderr);
    const wrong = await space.run('rpma', 'bench', ...words, '--dir', space.directory, '--encrypt');
    assert.match(wrong.stderr, /--encrypt: requires a key: --psk-file/);
  }),
);

test.run();
