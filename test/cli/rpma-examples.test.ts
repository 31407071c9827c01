/** librpma's numbered examples, each as real processes over UDP. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { DATA_OFFSET } from '../../host/pmem/header.js';
import { examples } from '../support/paths.js';
import { Workspace } from '../support/processes.js';
import { sample } from '../support/sample.js';

const test = suite('cli/rpma-examples');

/** Of no other test. */
const ADDRESS = '127.0.87.1';

type Words = readonly (string | number)[];

/** Runs a server and its clients, all at once; what each of them printed. */
async function run(
  workspace: Workspace,
  name: string,
  serverWords: Words,
  ...clients: Words[]
): Promise<{ server: string; clients: string[] }> {
  const file = fileURLToPath(new URL(`rpma/${name}.js`, examples));
  const start = (role: string, port: string, words: Words) =>
    workspace.startProcess(process.execPath, [file, role, ADDRESS, port, ...words.map(String)]);
  const server = start('server', '0', serverWords);
  const [, port] = await server.printed('stdout', /listening on \S+:(\d+)\n/);
  const started = clients.map((words) => start('client', port!, words));
  const ends = await Promise.all([server, ...started].map((program) => program.ended));
  for (const { code, stdout, stderr } of ends) assert.is(code, 0, `${name}: ${stdout}\n${stderr}`);
  const [first, ...others] = ends.map(({ stdout }) => stdout);
  return { server: first!, clients: others };
}

function example(name: string, work: (workspace: Workspace) => Promise<void>): void {
  test(name, () => Workspace.use(work));
}

/** Text in a file of persistent memory. */
function textIn(path: string): string {
  const bytes = readFileSync(path).subarray(DATA_OFFSET);
  return bytes.subarray(0, bytes.indexOf(0)).toString();
}

example('01: both sides say something', async (workspace) => {
  const { server, clients } = await run(workspace, '01-connection', [], []);
  assert.match(server, /Received a message: Hello server!/);
  assert.match(clients[0]!, /Received a message: Hello client!/);
});

example('02: the client reads what the server has', async (workspace) => {
  const { clients } = await run(workspace, '02-read-to-volatile', [], []);
  assert.match(clients[0]!, /Read a message: Hello client!/);
});

for (const name of ['03-read-to-persistent', '04-write-to-persistent']) {
  example(`${name}: what the server got it has the next time`, async (workspace) => {
    const [server, client] = [workspace.path('server.pmem'), workspace.path('client.pmem')];
    const first = await run(workspace, name, [server], [client]);
    assert.match(first.server, /New value: Hello world!/);
    assert.match(first.clients[0]!, /Next value: Hello world!\nTranslation: ¡Hola Mundo!/);
    assert.is(textIn(server), 'Hello world!');
    const second = await run(workspace, name, [server], [client]);
    assert.match(second.server, /Old value: Hello world!\n/);
    assert.match(second.server, /New value: ¡Hola Mundo!/);
    assert.is(textIn(server), '¡Hola Mundo!');
  });
}

example('05: what was flushed is in the file before the client goes on', async (workspace) => {
  const path = workspace.path('server.pmem');
  const { server, clients } = await run(workspace, '05-flush-to-persistent', [path, 'on'], []);
  assert.match(clients[0]!, /FlushType.PERSISTENT is supported\nTranslation/);
  assert.match(server, /New value: Hello world!/);
  assert.is(textIn(path), 'Hello world!');
});

example('05: volatile memory is flushed to be visible', async (workspace) => {
  const { server, clients } = await run(workspace, '05-flush-to-persistent', [], []);
  assert.match(clients[0]!, /FlushType.PERSISTENT is not supported/);
  assert.match(server, /New value: Hello world!/);
});

// Variants of the connection's completion channels: one here, all in `npm run test:long`.
for (const words of sample([[3]], [[3], [3, 'scch']])) {
  example(`06 ${words.join(' ')}: many clients at a time`, async (workspace) => {
    const names = ['Ada', 'Grace', 'Hedy'];
    const clients = names.map((name) => [name]);
    const { server } = await run(workspace, '06-multiple-connections', words, ...clients);
    for (const name of names) assert.match(server, `- ${name}\n`);
  });
}

example('07: a log whose tail moves atomically, and grows with every client', async (workspace) => {
  const path = workspace.path('log.pmem');
  const first = await run(workspace, '07-atomic-write', [path], ['lorem', 'ipsum']);
  assert.match(first.clients[0]!, /used value: 16/);
  assert.match(first.server, /lorem\nipsum\n$/);
  const second = await run(workspace, '07-atomic-write', [path], ['dolor']);
  assert.match(second.clients[0]!, /used value: 28/);
  assert.match(second.server, /lorem\nipsum\ndolor\n$/);
});

for (const mode of sample(['', 'scch'], ['', 'srq', 'rcq', 'scch'])) {
  example(`08 and 12 ${mode}: a counter goes to and fro`, async (workspace) => {
    const own = mode === 'srq' ? [7, 3] : [7, 3, mode];
    const { clients } = await run(workspace, '08-messages-ping-pong', [mode], own);
    assert.match(clients[0]!, /Value received: 8\n/);
    assert.match(clients[0]!, /Value sent: 9\nValue received: 10\n$/);
  });
}

for (const channel of sample([''], ['', 'scch'])) {
  example(`09 ${channel}: the server persists, and answers`, async (workspace) => {
    const path = workspace.path('server.pmem');
    const { server, clients } = await run(
      workspace,
      '09-flush-to-persistent-gpspm',
      [path, channel],
      [],
    );
    assert.match(server, /Flushed 1024 bytes at 0 for 0xf01d\n/);
    assert.match(clients[0]!, /Translation: ¡Hola Mundo!/);
    assert.is(textIn(path), 'Hello world!');
  });
}

example('10: a number goes with a message, and alone', async (workspace) => {
  const full = await run(workspace, '10-send-with-imm', [], [1234, 'word']);
  assert.match(full.server, /Received value 'word' with immediate data '1234'/);
  const empty = await run(workspace, '10-send-with-imm', [], [4294967295]);
  assert.match(empty.server, /an empty message with immediate data '4294967295'/);
});

example('11: a number goes with what is written', async (workspace) => {
  const { server } = await run(workspace, '11-write-with-imm', [], [77]);
  assert.match(server, /The value '77' was written together with immediate data '77'/);
});

example('13: several clients share one receive queue', async (workspace) => {
  const { server, clients } = await run(
    workspace,
    '13-messages-ping-pong-with-srq',
    [2],
    [10, 3],
    [20, 3],
  );
  assert.match(server, /The client #2 has been connected/);
  assert.equal(clients.map((text) => text.trim().split('\n').at(-1)).sort(), [
    'Value received: 13',
    'Value received: 23',
  ]);
});

test.run();
