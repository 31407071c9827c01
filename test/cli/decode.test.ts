/** `verbena decode` and `verbena devinfo`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { UdpLink, connect, openDevice, pcapFile, pcapLink, share } from '../../host/index.js';
import { vectors } from '../support/paths.js';
import { placeOfPath } from '../../host/pmem/place.js';
import { Workspace, cliPath } from '../support/processes.js';

const test = suite('cli/decode');
const capture = fileURLToPath(new URL('rxe/rc_write_multi.pcap', vectors));

test('a capture of Linux becomes one line per packet, with a verdict on each ICRC', () =>
  Workspace.use(async (space) => {
    const { code, stdout, stderr } = await space.run('decode', capture);
    assert.is(code, 0, stderr);
    const lines = stdout.trimEnd().split('\n');
    assert.ok(lines.length >= 4);
    assert.match(
      lines[0]!,
      /^ +\d+ 0\.000000 \S+:\d+ -> \S+:4791  RC RDMA WRITE First, .*\[ICRC ok/,
    );
    for (const line of lines) assert.match(line, /\[ICRC ok( \(by IP id\))?\]$/);
    assert.is(stderr, '');
    const two = await space.run('decode', '-n', 2, capture);
    assert.equal(two.stdout.trimEnd().split('\n'), lines.slice(0, 2));
  }));

test('--json has the fields of every packet', () =>
  Workspace.use(async (space) => {
    const { stdout } = await space.run('decode', '--json', capture);
    const packets = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { icrcVerdict: string; packet: { status: string } });
    for (const { icrcVerdict, packet } of packets) {
      assert.is(packet.status, 'OK');
      assert.ok(['exact', 'by IP id'].includes(icrcVerdict), icrcVerdict);
    }
  }));

test('what is no capture, or ends in the middle, is said in one line', () =>
  Workspace.use(async (space) => {
    const bytes = await readFile(capture);
    const cases: [name: string, bytes: Uint8Array, line: RegExp, packets: number][] = [
      ['empty', new Uint8Array(0), /is not a readable capture: .*24 bytes/, 0],
      ['foreign', Buffer.from('#!/bin/sh\necho no capture at all\n'), /magic number/, 0],
      ['short', bytes.subarray(0, bytes.length - 7), /is truncated: at byte/, 1],
      ['nothing', bytes.subarray(0, 24), /has no packet to UDP port 4791/, 0],
    ];
    for (const [name, content, line, packets] of cases) {
      await writeFile(space.path(name), content);
      const { code, stdout, stderr } = await space.run('decode', space.path(name));
      assert.is(code, 1, name);
      assert.match(stderr, /^verbena decode: [^\n]+\n$/);
      assert.match(stderr, line);
      assert.is(stdout.length > 0, packets > 0, name);
    }
    const missing = await space.run('decode', space.path('no'));
    assert.is(missing.code, 1);
    assert.match(missing.stderr, /no such file or directory \(ENOENT\)/);
    assert.is((await space.run('decode', space.directory)).code, 1);
    const elsewhere = await space.run('decode', capture, '--port', 9);
    assert.match(elsewhere.stderr, /another UDP port.*--port looks for another one/);
  }));

test('a capture named .pcapng has the sentences as comments, and decodes to the same lines', () =>
  Workspace.use(async (space) => {
    const [file, pcapng] = [await space.file('some.bin', 30_000), space.path('tour.pcapng')];
    assert.is((await space.run('tour', file, '--pcap', pcapng)).code, 0);
    const { code, stdout } = await space.run('decode', '--json', pcapng);
    assert.is(code, 0);
    const packets = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { comment: string });
    const plain = (await space.run('decode', pcapng)).stdout.trimEnd().split('\n');
    assert.is(plain.length, packets.length);
    packets.forEach(({ comment }, index) => {
      const [, sentence] = / -> \S+ {2}(.*)$/.exec(plain[index]!) ?? [];
      assert.is(comment, sentence!.replace('  [ICRC', ' [ICRC'));
    });
  }));

test('packets to a peer that has another port than 4791 are printed as well', () =>
  Workspace.use(async (space) => {
    const path = space.path('both.pcap');
    const server = await share('rdma://127.0.29.31:7471', { table: 64 });
    const link = pcapLink(new UdpLink({ address: '127.0.29.31', port: 0 }), pcapFile(path));
    const context = await openDevice({ link });
    const { port } = context.local;
    const remote = await connect(server.url, { context });
    await remote.memory['table']!.write(0, Uint8Array.of(1));
    await remote.close();
    await context.close();
    await server.close();
    const { code, stdout } = await space.run('decode', path);
    assert.is(code, 0);
    assert.match(stdout, new RegExp(` 127.0.29.31:${port} -> 127.0.29.31:4791 .*RDMA WRITE Only`));
    assert.match(stdout, new RegExp(` 127.0.29.31:4791 -> 127.0.29.31:${port} .*Acknowledge`));
    const frames = stdout
      .trimEnd()
      .split('\n')
      .map((line) => parseInt(line, 10));
    assert.equal(
      frames,
      frames.map((_, index) => index + 1),
    );
  }));

test('"decode -" reads a capture from standard input as it grows', () =>
  Workspace.use(async (space) => {
    const bytes = await readFile(capture);
    const whole = (await space.run('decode', capture)).stdout;
    const child = spawn(process.execPath, [cliPath, 'decode', '-'], { stdio: 'pipe' });
    let stdout = '';
    child.stdout.on('data', (text: Buffer) => (stdout += `${text}`));
    // All but the end of the last packet.
    child.stdin.write(bytes.subarray(0, bytes.length - 3));
    const lines = whole.trimEnd().split('\n').length;
    while (stdout.split('\n').length < lines) await once(child.stdout, 'data');
    child.stdin.end(bytes.subarray(bytes.length - 3));
    const [code] = (await once(child, 'close')) as [number];
    assert.is(code, 0);
    assert.is(stdout, whole);
    const nothing = await space.startProcess('sh', [
      '-c',
      `exec "$0" "$1" decode - </dev/null`,
      process.execPath,
      cliPath,
    ]).ended;
    assert.is(nothing.code, 1);
    assert.match(nothing.stderr, /^verbena decode: standard input is not a readable capture: /);
  }));

test('a reader that goes away after the first lines is no failure', () =>
  Workspace.use(async (space) => {
    // More than a pipe holds.
    const bytes = await readFile(capture);
    const many = Buffer.concat([bytes, ...Array<Buffer>(3000).fill(bytes.subarray(24))]);
    await writeFile(space.path('many'), many);
    const program = space.start('decode', space.path('many'));
    await program.printed('stdout', /\n/);
    program.closeStdout();
    const { code, stderr } = await program.ended;
    assert.is(stderr, '');
    assert.is(code, 0);
  }));

test('devinfo reports the durability of a directory’s storage, with the reason', () =>
  Workspace.use(async (space) => {
    for (const path of [space.directory, '/dev']) {
      const { durability, reason } = placeOfPath(path);
      const { stdout } = await space.run('devinfo', '--storage', path);
      assert.match(stdout, `storage    ${path}: ${durability}, ${reason}: `);
      const json = (await space.run('devinfo', '--storage', path, '--json')).stdout;
      const { storage } = JSON.parse(json) as { storage: unknown };
      assert.equal(storage, { path, durability, reason });
    }
    const { code, stderr } = await space.run('devinfo', '--storage', space.path('none'));
    assert.is(code, 1);
    assert.match(stderr, /^verbena devinfo: cannot read .*none: no such file or directory/);
  }));

test('devinfo says what a device offers', () =>
  Workspace.use(async (space) => {
    const { code, stdout } = await space.run('devinfo');
    assert.is(code, 0);
    assert.match(stdout, /^link {7}udp\S*, RoCEv2 at 127.0.0.1, .* as the kernel counts$/m);
    for (const word of ['127.0.0.1', 'maxQp', 'engine', process.version, 'koffi']) {
      assert.match(stdout, word);
    }
    const report = JSON.parse((await space.run('devinfo', '--json')).stdout) as {
      limits: { maxQp: number };
      addresses: { address: string; pathMtu: number }[];
      link: { localPath: boolean; integrity?: string };
    };
    assert.is(report.link.localPath, /^  local path: /m.test(stdout));
    assert.is(
      report.link.integrity,
      /^  integrity: .*this host/m.test(stdout) ? 'host' : undefined,
    );
    assert.ok(report.limits.maxQp > 0);
    assert.is(report.addresses.find(({ address }) => address === '127.0.0.1')?.pathMtu, 4096);
  }));

test.run();
