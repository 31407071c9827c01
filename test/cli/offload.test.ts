/**
 * `node --import verbena/offload`: two unmodified npm packages run over RDP. Where every process
 * loses 5 % of its datagrams, UDP loses answers, and RDP does not.
 */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import dgram from '../../host/dgram/index.js';
import { root } from '../support/paths.js';
import { Workspace, type Program } from '../support/processes.js';

const test = suite('cli/offload');
const COUNT = 40;
const LOSS = 'loss=5,seed=4';
/** A busy machine is slow to answer, and has it nonetheless. */
const PATIENT = 'callbackMillis=100000,heartbeatMillis=100000';
const offload = fileURLToPath(new URL('build/package/offload.js', root));
const program = (name: string): string =>
  fileURLToPath(new URL(`test/support/programs/${name}`, root));

/** Runs a program in a process of its own; `settings`: without it nothing is offloaded. */
function start(
  workspace: Workspace,
  words: readonly (string | number)[],
  settings: string | undefined,
): Program {
  const env = settings === undefined ? [] : [`VERBENA_DGRAM=${settings}`, 'NODE_DEBUG=verbena'];
  const preload = settings === undefined ? [] : ['--import', offload];
  const [name, ...others] = words.map(String) as [string, ...string[]];
  return workspace.startProcess('env', [
    ...env,
    process.execPath,
    ...preload,
    program(name),
    ...others,
  ]);
}

/** Answers that a client received, and the path that each side reports. */
async function answers(
  kind: 'coap' | 'dns',
  address: string,
  settings: { readonly client?: string; readonly server?: string },
): Promise<{ readonly count: number; readonly client: string }> {
  const ending = kind === 'coap' ? 'cjs' : 'mjs';
  let result = { count: -1, client: '' };
  await Workspace.use(async (workspace) => {
    const server = start(workspace, [`${kind}-server.${ending}`, address, 5300], settings.server);
    await server.printed('stdout', /ready/, 60_000);
    const words = [`${kind}-client.${ending}`, address, 5300, COUNT];
    const ended = await start(workspace, words, settings.client).ended;
    assert.is(ended.code, 0, ended.stderr);
    const found = new RegExp(`^(\\d+) of ${COUNT}\n$`).exec(ended.stdout);
    assert.ok(found, ended.stdout);
    result = { count: Number(found[1]), client: ended.stderr };
  });
  return result;
}

for (const [kind, address] of [
  ['coap', '127.0.77.31'],
  ['dns', '127.0.77.32'],
] as const) {
  test(`${kind}: every answer comes by RDP, with 5 % loss below`, async () => {
    const settings = `${PATIENT},${LOSS}`;
    const { count, client } = await answers(kind, address, { client: settings, server: settings });
    assert.is(count, COUNT, client);
    const [, sent, received] = /by RDP: (\d+) sent, (\d+) received/.exec(client) ?? [];
    assert.ok(Number(sent) > COUNT && Number(received) > COUNT, client);
    assert.match(client, /dropped: 0/);
  });

  test(`${kind}: plain UDP loses some of them in the same way`, async () => {
    const settings = `rdp=off,${LOSS}`;
    const { count } = await answers(kind, address, { client: settings, server: settings });
    assert.ok(count < COUNT, `${count}`);
    assert.ok(count > COUNT / 2, `${count}`);
  });
}

test('a server without it is spoken to by UDP', async () => {
  const { count, client } = await answers('dns', '127.0.77.33', { client: PATIENT });
  assert.is(count, COUNT);
  assert.match(client, /datagrams by RDP: 0 sent, 0 received; by UDP: (\d+), \1; dropped: 0/);
});

test('a program announces its end: its successor at that address gets RDP as well', () =>
  Workspace.use(async (workspace) => {
    // If the last datagram is lost with its reader, the path recovers in two heartbeats.
    const settings = 'heartbeatMillis=1500';
    process.env['VERBENA_DGRAM'] = settings;
    const socket = dgram.createSocket('udp4');
    socket.bind(0, '127.0.77.36');
    await once(socket, 'listening');
    for (const turn of ['first', 'second']) {
      const echo = start(workspace, ['echo.mjs', '127.0.77.37', 5300], settings);
      await echo.printed('stdout', /ready/, 60_000);
      const before = socket.counters.rdpReceived;
      const texts: string[] = [];
      socket.removeAllListeners('message').on('message', (data) => texts.push(`${data}`));
      let count = 0;
      for (; socket.counters.rdpReceived === before; count++) {
        socket.send(`${turn} ${count}`, 5300, '127.0.77.37');
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      while (texts.length < count) await new Promise((resolve) => setTimeout(resolve, 1));
      assert.equal(
        texts,
        Array.from({ length: count }, (_, index) => `${turn} ${index}`),
      );
      socket.send('end', 5300, '127.0.77.37');
      assert.is((await echo.ended).code, 0);
    }
    socket.close();
  }));

test('process.exit right behind send: a reader that is stopped meanwhile has every datagram', () =>
  Workspace.use(async (workspace) => {
    const count = 300;
    const reader = start(workspace, ['reader.mjs', '127.0.115.43', 5300], PATIENT);
    await reader.printed('stdout', /ready/, 60_000);
    const program = start(workspace, ['exits.mjs', '127.0.115.43', 5300, count], PATIENT);
    await program.printed('stdout', /ready/, 60_000);
    reader.kill('SIGSTOP');
    program.kill('SIGUSR2');
    await program.printed('stdout', /sent/, 60_000);
    // By now UDP would have them all in the kernel.
    await new Promise((resolve) => setTimeout(resolve, 100));
    reader.kill('SIGCONT');
    assert.is((await program.ended).code, 0);
    await reader.printed('stdout', new RegExp(`last ${count - 1}\n`), 60_000);
    reader.kill('SIGTERM');
    const { stdout } = await reader.ended;
    assert.equal(
      stdout.split('\n').filter((line) => line.startsWith('last')),
      Array.from({ length: count }, (_, index) => `last ${index}`),
    );
  }));

test('a socket that is handed to a child is read by the child, and both use UDP', () =>
  Workspace.use(async (workspace) => {
    const ended = await start(workspace, ['handed.mjs', '127.0.77.59'], 'heartbeatMillis=1500')
      .ended;
    assert.is(ended.code, 0, ended.stderr);
    assert.is(ended.stdout, 'child has a socket: true\nchild received: hello\n');
  }));

test('cluster workers that share a port have its datagrams as without RDP: by UDP', () =>
  Workspace.use(async (workspace) => {
    const workers = start(workspace, ['workers.mjs', '127.0.117.12', 5300], PATIENT);
    await workers.printed('stdout', /ready/, 60_000);
    const socket = dgram.createSocket('udp4');
    socket.bind(0, '127.0.117.11');
    await once(socket, 'listening');
    let answers = 0;
    socket.on('message', () => answers++);
    for (let count = 0; count < 100; count++) {
      socket.send('question', 5300, '127.0.117.12');
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    socket.send('end', 5300, '127.0.117.12');
    const { code, stdout, stderr } = await workers.ended;
    assert.is(code, 0, stderr);
    const received = [...stdout.matchAll(/worker received (\d+)/g)].map(([, count]) =>
      Number(count),
    );
    assert.equal([received.length, received[0]! + received[1]!, answers], [2, 100, 100]);
    assert.is(stderr.match(/by RDP: 0 sent, 0 received/g)?.length, 3, stderr);
    assert.equal([socket.counters.rdpSent, socket.counters.rdpReceived], [0, 0]);
    socket.close();
  }));

test('an invalid VERBENA_DGRAM ends a program at its start, with one line and code 2', () =>
  Workspace.use(async (workspace) => {
    for (const wrong of ['failover=AUTO', 'heartbeatMillis=0', 'failover=224.0.0.1']) {
      const echo = [program('echo.mjs'), '127.0.77.34', '5300'];
      const words = [`VERBENA_DGRAM=${wrong}`, process.execPath, '--import', offload, ...echo];
      const { code, stdout, stderr } = await workspace.startProcess('env', words).ended;
      assert.equal([code, stdout], [2, ''], stderr);
      assert.match(stderr, /^verbena\/offload: VERBENA_DGRAM: "[^"]+": [^\n]+\n$/);
      assert.ok(stderr.includes(`"${wrong}"`), stderr);
    }
  }));

test('a reserve that is no local address is reported once, and the program runs', () =>
  Workspace.use(async (workspace) => {
    const settings = 'failover=192.0.2.77+127.0.77.35';
    const lines = 'for (let i = 0; i < 2; i++) require("dgram").createSocket("udp4").close()';
    const words = [`VERBENA_DGRAM=${settings}`, process.execPath, '--import', offload, '-e', lines];
    const { code, stderr } = await workspace.startProcess('env', words).ended;
    assert.is(code, 0, stderr);
    const warnings = stderr.match(/VerbenaWarning: failover: 192\.0\.2\.77 is no address/g);
    assert.is(warnings?.length, 1, stderr);
    assert.not.match(stderr, /failover: 127/);
  }));

test.run();
