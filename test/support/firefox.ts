/**
 * Firefox for tests, steered by WebDriver BiDi (https://w3c.github.io/webdriver-bidi) over a
 * WebSocket: what `Browser` and `Tab` need of a browser, no more.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BrowserProcess, BrowserSession } from './browser-process.js';
import { FirefoxKeyboard, FirefoxLocator, FirefoxMouse } from './firefox-input.js';

const EXECUTABLE = process.env['FIREFOX'] ?? '/usr/bin/firefox-esr';

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

type Session = BrowserSession<Message>;

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
  readonly keyboard: FirefoxKeyboard;
  readonly #session: Session;
  readonly #context: string;
  #url = '';

  constructor(session: Session, context: string) {
    this.#session = session;
    this.#context = context;
    const performAs = (type: string) => (actions: readonly object[]) =>
      session.send('input.performActions', { context, actions: [{ type, id: type, actions }] });
    this.mouse = new FirefoxMouse(performAs('pointer'));
    this.keyboard = new FirefoxKeyboard(performAs('key'));
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

  async inputValue(selector: string): Promise<string> {
    const element = `document.querySelector(${JSON.stringify(selector)})`;
    return (await this.evaluate(`${element}.value`)) as string;
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
  readonly #process: BrowserProcess;
  readonly #session: Session;

  private constructor(process: BrowserProcess, session: Session) {
    this.#process = process;
    this.#session = session;
  }

  static launch(executable = EXECUTABLE): Promise<Firefox> {
    const words = (profile: string): readonly string[] => {
      writeFileSync(join(profile, 'user.js'), PREFERENCES);
      const remote = ['--remote-allow-system-access', '--remote-debugging-port', '0'];
      return ['--headless', '--no-remote', '--profile', profile, ...remote];
    };
    const env = (HOME: string) => ({ ...process.env, HOME, MOZ_CRASHREPORTER_DISABLE: '1' });
    return BrowserProcess.launch({ name: 'Firefox', executable, words, env }, async (own, url) => {
      const session = await BrowserSession.open<Message>('Firefox', `${url}/session`);
      await session.send('session.new', { capabilities: {} });
      await stopWatchingWorkers(session);
      await session.send('session.subscribe', { events: ['log.entryAdded'] });
      return new Firefox(own, session);
    });
  }

  async newPage(): Promise<FirefoxPage> {
    const made = await this.#session.send<{ context: string }>('browsingContext.create', {
      type: 'tab',
    });
    return new FirefoxPage(this.#session, made.context);
  }

  async close(): Promise<void> {
    await this.#session.send('browser.close').catch(() => this.#process.kill('SIGTERM'));
    this.#session.close();
    await this.#process.ended();
  }
}

const WATCHER =
  'chrome://remote/content/shared/js-process-actors/WebDriverWorkerListenerActor.sys.mjs';

/**
 * Removes the listener for Workers that a BiDi session registers. With a listener, as under its
 * debugger, Firefox 153 blocks a Worker in `new Worker` until the page's thread has registered the
 * new Worker; the waiting Worker and the new one share a condition variable that wakes only one of
 * them (SetIsDebuggerRegistered), so on a busy page 1 of 40 calls never returned. Without debugger
 * nothing waits there.
 */
async function stopWatchingWorkers(session: Session): Promise<void> {
  const tree = await session.send<{ contexts: readonly { context: string }[] }>(
    'browsingContext.getTree',
    { 'moz:scope': 'chrome' },
  );
  const watcher = `ChromeUtils.importESModule('${WATCHER}')`;
  const { type, exceptionDetails } = await session.send<Evaluated>('script.evaluate', {
    expression: `void ${watcher}.unregisterWebDriverWorkerListenerActor()`,
    target: { context: tree.contexts[0]!.context },
    awaitPromise: false,
  });
  if (type === 'exception') throw new Error(`Firefox: ${exceptionDetails!.text}`);
}
