/** `verbena demo` as a process: what it serves, and what it does not. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { Workspace } from '../support/processes.js';

const test = suite('cli/demo');

interface Serving {
  readonly url: string;
  readonly gzipBytes: number;
}

test('it serves the page and what belongs to it, answers offers, and ends when told', () =>
  Workspace.use(async (workspace) => {
    const server = workspace.start('demo', '--port', 0, '--json');
    await server.printed('stdout', /"event":"serving".*\n/);
    const { url, gzipBytes } = JSON.parse(server.stdout) as Serving;
    const page = await fetch(url);
    assert.is(page.status, 200);
    assert.is(page.headers.get('content-encoding'), 'gzip');
    assert.is(page.headers.get('cross-origin-opener-policy'), 'same-origin');
    const text = await page.text();
    assert.match(text, /<title>Verbena/);
    for (const [, name] of text.matchAll(/(?:src|href)="([^":]+)"/g)) {
      assert.is((await fetch(new URL(name!, url))).status, 200, name);
    }
    assert.ok(gzipBytes < 172 * 1024);
    assert.is((await fetch(new URL('package.json', url))).status, 404);
    assert.is((await fetch(new URL('../../etc/passwd', url))).status, 404);
    assert.is((await fetch(url, { method: 'DELETE' })).status, 405);
    const signal = new URL('signal', url);
    const nonsense = await fetch(signal, { method: 'POST', body: '{"type":"offer","sdp":"v=0"}' });
    assert.is(nonsense.status, 400);
    server.kill('SIGTERM');
    const ended = await server.ended;
    assert.is(ended.code, 0, ended.stderr);
  }));

test('a port that is in use is an error of one line', () =>
  Workspace.use(async (workspace) => {
    const server = workspace.start('demo', '--port', 0);
    await server.printed('stdout', /open http:.*\n/);
    const port = /:(\d+)\//.exec(server.stdout)![1]!;
    const other = await workspace.run('demo', '--port', port);
    assert.is(other.code, 1);
    assert.match(
      other.stderr,
      /^verbena demo: TCP port \d+ is taken: choose another one \(--port\) \(EADDRINUSE\)\n$/,
    );
  }));

test.run();
