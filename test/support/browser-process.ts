/** A browser in a process of its own, steered over a WebSocket whose address it prints. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';

const START_MILLIS = 60_000;

export interface BrowserProgram {
  readonly name: 'Firefox' | 'Chromium';
  readonly executable: string;
  /** Prepares the profile, and returns the words of the command. */
  readonly words: (profile: string) => readonly string[];
  readonly env?: (profile: string) => NodeJS.ProcessEnv;
}

export class BrowserProcess {
  readonly #child: ChildProcess;
  readonly #profile: string;
  /** Of a process that could not be started: when that is known. */
  readonly #ended: Promise<void>;

  private constructor(child: ChildProcess, profile: string) {
    this.#child = child;
    this.#profile = profile;
    this.#ended = new Promise((resolve) => child.once('exit', resolve).once('error', resolve));
    // A process that cannot be ended (kill) emits another one.
    child.on('error', () => undefined);
  }

  /** Returns the result of `open`. If it fails, the process and the profile are gone. */
  static async launch<Opened>(
    { name, executable, words, env }: BrowserProgram,
    open: (process: BrowserProcess, url: string) => Promise<Opened>,
  ): Promise<Opened> {
    const profile = mkdtempSync(join(tmpdir(), `verbena-${name.toLowerCase()}-`));
    let browser: BrowserProcess | undefined;
    try {
      const child = spawn(executable, words(profile), {
        stdio: ['ignore', 'ignore', 'pipe'],
        env: env?.(profile) ?? process.env,
      });
      browser = new BrowserProcess(child, profile);
      return await open(browser, await addressOf(name, child));
    } catch (error) {
      browser?.kill('SIGKILL');
      await (browser ? browser.ended() : removeProfile(profile));
      throw error;
    }
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Waits for its end, and removes its profile. */
  async ended(): Promise<void> {
    await this.#ended;
    removeProfile(this.#profile);
  }
}

function removeProfile(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}

/** `WebDriver BiDi listening on ws://127.0.0.1:PORT`, `DevTools listening on ws://…`. */
function addressOf(name: string, child: ChildProcess): Promise<string> {
  return new Promise<string>((resolve, reject) => {
    let text = '';
    const fail = (reason: string): void => {
      clearTimeout(timer);
      reject(new Error(`${name} ${reason}\n${text}`));
    };
    const timer = setTimeout(() => fail('does not start'), START_MILLIS);
    child.stderr!.setEncoding('utf8').on('data', (more: string) => {
      text += more;
      const [, url] = /listening on (ws:\/\/\S+)/.exec(text) ?? [];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve(url);
    });
    child.once('error', ({ message }) => fail(`cannot be started: ${message}`));
    child.once('exit', (code, signal) => fail(`ended with ${code ?? signal}`));
  });
}

/** Part that both protocols have: WebDriver BiDi, and DevTools. */
interface Reply {
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: string | { readonly message: string };
  /** Beside an `error` that is a string. */
  readonly message?: string;
}

/** Commands and events of one session. */
export class BrowserSession<Event extends Reply> {
  readonly #name: string;
  readonly #socket: WebSocket;
  readonly #pending = new Map<
    number,
    { resolve(value: never): void; reject(error: Error): void }
  >();
  readonly #listeners = new Set<(event: Event) => void>();
  #count = 0;

  private constructor(name: string, socket: WebSocket) {
    this.#name = name;
    this.#socket = socket;
    socket.on('message', (data) => this.#take(JSON.parse(String(data)) as Event));
    socket.on('close', () => {
      for (const { reject } of this.#pending.values()) reject(this.#hasEnded());
      this.#pending.clear();
    });
  }

  static async open<Event extends Reply>(
    name: string,
    url: string,
  ): Promise<BrowserSession<Event>> {
    const socket = new WebSocket(url, { handshakeTimeout: START_MILLIS });
    // One that comes later is followed by `close`.
    await new Promise((resolve, reject) => socket.once('open', resolve).on('error', reject));
    return new BrowserSession(name, socket);
  }

  onEvent(listener: (event: Event) => void): void {
    this.#listeners.add(listener);
  }

  /** `more`: beside method and parameters. Rejects when the browser has ended. */
  async send<Result>(method: string, params: object = {}, more: object = {}): Promise<Result> {
    if (this.#socket.readyState !== WebSocket.OPEN) throw this.#hasEnded();
    const id = ++this.#count;
    this.#socket.send(JSON.stringify({ id, method, params, ...more }));
    return new Promise<Result>((resolve, reject) => this.#pending.set(id, { resolve, reject }));
  }

  close(): void {
    this.#socket.terminate();
  }

  #hasEnded(): Error {
    return new Error(`${this.#name} has ended`);
  }

  #take(message: Event): void {
    const { id, result, error } = message;
    if (id === undefined) {
      for (const listener of this.#listeners) listener(message);
      return;
    }
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (error === undefined) pending?.resolve(result as never);
    else if (typeof error === 'string')
      pending?.reject(new Error(`${error}: ${message.message ?? ''}`));
    else pending?.reject(new Error(error.message));
  }
}
