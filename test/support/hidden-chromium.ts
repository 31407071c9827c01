/**
 * Chromium whose tabs hide each other, by its DevTools protocol alone: playwright keeps every page
 * visible, and a visible page is not frozen.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import { CHROMIUM, CHROMIUM_FLAGS } from './chromium.js';

interface Message {
  readonly id?: number;
  readonly sessionId?: string;
  readonly method?: string;
  readonly params?: {
    readonly type?: string;
    readonly entry?: { readonly level: string; readonly text: string };
    readonly exceptionDetails?: { readonly text: string };
  };
  readonly result?: unknown;
  readonly error?: { readonly message: string };
}

interface Pending {
  resolve(value: never): void;
  reject(error: Error): void;
}

/** A tab: the methods of playwright's Page that tests of tabs use. */
export class HiddenPage {
  readonly #send: <Result>(method: string, params?: object) => Promise<Result>;
  readonly #close: () => Promise<unknown>;
  #errors: (text: string) => void = () => {};

  constructor(
    send: <Result>(method: string, params?: object) => Promise<Result>,
    close: () => Promise<unknown>,
  ) {
    this.#send = send;
    this.#close = close;
  }

  onError(listener: (text: string) => void): void {
    this.#errors = listener;
  }

  take({ method, params }: Message): void {
    if (method === 'Runtime.exceptionThrown') this.#errors(params!.exceptionDetails!.text);
    if (method === 'Runtime.consoleAPICalled' && params!.type === 'error') this.#errors('console');
    const { entry } = params ?? {};
    if (method === 'Log.entryAdded' && entry!.level === 'error') this.#errors(entry!.text);
  }

  async goto(url: string): Promise<void> {
    for (const domain of ['Page', 'Runtime', 'Log']) await this.#send(`${domain}.enable`);
    await this.#send('Page.navigate', { url });
  }

  async setLifecycle(state: 'frozen' | 'active'): Promise<void> {
    await this.#send('Page.setWebLifecycleState', { state });
  }

  async evaluate(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.#send<{
      result: { value?: unknown };
      exceptionDetails?: { exception?: { description?: string } };
    }>('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description);
    return result.value;
  }

  async waitForFunction(expression: string): Promise<void> {
    while (!(await this.evaluate(expression)))
      await new Promise((resolve) => setTimeout(resolve, 20));
  }

  async close(): Promise<void> {
    await this.#close();
  }
}

export class HiddenChromium {
  readonly #child: ChildProcess;
  readonly #socket: WebSocket;
  readonly #folder: string;
  readonly #pending = new Map<number, Pending>();
  readonly #pages = new Map<string, HiddenPage>();
  #count = 0;

  private constructor(child: ChildProcess, socket: WebSocket, folder: string) {
    this.#child = child;
    this.#socket = socket;
    this.#folder = folder;
    socket.on('message', (data) => this.#take(JSON.parse(String(data)) as Message));
  }

  static async launch(): Promise<HiddenChromium> {
    const folder = mkdtempSync(join(tmpdir(), 'verbena-chromium-'));
    const words = ['--headless=new', '--remote-debugging-port=0', `--user-data-dir=${folder}`];
    const child = spawn(CHROMIUM, [...CHROMIUM_FLAGS, ...words, 'about:blank'], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const socket = new WebSocket(await addressOf(child));
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const browser = new HiddenChromium(child, socket, folder);
    // As playwright's pages: without it local addresses are names of mDNS.
    await browser.#send('Browser.grantPermissions', { permissions: ['audioCapture'] });
    return browser;
  }

  /** In front of the others, which are hidden from now on. */
  async newPage(): Promise<HiddenPage> {
    const { targetId } = await this.#send<{ targetId: string }>('Target.createTarget', {
      url: 'about:blank',
    });
    const { sessionId } = await this.#send<{ sessionId: string }>('Target.attachToTarget', {
      targetId,
      flatten: true,
    });
    await this.#send('Target.activateTarget', { targetId });
    const page = new HiddenPage(
      (method, params) => this.#send(method, params, sessionId),
      () => this.#send('Target.closeTarget', { targetId }),
    );
    this.#pages.set(sessionId, page);
    return page;
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#send('Browser.close').catch(() => undefined);
    await ended;
    this.#socket.terminate();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  #send<Result>(method: string, params: object = {}, sessionId?: string): Promise<Result> {
    const id = ++this.#count;
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }));
    return new Promise<Result>((resolve, reject) => this.#pending.set(id, { resolve, reject }));
  }

  #take(message: Message): void {
    const { id, sessionId, result, error } = message;
    if (id === undefined) {
      if (sessionId !== undefined) this.#pages.get(sessionId)?.take(message);
      return;
    }
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (error) pending?.reject(new Error(error.message));
    else pending?.resolve(result as never);
  }
}

/** `DevTools listening on ws://127.0.0.1:PORT/...`. */
function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stderr!.setEncoding('utf8').on('data', (more: string) => {
      text += more;
      const [, url] = /listening on (ws:\/\/\S+)/.exec(text) ?? [];
      if (url !== undefined) resolve(url);
    });
    child.once('exit', (code) => reject(new Error(`Chromium ended with ${code}\n${text}`)));
  });
}
