/**
 * Chromium whose tabs hide each other, by its DevTools protocol alone: playwright keeps every page
 * visible, and a visible page is not frozen.
 */
import { BrowserProcess, BrowserSession } from './browser-process.js';
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
  readonly #process: BrowserProcess;
  readonly #session: BrowserSession<Message>;
  readonly #pages = new Map<string, HiddenPage>();

  private constructor(process: BrowserProcess, session: BrowserSession<Message>) {
    this.#process = process;
    this.#session = session;
    session.onEvent((event) => this.#pages.get(event.sessionId ?? '')?.take(event));
  }

  static launch(): Promise<HiddenChromium> {
    const words = (profile: string): readonly string[] => {
      const own = ['--headless=new', '--remote-debugging-port=0', `--user-data-dir=${profile}`];
      return [...CHROMIUM_FLAGS, ...own, 'about:blank'];
    };
    const program = { name: 'Chromium', executable: CHROMIUM, words } as const;
    return BrowserProcess.launch(program, async (own, url) => {
      const session = await BrowserSession.open<Message>('Chromium', url);
      // As playwright's pages: without it local addresses are names of mDNS.
      await session.send('Browser.grantPermissions', { permissions: ['audioCapture'] });
      return new HiddenChromium(own, session);
    });
  }

  /** In front of the others, which are hidden from now on. */
  async newPage(): Promise<HiddenPage> {
    const session = this.#session;
    const { targetId } = await session.send<{ targetId: string }>('Target.createTarget', {
      url: 'about:blank',
    });
    const { sessionId } = await session.send<{ sessionId: string }>('Target.attachToTarget', {
      targetId,
      flatten: true,
    });
    await session.send('Target.activateTarget', { targetId });
    const page = new HiddenPage(
      (method, params) => session.send(method, params, { sessionId }),
      () => session.send('Target.closeTarget', { targetId }),
    );
    this.#pages.set(sessionId, page);
    return page;
  }

  async close(): Promise<void> {
    await this.#session.send('Browser.close').catch(() => this.#process.kill('SIGTERM'));
    this.#session.close();
    await this.#process.ended();
  }
}
