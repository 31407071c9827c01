/** The example of a page that reads a Node program's memory, as the README has it. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { Browser, Tab, missingBrowser } from '../support/browser.js';
import { root } from '../support/paths.js';

const missing = missingBrowser();
if (missing) throw new Error(missing);

test('a page shows what lies in the server’s memory', async () => {
  const program = fileURLToPath(new URL('build/host/examples/18-browser.js', root));
  const server = spawn(process.execPath, [program, '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const said = await new Promise<string>((resolve) => {
    server.stdout.once('data', (chunk: Buffer) => resolve(chunk.toString()));
  });
  const port = /port: (\d+)/.exec(said)![1];
  const browser = await Browser.launch();
  try {
    const page = await browser.context.newPage();
    const { errors } = new Tab(page);
    await page.goto(`http://127.0.0.1:${port}/`);
    const seconds = async (): Promise<number> => {
      const text = (await page.textContent('h1')) ?? '';
      return Number(/up ([\d.]+) s/.exec(text)?.[1] ?? 0);
    };
    let first = 0;
    // Asked from here: the page's policy evaluates no text, and `waitForFunction` is such.
    for (let turn = 0; turn < 600 && first === 0; turn++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      first = await seconds();
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const second = await seconds();
    assert.ok(first > 0 && second > first, `${first} s, then ${second} s`);
    // The favicon that browsers ask for is answered with the page.
    assert.equal(errors, []);
  } finally {
    await browser.close();
    server.kill();
  }
});

test.run();
