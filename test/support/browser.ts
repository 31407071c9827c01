/**
 * A real browser for tests: the system's Chromium, steered by playwright-core; with
 * VERBENA_BROWSER=firefox its Firefox (`firefox.ts`).
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium, type BrowserContext, type Page } from 'playwright-core';
import type * as Verbena from '../../host/browser/index.js';
import { CHROMIUM, CHROMIUM_FLAGS } from './chromium.js';
import { Firefox, missingFirefox, type FirefoxPage } from './firefox.js';
import type { HiddenPage } from './hidden-chromium.js';
import { root } from './paths.js';

/** Tests run in Firefox. */
export const isFirefox = process.env['VERBENA_BROWSER'] === 'firefox';

/** Is there none? Then why no test in it can run. */
export function missingBrowser(): string | undefined {
  if (isFirefox) return missingFirefox();
  return existsSync(CHROMIUM) ? undefined : `there is no ${CHROMIUM}: apt-get install chromium`;
}

/** Registers cases of `test` in Chromium alone: they use its DevTools. */
export const chromiumOnly = <Body>(
  test: (name: string, body: Body) => void,
): ((name: string, body: Body) => void) => (isFirefox ? () => undefined : test);

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
  '.json': 'application/json',
  '.map': 'application/json',
};

export interface SiteOptions {
  /** Cross-origin isolated pages: those have shared memory. */
  readonly isolated?: boolean;
  /** Pages may be stored, also in the back/forward cache. */
  readonly storable?: boolean;
  /** Answers what is POSTed. */
  readonly post?: (request: IncomingMessage, response: ServerResponse) => unknown;
}

/** Serves files of the repository to this machine. */
export class Site {
  readonly server: Server;

  private constructor(server: Server) {
    this.server = server;
  }

  static async open(options: SiteOptions = {}): Promise<Site> {
    const server = createServer((request, response) => {
      if (request.method === 'POST' && options.post) {
        void options.post(request, response);
        return;
      }
      const { pathname } = new URL(request.url ?? '/', 'http://site');
      const file = fileURLToPath(new URL(`.${pathname}`, root));
      if (!file.startsWith(fileURLToPath(root)) || !existsSync(file)) {
        response.writeHead(404).end();
        return;
      }
      if (options.isolated) {
        response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
        response.setHeader('Cross-Origin-Embedder-Policy', 'require-corp');
      }
      response.setHeader('Cache-Control', options.storable ? 'no-cache' : 'no-store');
      response.setHeader('Content-Type', TYPES[extname(file)] ?? 'application/octet-stream');
      response.end(readFileSync(file));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new Site(server);
  }

  url(path: string): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}${path}`;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** A page whose Worker runs the code that the test sends. */
export class Tab {
  readonly page: Page;
  /** Errors on its console, and uncaught exceptions. */
  readonly errors: string[] = [];

  constructor(page: Page | FirefoxPage | HiddenPage) {
    // Tests that also run in Firefox use what both have.
    this.page = page as Page;
    if (!('on' in page)) {
      page.onError((text) => this.errors.push(text));
      return;
    }
    page.on('console', (message) => {
      if (message.type() === 'error') this.errors.push(message.text());
    });
    page.on('pageerror', (error) => this.errors.push(error.message));
  }

  /** Resolves when its Worker is there. */
  static async open(page: Page | FirefoxPage | HiddenPage, url: string): Promise<Tab> {
    const tab = new Tab(page);
    await page.goto(url);
    await tab.page.waitForFunction('globalThis.runInWorker !== undefined');
    return tab;
  }

  /**
   * Runs `action` in the Worker: its text is sent, so it has nothing of the test but `argument`.
   * An exception of `action` is thrown here, as `NAME CODE: MESSAGE`.
   */
  run<State, Argument, Value>(
    action: (verbena: typeof Verbena, state: State, argument: Argument) => Value,
    argument?: Argument,
  ): Promise<Awaited<Value>> {
    const words = [action.toString(), argument ?? null].map((value) => JSON.stringify(value));
    return this.page.evaluate<Awaited<Value>>(`runInWorker(${words.join(', ')})`);
  }
}

export class Browser {
  readonly context: BrowserContext;
  readonly #end: () => Promise<void>;

  private constructor(context: BrowserContext | Firefox, end: () => Promise<void>) {
    this.context = context as BrowserContext;
    this.#end = end;
  }

  /** `flags`: of Chromium. */
  static async launch(
    flags: readonly string[] = [],
    kind: 'chromium' | 'firefox' = isFirefox ? 'firefox' : 'chromium',
  ): Promise<Browser> {
    if (kind === 'firefox') {
      const firefox = await Firefox.launch();
      return new Browser(firefox, () => firefox.close());
    }
    const folder = mkdtempSync(join(tmpdir(), 'verbena-browser-'));
    const remove = (): void =>
      rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    const options = {
      executablePath: CHROMIUM,
      headless: true,
      chromiumSandbox: false,
      args: [...CHROMIUM_FLAGS, ...flags],
      // Without it Chromium hides local addresses behind names of mDNS, which do not resolve here.
      permissions: ['microphone'],
    };
    try {
      const context = await chromium.launchPersistentContext(folder, options);
      return new Browser(context, () => context.close().finally(remove));
    } catch (error) {
      remove();
      throw error;
    }
  }

  async open(url: string): Promise<Tab> {
    return this.use(await this.context.newPage(), url);
  }

  /** As `open`, in a page that was prepared. */
  async use(page: Page, url: string): Promise<Tab> {
    return Tab.open(page, url);
  }

  async close(): Promise<void> {
    await this.#end();
  }
}
