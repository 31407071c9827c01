/** The demo in a real browser: opened, painted on, pressed, and both its memories looked at. */
import type { Page } from 'playwright-core';
import * as assert from 'uvu/assert';
import { PICTURE_BYTES, SIDE } from '../../host/demo/memory-layout.js';
import type { Inspection } from '../../host/demo/page/inspection.js';
import { DemoServer } from '../../host/demo/server.js';
import { Gid } from '../../host/link/endpoint.js';
import { Browser } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import type { FirefoxPage } from '../support/firefox.js';

/** A link gives signalling 10 s, and a connection 15 s more. */
const LIMIT_MILLIS = 30_000;

export interface DemoPageOptions {
  readonly width?: number;
  readonly height?: number;
  /** Text of a script that runs in the page before its own. */
  readonly before?: string;
}

interface Looked extends Omit<Inspection, 'ours' | 'theirs'> {
  readonly ours: Buffer;
  readonly theirs: Buffer;
}

export class DemoPage {
  readonly page: Page;
  /** Errors on its console, and uncaught exceptions. */
  readonly errors: string[] = [];

  private constructor(page: Page) {
    this.page = page;
    if (!('on' in page)) {
      (page as FirefoxPage).onError((text) => this.errors.push(text));
      return;
    }
    page.on('console', (message) => {
      if (message.type() === 'error') this.errors.push(message.text());
    });
    page.on('pageerror', (error) => this.errors.push(error.message));
  }

  static async open(
    { context }: Browser,
    url: string,
    options: DemoPageOptions = {},
  ): Promise<DemoPage> {
    const page = await context.newPage();
    const demo = new DemoPage(page);
    if (options.before) await page.addInitScript(options.before);
    await page.setViewportSize({ width: options.width ?? 1100, height: options.height ?? 1400 });
    await page.goto(url);
    return demo;
  }

  /** Waits until it has painted its flower at a peer. Returns the milliseconds since its load. */
  async firstWrite(): Promise<number> {
    const isWritten = (millis: number): boolean => !Number.isNaN(millis);
    const millis = await until(async () => (await this.inspect()).firstWriteMillis, isWritten);
    if (!isWritten(millis)) throw new Error(`no WRITE: ${await this.page.textContent('#status')}`);
    return millis;
  }

  /** Until the element says so; what it says. */
  async said(selector: string, wanted: RegExp): Promise<string> {
    const text = await eventuallyText(() => this.page.textContent(selector), wanted);
    return text;
  }

  async inspect(): Promise<Looked> {
    const { ours, theirs, ...rest } = (await this.page.evaluate(`(async () => {
      const text = (bytes) => (bytes ?? new Uint8Array(0)).toBase64();
      const { ours, theirs, ...rest } = await demo.inspect();
      return { ...rest, ours: text(ours), theirs: text(theirs) };
    })()`)) as Omit<Inspection, 'ours' | 'theirs'> & { ours: string; theirs: string };
    return { ...rest, ours: Buffer.from(ours, 'base64'), theirs: Buffer.from(theirs, 'base64') };
  }

  /**
   * Presses the button of an act, and returns its counts when it is over. In front: the browser
   * draws a hidden tab once a second, and a click takes several frames.
   */
  async play(act: string): Promise<Record<string, number>> {
    await this.page.bringToFront();
    await this.page.locator(buttonOf(act)).click();
    return this.played(act);
  }

  /** Waits until the act that plays is over. */
  async played(act: string): Promise<Record<string, number>> {
    // Asked from here: the page's policy evaluates no text, and `waitForFunction` is such.
    const said = this.page.locator(saidOf(act));
    const figures = await until(
      () => said.getAttribute('data-figures'),
      (text) => text !== null,
    );
    if (figures === null) {
      const text = await said.textContent();
      throw new Error(`${act} is not over after ${LIMIT_MILLIS / 1000} s: ${text}`);
    }
    if (figures === '{}') throw new Error(`${act}: ${await said.textContent()}`);
    return JSON.parse(figures) as Record<string, number>;
  }

  /** Shows one of the three acts. */
  async show(act: string): Promise<void> {
    await this.page.locator(`#to-${act}`).click();
    // The page shows it when the address has changed, which may be a moment later.
    await this.page.locator(`#act-${act}`).waitFor();
  }

  /** Clears all pictures; the button may be in an act that does not show. */
  async clear(): Promise<void> {
    await this.page.locator('#clear').dispatchEvent('click');
  }

  /** Moves the pointer from one point of the pane to the other (0 to 1), pressed. */
  async stroke(
    pane: 'ours' | 'theirs',
    [fromX, fromY]: readonly [number, number],
    [toX, toY]: readonly [number, number],
    steps = 8,
  ): Promise<void> {
    // `#inside` scrolls down to the experiments.
    await this.page.locator(`#${pane}`).scrollIntoViewIfNeeded();
    const { x, y, width, height } = (await this.page.locator(`#${pane}`).boundingBox())!;
    const { mouse } = this.page;
    await mouse.move(x + fromX * width, y + fromY * height);
    await mouse.down();
    await mouse.move(x + toX * width, y + toY * height, { steps });
    await mouse.up();
  }

  /** Frames per second, in which the memories are read and drawn, during painting. */
  async framesWhilePainting(): Promise<number> {
    const before = await this.inspect();
    for (let turn = 0; turn < 3; turn++) await this.stroke('ours', [0.1, 0.3], [0.9, 0.7], 25);
    const after = await this.inspect();
    return ((after.frames - before.frames) * 1000) / (after.frameMillis - before.frameMillis);
  }

  async close(): Promise<void> {
    await this.page.close();
  }
}

/** The race and the plug have buttons of their own; experiments are cards. */
const isMain = (act: string): boolean => act === 'race' || act === 'plug';
const buttonOf = (act: string): string => (isMain(act) ? `#go-${act}` : `#act-${act}`);
export const saidOf = (act: string): string =>
  isMain(act) ? `#said-${act}` : `.act:has(#act-${act}) output.said`;

async function eventuallyText(read: () => Promise<string | null>, wanted: RegExp): Promise<string> {
  const deadline = performance.now() + LIMIT_MILLIS;
  for (;;) {
    const text = (await read()) ?? '';
    if (wanted.test(text)) return text;
    if (performance.now() > deadline) throw new Error(`"${text}" does not become ${wanted}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Reads until `isSo`, or until the time is over: the caller judges the last value. */
export async function until<Value>(
  read: () => Value | Promise<Value>,
  isSo: (value: Value) => boolean,
): Promise<Value> {
  const deadline = performance.now() + LIMIT_MILLIS;
  for (;;) {
    const value = await read();
    if (isSo(value) || performance.now() > deadline) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A server, and a browser. */
export interface DemoWorld {
  browser: Browser;
  server: DemoServer;
}

export async function openWorld(world: DemoWorld): Promise<void> {
  world.browser = await Browser.launch();
  world.server = await DemoServer.open({ bind: '127.0.0.1', port: 0 });
}

export async function closeWorld(world: DemoWorld): Promise<void> {
  await world.browser.close();
  await world.server.close();
  await releaseDataChannels();
}

let rooms = 0;

/**
 * The page's address, where tabs meet those of the same call alone. `show`: an act, or `inside`,
 * which opens the experiments below painting.
 */
export function freshUrl({ server }: Pick<DemoWorld, 'server'>, show = 'inside'): string {
  return `${server.url}?room=${++rooms}#${show}`;
}

/** A tab that meets the server only, with a clean picture. */
export async function alone(world: DemoWorld, show?: string): Promise<DemoPage> {
  const tab = await DemoPage.open(world.browser, freshUrl(world, show));
  await tab.firstWrite();
  await tab.clear();
  return tab;
}

/** Two tabs that look at each other. */
export async function two(world: DemoWorld, show?: string): Promise<[DemoPage, DemoPage]> {
  const url = freshUrl(world, show);
  const a = await DemoPage.open(world.browser, url);
  await a.firstWrite();
  const b = await DemoPage.open(world.browser, url, { width: 390, height: 844 });
  for (const tab of [a, b]) {
    const met = (name: unknown): boolean => String(name).startsWith('tab');
    const name = await until(
      () => tab.page.evaluate(`document.querySelector('#peer').selectedOptions[0]?.text`),
      met,
    );
    if (!met(name)) throw new Error(`two tabs do not meet: the peer is ${String(name)}`);
  }
  await greeted(a, b);
  return [a, b];
}

/**
 * Waits until both have painted their flowers, at a place that depends on the address, then wipes
 * the pictures: later strokes are the test's.
 */
async function greeted(a: DemoPage, b: DemoPage): Promise<void> {
  const look = (): Promise<Looked[]> => Promise.all([a.inspect(), b.inspect()]);
  const spot = ({ address }: Looked): number => {
    const { bytes } = Gid.parse(address);
    return (30 + (bytes[15]! % 196)) * SIDE + 30 + (bytes[14]! % 196);
  };
  const isThere = (tabs: readonly Looked[]): boolean =>
    tabs.every(({ ours }) => tabs.every((painter) => ours[spot(painter)]! > 0));
  if (!isThere(await until(look, isThere))) throw new Error('two tabs do not greet each other');
  // It is in front: see `play`.
  await b.clear();
  const isWiped = (tabs: readonly Looked[]): boolean =>
    tabs.every(({ ours }) => picture(ours).every((heat) => heat === 0));
  if (!isWiped(await until(look, isWiped))) throw new Error('what was painted is not wiped');
}

export const picture = (memory: Uint8Array): Buffer =>
  Buffer.from(memory.subarray(0, PICTURE_BYTES));

/** How many bytes of the two pictures differ, once painting has settled. */
export async function differences(tab: DemoPage, other: () => Promise<Uint8Array> | Uint8Array) {
  return until(
    async () => {
      const ours = picture((await tab.inspect()).ours);
      const theirs = picture(await other());
      return ours.filter((byte, at) => byte !== theirs[at]).length;
    },
    (count) => count === 0,
  );
}

export async function leave(...tabs: DemoPage[]): Promise<void> {
  for (const tab of tabs) {
    assert.equal(tab.errors, [], 'nothing on the console');
    await tab.close();
  }
}
