/** Two processes at one address: the second has another UDP port, and warns about it. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Gid } from '../../../../host/link/endpoint.js';
import { describeHolder, isPortTaken } from '../../../../host/link/udp/port-holder.js';
import { root } from '../../../support/paths.js';
import { Workspace, cliPath, type Program } from '../../../support/processes.js';

/** Linux has all of 127.0.0.0/8; no other test uses this address. */
const ADDRESS = '127.47.91.23';
/** An address of no machine (RFC 5737). */
const FAR = '192.0.2.1:7471';
const isLinux = process.platform === 'linux';
const library = new URL('build/host/index.js', root).href;

const HOLDER = `
  const { openDevice } = await import('${library}');
  const context = await openDevice({ address: '${ADDRESS}' });
  console.log('open at', context.local.port);
  setInterval(() => {}, 1e6);`;

const client = (target: string): string => `
  const { connect } = await import('${library}');
  for (let attempt = 0; attempt < 2; attempt++) {
    await connect('${target}', {
      device: { address: '${ADDRESS}' }, cmResponseTimeout: 8, maxCmRetries: 0,
    }).then(() => console.log('connected'), ({ code }) => console.log(code));
  }`;

const run = (workspace: Workspace, script: string): Program =>
  workspace.startProcess(process.execPath, ['--input-type=module', '--eval', script]);

const told = (stderr: string): string[] =>
  stderr.match(/VerbenaWarning: UDP port 4791 .*/g)?.map(String) ?? [];

test('the second process at one address warns that answers of Linux reach the first, with a remedy', () =>
  Workspace.use(async (workspace) => {
    if (!isLinux) return;
    const holder = run(workspace, HOLDER);
    await holder.printed('stdout', /open at 4791/);
    const { stdout, stderr } = await run(workspace, client(FAR)).ended;
    assert.not.match(stdout, 'connected');
    const [warning = '', ...more] = told(stderr);
    assert.equal(more, [], 'once per address');
    assert.match(warning, new RegExp(`4791 of ${ADDRESS} is taken by process ${holder.pid} \\(`));
    assert.match(warning, /has port \d+ instead/);
    assert.match(warning, /Linux and RoCE cards always send to port 4791/);
    assert.match(warning, /device\.address, --bind.*share one device.*name/);
    const devinfo = await workspace.startProcess(process.execPath, [
      ...[cliPath, 'devinfo', '--bind', ADDRESS],
    ]).ended;
    assert.match(devinfo.stdout, new RegExp(`port 4791 +UDP port 4791 of ${ADDRESS} is taken by`));
    holder.kill('SIGKILL');
    await holder.ended;
    const free = await workspace.startProcess(process.execPath, [
      ...[cliPath, 'devinfo', '--bind', ADDRESS],
    ]).ended;
    assert.match(free.stdout, /port 4791 +free/);
  }));

test('a client of a server on this machine leaves 4791 to servers that start later', () =>
  Workspace.use(async (workspace) => {
    if (!isLinux) return;
    const server = run(
      workspace,
      `const { share } = await import('${library}');
       const { url } = await share('rdma://${ADDRESS}:7471?udp=5791', { table: 64 });
       console.log('at', String(url));
       setInterval(() => {}, 1e6);`,
    );
    await server.printed('stdout', /at rdma:/);
    const reader = run(
      workspace,
      `const { connect, share } = await import('${library}');
       const { memory, connection } = await connect('rdma://${ADDRESS}:7471?udp=5791');
       await memory.table.read(0, 8);
       console.log('port', connection.context.local.port);
       for (const port of [7472, 7473]) {
         const { url } = await share('rdma://${ADDRESS}:' + port, { table: 64 });
         console.log('later at', String(url));
       }
       setInterval(() => {}, 1e6);`,
    );
    await reader.printed('stdout', /later at rdma:\S+:7473.*/);
    const [port, ...urls] = reader.stdout.split('\n');
    assert.is.not(port, 'port 4791');
    assert.equal(urls.slice(0, 2), [
      `later at rdma://${ADDRESS}:7472`,
      `later at rdma://${ADDRESS}:7473`,
    ]);
    for (const program of [server, reader]) {
      program.kill('SIGKILL');
      await program.ended;
    }
  }));

test('no warning if the port is free, or for a peer on this machine', () =>
  Workspace.use(async (workspace) => {
    if (!isLinux) return;
    assert.equal(told((await run(workspace, client(FAR)).ended).stderr), []);
    const holder = run(workspace, HOLDER);
    await holder.printed('stdout', /open at 4791/);
    assert.equal(told((await run(workspace, client('127.0.0.2:1')).ended).stderr), []);
    const gid = Gid.parse(ADDRESS);
    assert.is(await isPortTaken(gid, 4791), true);
    assert.is(await isPortTaken(gid, 4790), false);
    assert.match(await describeHolder(gid, 4791), `taken by process ${holder.pid} (`);
    holder.kill('SIGKILL');
    await holder.ended;
  }));

test.run();
