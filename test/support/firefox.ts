/**
 * Firefox for tests, steered by WebDriver BiDi (https://w3c.github.io/webdriver-bidi) over a
 * WebSocket: what `Browser` and `Tab` need of a browser, no more.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { FirefoxLocator, FirefoxMouse } from './firefox-input.js';

const EXECUTABLE = process.env['FIREFOX'] ?? '/usr/bin/firefox-esr';
const START_MILLIS = 60_000;

export function missingFirefox(): string | undefined {
  return existsSync(EXECUTABLE)
    ? undefined
    : `there is no ${EXECUTABLE}: apt-get install firefox-esr`;
}

/** Connections over loopback, local addresses in candidates, and nothing of the browser's own. */
const PREFERENCES = `
user_pref('media.peerconnection.ice.loopback', true);
user_pref('media.peerconnection.ice.obfuscate_host_addresses', false);
user_pref('network.captive-portal-service.enabled', false);
user_pref('network.connectivity-service.enabled', false);
user_pref('datareporting.policy.dataSubmissionEnabled', false);
user_pref('app.update.disabledForTesting', true);
user_pref('browser.shell.checkDefaultBrowser', false);
user_pref('dom.min_background_timeout_value', 4);
user_pref('dom.timeout.enable_budget_timer_throttling', false);
`;

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly result?: unknown;
  readonly params?: { readonly context?: string; readonly text?: string; readonly level?: string };
  readonly error?: string;
  readonly message?: string;
}

/** Commands and events of one session. */
class Session {
  readonly #socket: WebSocket;
  readonly #pending = new Map<
    number,
    { resolve(value: never): void; reject(error: Error): void }
  >();
  readonly #listeners = new Set<(message: Message) => void>();
  #count = 0;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data) => this.#take(JSON.parse(String(data)) as Message));
    socket.on('close', () => {
      for (const { reject } of this.#pending.values()) reject(new Error('Firefox has ended'));
    });
  }

  static async open(url: string): Promise<Session> {
    const socket = new WebSocket(url);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    return new Session(socket);
  }

  onEvent(listener: (message: Message) => void): void {
    this.#listeners.add(listener);
  }

  send<Result>(method: string, params: object = {}): Promise<Result> {
    const id = ++this.#count;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise<Result>((resolve, reject) => this.#pending.set(id, { resolve, reject }));
  }

  close(): void {
    this.#socket.close();
  }

  #take(message: Message): void {
    const { id, result, error } = message;
    const pending = id === undefined ? undefined : this.#pending.get(id);
    if (!pending) {
      for (const listener of this.#listeners) listener(message);
      return;
    }
    this.#pending.delete(id!);
    if (error === undefined) pending.resolve(result as never);
    else pending.reject(new Error(`${error}: ${message.message}`));
  }
}

/** JSON has no NaN. */
const NAN = '\u0000NaN';
const WITH_NAN = `(_, value) => Object.is(value, NaN) ? ${JSON.stringify(NAN)} : value`;

interface Evaluated {
  readonly type: 'success' | 'exception';
  readonly result?: { readonly value?: string };
  readonly exceptionDetails?: { readonly text: string };
}

/** A tab: the methods of playwright's Page that tests of tabs use. */
export class FirefoxPage {
  readonly mouse: FirefoxMouse;
  readonly #session: Session;
  readonly #context: string;
  #url = '';

  constructor(session: Session, context: string) {
    this.#session = session;
    this.#context = context;
    this.mouse = new FirefoxMouse((actions) =>
      session.send('input.performActions', {
        context,
        actions: [{ type: 'pointer', id: 'mouse', actions }],
      }),
    );
  }

  /** Calls `listener` for each error that the page reports. */
  onError(listener: (text: string) => void): void {
    this.#session.onEvent(({ method, params }) => {
      const isOwn = (params as { source?: { context?: string } }).source?.context === this.#context;
      if (method === 'log.entryAdded' && isOwn && params?.level === 'error') listener(params.text!);
    });
  }

  async goto(url: string): Promise<void> {
    const where = { context: this.#context, url, wait: 'complete' };
    await this.#session.send('browsingContext.navigate', where);
    this.#url = url;
  }

  /** As of `goto`. */
  url(): string {
    return this.#url;
  }

  async setViewportSize(viewport: { width: number; height: number }): Promise<void> {
    await this.#session.send('browsingContext.setViewport', { context: this.#context, viewport });
  }

  async bringToFront(): Promise<void> {
    await this.#session.send('browsingContext.activate', { context: this.#context });
  }

  async addInitScript(text: string): Promise<void> {
    const functionDeclaration = `() => { ${text} }`;
    const contexts = [this.#context];
    await this.#session.send('script.addPreloadScript', { functionDeclaration, contexts });
  }

  locator(selector: string, options?: { hasText?: string }): FirefoxLocator {
    return new FirefoxLocator(this, selector, options);
  }

  textContent(selector: string): Promise<string | null> {
    return this.locator(selector).textContent();
  }

  async reload(): Promise<void> {
    await this.#session.send('browsingContext.reload', {
      context: this.#context,
      wait: 'complete',
    });
  }

  async close(): Promise<void> {
    await this.#session.send('browsingContext.close', { context: this.#context });
  }

  /** Text that is an expression. Values travel as JSON. */
  async evaluate(expression: string): Promise<unknown> {
    const { type, result, exceptionDetails } = await this.#session.send<Evaluated>(
      'script.evaluate',
      {
        expression: `(async () => JSON.stringify(await (${expression}), ${WITH_NAN}))()`,
        target: { context: this.#context },
        awaitPromise: true,
      },
    );
    if (type === 'exception') throw new Error(exceptionDetails!.text.replace(/^Error: /, ''));
    if (result?.value === undefined) return undefined;
    return JSON.parse(result.value, (_, value: unknown) => (value === NAN ? NaN : value));
  }

  async waitForFunction(expression: string): Promise<void> {
    while (!(await this.evaluate(expression)))
      await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export class Firefox {
  readonly #child: ChildProcess;
  readonly #session: Session;
  readonly #folder: string;

  private constructor(child: ChildProcess, session: Session, folder: string) {
    this.#child = child;
    this.#session = session;
    this.#folder = folder;
  }

  static async launch(): Promise<Firefox> {
    const folder = mkdtempSync(join(tmpdir(), 'verbena-firefox-'));
    writeFileSync(join(folder, 'user.js'), PREFERENCES);
    const words = [
      '--headless',
      '--no-remote',
      '--profile',
      folder,
      '--remote-debugging-port',
      '0',
    ];
    const child = spawn(EXECUTABLE, words, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, HOME: folder, MOZ_CRASHREPORTER_DISABLE: '1' },
    });
    const session = await Session.open(`${await addressOf(child)}/session`);
    await session.send('session.new', { capabilities: {} });
    await session.send('session.subscribe', { events: ['log.entryAdded'] });
    return new Firefox(child, session, folder);
  }

  async newPage(): Promise<FirefoxPage> {
    const made = await this.#session.send<{ context: string }>('browsingContext.create', {
      type: 'tab',
    });
    return new FirefoxPage(this.#session, made.context);
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    await this.#session.send('browser.close').catch(() => this.#child.kill());
    this.#session.close();
    await ended;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

/** `WebDriver BiDi listening on ws://127.0.0.1:PORT`. */
function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const timer = setTimeout(
      () => reject(new Error(`Firefox does not start\n${text}`)),
      START_MILLIS,
    );
    child.stderr!.setEncoding('utf8').on('data', (more: string) => {
      text += more;
      const [, url] = /listening on (ws:\/\/\S+)/.exec(text) ?? [];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    child.once('exit', (code) => reject(new Error(`Firefox ended with ${code}\n${text}`)));
  });
}
