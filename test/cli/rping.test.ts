/** `verbena rping`, two real processes; and what it says on the wire, as rdma-core's does. */
import { readFileSync } from 'node:fs';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { pingMessage } from '../../host/cli/rping.js';
import { addressBeside } from '../../host/cli/base/server-address.js';
import { vectors } from '../support/paths.js';
import { Workspace, freePort } from '../support/processes.js';

const test = suite('cli/rping');

test('a message is what rdma-core’s rping sends', () => {
  const log = readFileSync(new URL('rxe/cm_rping.log', vectors), 'latin1');
  for (const turn of [0, 1]) {
    const message = pingMessage(turn, 64);
    assert.is(message.length, 64);
    assert.is(message[63], 0);
    const text = Buffer.from(message.subarray(0, 63)).toString('latin1');
    assert.ok(log.includes(`ping data: ${text}\n`), text);
  }
  assert.is(Buffer.from(pingMessage(57, 100)).toString('latin1', 14, 17), 'zAB');
});

test('server and client play, print and compare', () =>
  Workspace.use(async (workspace) => {
    const udp = await freePort();
    const server = workspace.start('rping', '-s', '-v', '--udp-port', udp);
    await server.printed('stdout', /listening/);
    const ports = ['--udp-port', 0, '--peer-udp-port', udp];
    const client = await workspace.run('rping', '-c', '-C', 3, '-v', '-V', ...ports);
    assert.is(client.code, 0, client.stderr);
    assert.equal(client.stdout.match(/^ping data: rdma-ping-\d/gm)?.length, 3);
    const ended = await server.ended;
    assert.is(ended.code, 0, ended.stderr);
    assert.equal(ended.stdout.match(/^server ping data: rdma-ping-\d: [A-C]/gm)?.length, 3);
  }));

test('both sides on one machine have the same UDP port, of two addresses', () =>
  Workspace.use(async (workspace) => {
    const udp = await freePort();
    const server = workspace.start('rping', '-s', '--udp-port', udp);
    await server.printed('stdout', /listening/);
    const ports = ['--udp-port', udp, '--peer-udp-port', udp];
    const client = await workspace.run('rping', '-c', '-C', 3, '-v', ...ports);
    assert.is(client.code, 0, client.stderr);
    assert.is((await server.ended).code, 0);
    assert.is(await addressBeside('127.0.0.1'), '127.0.0.2');
    assert.is(await addressBeside('127.0.114.1'), '127.0.0.1');
    assert.is(await addressBeside('::1'), '::1');
  }));

test('large messages, and one client after the other', () =>
  Workspace.use(async (workspace) => {
    const udp = await freePort();
    const server = workspace.start('rping', '-s', '-P', '-S', 65535, '--udp-port', udp);
    await server.printed('stdout', /listening/);
    const ports = ['--udp-port', 0, '--peer-udp-port', udp];
    for (const size of [25, 65535]) {
      const words = ['rping', '-c', '-C', 5, '-v', '-V', '-S', size, ...ports];
      const client = await workspace.run(...words);
      assert.is(client.code, 0, client.stderr);
      assert.equal(client.stdout.match(/^ping data: .*/gm)?.length, 5);
    }
  }));

test('a missing server, and an invalid command line, are errors of one line', () =>
  Workspace.use(async (workspace) => {
    const udp = await freePort();
    const server = workspace.start('rping', '-s', '-p', 7175, '--udp-port', udp);
    await server.printed('stdout', /listening/);
    const refused = await workspace.run('rping', '-c', '--udp-port', 0, '--peer-udp-port', udp);
    assert.is(refused.code, 1);
    assert.match(
      refused.stderr,
      /^verbena rping: .*no process listens at .*start "verbena rping -s" there \(ECONNREFUSED.*\n$/,
    );
    const alone = workspace.start('rping', '-c', '-a', '127.0.85.1', '--udp-port', 0);
    await alone.printed('stderr', /no answer from .* yet: see that "verbena rping -s" runs there/);
    alone.kill('SIGKILL');
    await alone.ended;
    const wrong = await workspace.run('rping', '-s', '-c');
    assert.is(wrong.code, 2);
    assert.match(wrong.stderr, /^verbena rping: -s or -c: is required/);
  }));

test.run();
