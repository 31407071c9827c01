/** Queries to a node of this machine, and their permissions. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, openDevice, rds } from '../../../host/index.js';
import { askNodes, publishNode } from '../../../host/rds/info-server.js';
import { eventually } from '../../support/receiver.js';
import { root } from '../../support/paths.js';
import { rejection } from '../../support/refusal.js';

async function withNode(run: (node: rds.RdsNode, folder: string) => Promise<void>): Promise<void> {
  const base = mkdtempSync(join(tmpdir(), 'verbena-desk-'));
  const former = process.env['XDG_RUNTIME_DIR'];
  process.env['XDG_RUNTIME_DIR'] = base;
  const context = await openDevice({ link: createLoopbackPair().a });
  try {
    const node = rds.RdsNode.of(context);
    publishNode(node);
    await run(node, join(base, `verbena-rds-${process.getuid!()}`));
  } finally {
    await context.close();
    if (former === undefined) delete process.env['XDG_RUNTIME_DIR'];
    else process.env['XDG_RUNTIME_DIR'] = former;
    rmSync(base, { recursive: true });
  }
}

test('a node answers with its texts, and takes one parameter', () =>
  withNode(async (node) => {
    const [answer] = await askNodes('stats');
    assert.is(answer!.text, node.stats());
    assert.is(answer!.node, `${node.core.local.gid}:${node.core.local.port}`);
    await askNodes('set Heartbeat=0');
    assert.is(node.core.parameters.Heartbeat, 0);
    assert.is((await askNodes('info', 'nowhere')).length, 0);
    for (const [question, pattern] of [
      ['set UserBufferSize=1', /read-only/],
      ['set Heartbeat=2', /Heartbeat/],
      ['set ', /parameter=value/],
      ['anything', /unknown query/],
    ] as const) {
      const error = await rejection(askNodes(question));
      assert.match((error as Error).message, pattern);
    }
  }));

test('an invalid request ends the connection, and the node goes on', () =>
  withNode(async (_node, folder) => {
    const [name] = readdirSync(folder);
    for (const words of ['x'.repeat(1000), '\n', 'stats\nstats\nset Heartbeat=0\n', '\0\n']) {
      const heard = await new Promise<string>((resolve) => {
        const socket = createConnection(join(folder, name!));
        let text = '';
        socket.on('data', (part) => (text += part.toString()));
        socket.on('error', () => {});
        socket.on('close', () => resolve(text));
        socket.write(words);
      });
      assert.not.match(heard, /^ok/, words);
    }
    assert.match((await askNodes('config'))[0]!.text, /^Heartbeat=1$/m);
  }));

test('sockets of dead nodes are removed, and files that are no sockets are left alone', () =>
  withNode(async (node, folder) => {
    writeFileSync(join(folder, '10.0.0.1-4791'), '');
    assert.is((await askNodes('info')).length, 1);
    assert.is(readdirSync(folder).length, 2);
    await node.context.close();
    assert.is((await askNodes('info')).length, 0);
  }));

/** A process with a node, which ends as `end` says. */
function runNode(end: string): void {
  const host = new URL('build/host/', root).href;
  const program = `
    const { createLoopbackPair, openDevice, rds } = await import('${host}index.js');
    const { publishNode } = await import('${host}rds/info-server.js');
    const context = await openDevice({ link: createLoopbackPair().b });
    publishNode(rds.RdsNode.of(context));
    await new Promise(setImmediate);
    ${end};`;
  spawnSync(process.execPath, ['--input-type=module', '-e', program]);
}

test('a process that ends by process.exit leaves no socket; that of a killed one is swept', () =>
  withNode(async (node, folder) => {
    const [own] = readdirSync(folder);
    runNode('process.exit(0)');
    assert.equal(readdirSync(folder), [own]);
    runNode("process.kill(process.pid, 'SIGKILL')");
    const [stale] = readdirSync(folder).filter((name) => name !== own);
    assert.ok(stale);
    publishNode(node);
    await eventually(() => !readdirSync(folder).includes(stale));
  }));

test('nodes of other network namespaces have files of their own, and are not asked', () =>
  withNode(async (_node, folder) => {
    const [own] = readdirSync(folder);
    const other = own!.replace(/\d+$/, '1');
    renameSync(join(folder, own!), join(folder, other));
    assert.equal(await askNodes('info'), []);
    assert.equal(readdirSync(folder), [other]);
    renameSync(join(folder, other), join(folder, own!));
    assert.is((await askNodes('info')).length, 1);
  }));

test('a directory that others may write to is not believed', () =>
  withNode(async (_node, folder) => {
    chmodSync(folder, 0o777);
    assert.equal(await askNodes('info'), []);
  }));

test.run();
