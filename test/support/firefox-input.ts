/** Elements and the pointer of a Firefox page: methods of playwright that the demo's tests use. */
import { until } from './until.js';

const WAIT_MILLIS = 30_000;

/** Part of a page that elements need. */
export interface Evaluator {
  evaluate(expression: string): Promise<unknown>;
  readonly mouse: FirefoxMouse;
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The pointer, by input.performActions. */
export class FirefoxMouse {
  readonly #perform: (actions: readonly object[]) => Promise<unknown>;
  #at: readonly [number, number] = [0, 0];

  constructor(perform: (actions: readonly object[]) => Promise<unknown>) {
    this.#perform = perform;
  }

  async move(x: number, y: number, { steps = 1 } = {}): Promise<void> {
    const [fromX, fromY] = this.#at;
    this.#at = [x, y];
    const moves = Array.from({ length: steps }, (_, index) => {
      const part = (index + 1) / steps;
      const [atX, atY] = [fromX + part * (x - fromX), fromY + part * (y - fromY)];
      return { type: 'pointerMove', x: Math.round(atX), y: Math.round(atY), duration: 0 };
    });
    await this.#perform(moves);
  }

  async down(): Promise<void> {
    await this.#perform([{ type: 'pointerDown', button: 0 }]);
  }

  async up(): Promise<void> {
    await this.#perform([{ type: 'pointerUp', button: 0 }]);
  }
}

/** Names of keys that are no text, and their characters in WebDriver (17.4.2, Keyboard actions). */
const KEYS: Readonly<Record<string, string>> = { Enter: '\uE007', Space: ' ', Tab: '\uE004' };

/** The keyboard, by input.performActions. */
export class FirefoxKeyboard {
  readonly #perform: (actions: readonly object[]) => Promise<unknown>;

  constructor(perform: (actions: readonly object[]) => Promise<unknown>) {
    this.#perform = perform;
  }

  /** A key of `KEYS`, or a character. */
  async press(key: string): Promise<void> {
    const value = KEYS[key] ?? key;
    if (value.length !== 1) throw new TypeError(`press: "${key}" is no key of KEYS: add it there`);
    await this.#perform(['keyDown', 'keyUp'].map((type) => ({ type, value })));
  }
}

/** The first element of a selector, whenever it is used. */
export class FirefoxLocator {
  readonly #page: Evaluator;
  readonly #all: string;

  /** `hasText`: text that the element contains. */
  constructor(page: Evaluator, selector: string, { hasText = '' } = {}) {
    this.#page = page;
    const all = `[...document.querySelectorAll(${JSON.stringify(selector)})]`;
    const has = `(each) => each.textContent.includes(${JSON.stringify(hasText)})`;
    this.#all = `${all}.filter(${has})`;
  }

  first(): this {
    return this;
  }

  async count(): Promise<number> {
    return (await this.#page.evaluate(`${this.#all}.length`)) as number;
  }

  async waitFor({ timeout = WAIT_MILLIS } = {}): Promise<void> {
    await until(
      () => this.#of(`(each) => each?.checkVisibility() ?? false`) as Promise<boolean>,
      timeout,
      `${this.#all} is visible`,
    );
  }

  /** By the pointer, once the element is visible and enabled. */
  async click(): Promise<void> {
    await this.waitFor();
    await until(
      () => this.#of('(each) => !each.disabled') as Promise<boolean>,
      WAIT_MILLIS,
      `${this.#all} is enabled`,
    );
    await this.scrollIntoViewIfNeeded();
    const { x, y, width, height } = await this.boundingBox();
    const { mouse } = this.#page;
    await mouse.move(x + width / 2, y + height / 2);
    await mouse.down();
    await mouse.up();
  }

  async focus(): Promise<void> {
    await this.#of('(each) => each.focus()');
  }

  async fill(value: string): Promise<void> {
    const text = JSON.stringify(value);
    await this.#of(`(each) => {
      each.value = ${text};
      for (const kind of ['input', 'change']) {
        each.dispatchEvent(new Event(kind, { bubbles: true }));
      }
    }`);
  }

  async dispatchEvent(kind: string): Promise<void> {
    await this.#of(`(each) => void each.dispatchEvent(
      new MouseEvent(${JSON.stringify(kind)}, { bubbles: true, cancelable: true }))`);
  }

  textContent(): Promise<string | null> {
    return this.#of('(each) => each.textContent') as Promise<string | null>;
  }

  getAttribute(name: string): Promise<string | null> {
    return this.#of(`(each) => each.getAttribute(${JSON.stringify(name)})`) as Promise<
      string | null
    >;
  }

  async scrollIntoViewIfNeeded(): Promise<void> {
    await this.#of(`(each) => {
      const { top, bottom } = each.getBoundingClientRect();
      if (top >= 0 && bottom <= innerHeight) return;
      each.scrollIntoView({ behavior: 'instant', block: 'center' });
    }`);
  }

  async boundingBox(): Promise<Box> {
    return (await this.#of(`(each) => {
      const { x, y, width, height } = each.getBoundingClientRect();
      return { x, y, width, height };
    }`)) as Box;
  }

  #of(action: string): Promise<unknown> {
    return this.#page.evaluate(`(${action})(${this.#all}[0])`);
  }
}
