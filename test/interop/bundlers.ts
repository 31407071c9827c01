/**
 * `verbena/browser` through the bundlers of applications: each bundles one page from the packed
 * package, and Chromium runs it. The page writes by RDMA and explains a status, so both
 * WebAssembly modules were found.
 */
import { spawn } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { missingBrowser } from '../support/browser.js';
import { root } from '../support/paths.js';
import type { Group, Report } from './group.js';
import { run, withFolder } from './tools.js';

const top = fileURLToPath(root);
const QUIET = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
/** The versions that were current when this group was written. */
const BUNDLERS = ['vite@8.3.8', 'webpack@5.113.0', 'webpack-cli@7.3.1', 'esbuild@0.28.2'];
const NEXT = ['next@16.4.6', 'react@19', 'react-dom@19'];
const INSTALL_SECONDS = 400;
const BUNDLE_SECONDS = 240;
const PAGE_MILLIS = 60_000;
const LOADING = 'loading';
const WROTE = /^wrote 1,2,3: The work request is done/;

const PAGE = `
import { connect, createLoopbackPair, explainWcStatus, fetchExplain, openDevice, share } from 'verbena/browser';

const { a, b } = createLoopbackPair();
const there = await openDevice({ link: a, memoryBytes: 2 ** 24 });
const here = await openDevice({ link: b, memoryBytes: 2 ** 24 });
const server = await share(\`rdma://[\${there.local.gid}]:7471\`, { table: 64 }, { context: there });
const remote = await connect(server.url, { context: here });
await remote.memory.table.write(0, Uint8Array.of(1, 2, 3));
await fetchExplain();
document.title = \`wrote \${server.memory.table.slice(0, 3)}: \${explainWcStatus(0)}\`;
`;
const html = (script: string): string =>
  `<!doctype html><link rel="icon" href="data:," /><title>${LOADING}</title>` +
  `<script type="module" src="${script}"></script>\n`;
const WEBPACK = `export default {
  mode: 'production',
  entry: './page.js',
  output: { path: import.meta.dirname + '/webpack', module: true },
  experiments: { outputModule: true },
};
`;
const LAYOUT = `export default function Layout({ children }) {
  return <html><head><title>${LOADING}</title></head><body>{children}</body></html>;
}
`;
const CLIENT = `'use client';
import { useEffect } from 'react';
export default function Page() {
  useEffect(() => void import('../page.js'), []);
  return <p>page</p>;
}
`;

/** Files that a bundler names by themselves lie beside the bundle that esbuild writes. */
const BESIDE = ['engine.wasm', 'explain.wasm', 'opfs-thread.js'];
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

async function install(folder: string): Promise<string> {
  const project = join(folder, 'project');
  mkdirSync(join(project, 'app'), { recursive: true });
  writeFileSync(join(project, 'package.json'), '{"private":true,"type":"module"}\n');
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder, top]);
  const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'))!;
  const packages = [join(folder, archive), ...BUNDLERS, ...NEXT];
  await run('npm', ['install', ...QUIET, '--prefix', project, ...packages], INSTALL_SECONDS);
  const files = {
    'page.js': PAGE,
    'index.html': html('/page.js'),
    'webpack.config.js': WEBPACK,
    'app/layout.js': LAYOUT,
    'app/page.js': CLIENT,
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(project, name), text);
  return project;
}

/** Runs a package's command in the project. */
function runIn(project: string, name: string, ...words: string[]): Promise<unknown> {
  const script = `cd '${project}' && NEXT_TELEMETRY_DISABLED=1 exec npx --no -- ${name} "$@"`;
  return run('sh', ['-c', script, name, ...words], BUNDLE_SECONDS);
}

async function serve(folder: string): Promise<Server> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://site');
    const file = join(folder, pathname.endsWith('/') ? `${pathname}index.html` : pathname);
    if (!existsSync(file)) return void response.writeHead(404).end();
    response.setHeader('Content-Type', TYPES[extname(file)] ?? 'application/octet-stream');
    response.end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

async function checkPage(url: string): Promise<void> {
  const browser = await chromium.launch({
    executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
    chromiumSandbox: false,
  });
  try {
    const page = await browser.newPage();
    const told: string[] = [];
    page.on('pageerror', ({ message }) => told.push(message));
    await page.goto(url, { timeout: PAGE_MILLIS });
    const loaded = page.waitForFunction(`document.title !== '${LOADING}'`, undefined, {
      timeout: PAGE_MILLIS,
    });
    await loaded.catch(() => {});
    const title = await page.title();
    if (!WROTE.test(title)) throw new Error([`its title is "${title}"`, ...told].join('\n'));
  } finally {
    await browser.close();
  }
}

async function checkFolder(folder: string): Promise<void> {
  const server = await serve(folder);
  try {
    await checkPage(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** A command that serves pages until it is ended: `ready` finds their address in its output. */
async function checkServing(project: string, words: string[], ready: RegExp): Promise<void> {
  const file = join(project, 'node_modules', words[0]!);
  const child = spawn(process.execPath, [file, ...words.slice(1)], {
    cwd: project,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, NO_COLOR: '1', NEXT_TELEMETRY_DISABLED: '1' },
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  try {
    const url = await new Promise<string>((resolve, reject) => {
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (more: string) => {
        text += more;
        const [, found] = ready.exec(text) ?? [];
        if (found !== undefined) resolve(found);
      });
      child.once('exit', (code) => reject(new Error(`ended with ${code}\n${text}`)));
    });
    await checkPage(url);
  } finally {
    child.kill();
    await ended;
  }
}

async function bundle(report: Report, project: string): Promise<void> {
  const at = (name: string): string => join(project, name);
  await report.check('Vite serves the page for development', () =>
    checkServing(project, ['vite/bin/vite.js', '--port', '0'], /(http:\/\/localhost:\d+\/)/),
  );
  await report.check('Vite builds the page', async () => {
    await runIn(project, 'vite', 'build', '--outDir', 'vite', '--logLevel', 'error');
    await checkFolder(at('vite'));
  });
  await report.check('webpack builds the page', async () => {
    await runIn(project, 'webpack');
    writeFileSync(at('webpack/index.html'), html('main.mjs'));
    await checkFolder(at('webpack'));
  });
  await report.check('esbuild bundles the page, with the modules beside it', async () => {
    await runIn(project, 'esbuild', 'page.js', '--bundle', '--format=esm', '--outdir=esbuild');
    for (const name of BESIDE) {
      copyFileSync(at(`node_modules/verbena/build/browser/${name}`), at(`esbuild/${name}`));
    }
    writeFileSync(at('esbuild/index.html'), html('page.js'));
    await checkFolder(at('esbuild'));
  });
  await report.check('Next builds the page as a client component, and serves it', async () => {
    await runIn(project, 'next', 'build');
    const words = ['next/dist/bin/next', 'start', '--port', '0'];
    await checkServing(project, words, /(http:\/\/localhost:\d+)/);
  });
}

export const bundlersGroup: Group = {
  name: 'bundlers',
  tools: [],
  async run(report) {
    const missing = missingBrowser();
    if (missing !== undefined) throw new Error(missing);
    await withFolder(async (folder) => {
      let project = '';
      const isThere = await report.check('npm installs the package and the bundlers', async () => {
        project = await install(folder);
      });
      if (isThere) await bundle(report, project);
    });
  },
};
