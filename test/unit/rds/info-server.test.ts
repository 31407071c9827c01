/** Queries to a node of this machine, and their permissions. */
import { chmodSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createLoopbackPair, openDevice, rds } from '../../../host/index.js';
import { askNodes, publishNode } from '../../../host/rds/info-server.js';
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

test('what is no question ends the connection, and the node goes on', () =>
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

test('a directory that others may write to is not believed', () =>
  withNode(async (_node, folder) => {
    chmodSync(folder, 0o777);
    assert.equal(await askNodes('info'), []);
  }));

test.run();
