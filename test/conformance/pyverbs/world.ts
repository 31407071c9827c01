/**
 * Where a test runs: two or more devices, and time. Every test of this folder runs three times: on
 * a perfect wire in virtual time, over UDP sockets in real time, and on a wire that loses 5 % of
 * all packets, in virtual time. A test asks its world for devices, and lets it go on until
 * something has come about.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'uvu';
import {
  Endpoint,
  Gid,
  LoopbackNetwork,
  UdpLink,
  VirtualClock,
  faultLink,
  openDevice,
  type Context,
  type Link,
  type OpenOptions,
} from '../../../host/index.js';
import { RAN_FOLDER, WORLD_NAMES, type Ran, type WorldName } from './ran.js';

const LOSS = 0.05;
const MEMORY_BYTES = 4 * 2 ** 20;
/** Real or virtual seconds after which what did not come about never will. */
const PATIENCE_SECONDS = 20;
/** On one machine a datagram that has not come by then is lost. */
const SOON_MILLIS = 500;

export abstract class World {
  abstract readonly name: WorldName;
  readonly contexts: Context[] = [];

  /** One more device. */
  async open(options: Partial<OpenOptions> = {}): Promise<Context> {
    const context = await openDevice({
      memoryBytes: MEMORY_BYTES,
      ...options,
      ...this.place(this.contexts.length),
    } as OpenOptions);
    this.contexts.push(context);
    return context;
  }

  /** Goes on until `done`. Throws when it never is. */
  abstract until(done: () => boolean, what: string): Promise<void>;

  /** Goes on until `done`, or until only an action could change it. Returns `done()`. */
  abstract soon(done: () => boolean): Promise<boolean>;

  async close(): Promise<void> {
    for (const context of this.contexts) await context.close();
  }

  /** Link and clock of the device with this index. */
  protected abstract place(index: number): Partial<OpenOptions>;
}

/** A wire in virtual time, perfect or not. */
class VirtualWorld extends World {
  readonly name: WorldName;
  readonly #clock = new VirtualClock();
  readonly #network = new LoopbackNetwork({ auto: false });

  constructor(name: WorldName) {
    super();
    this.name = name;
  }

  protected place(index: number): Partial<OpenOptions> {
    const clock = this.#clock;
    const link = this.#network.link(new Endpoint(Gid.parse(`10.9.0.${index + 1}`), 4791));
    return { clock, link: this.name === 'loss' ? this.#lossy(link, index) : link };
  }

  #lossy(link: Link, seed: number): Link {
    const clock = this.#clock;
    const schedule = (delay: number, action: () => void) => clock.at(clock.now() + delay, action);
    return faultLink(link, { loss: LOSS, seed: seed + 1, scheduler: { schedule } });
  }

  async until(done: () => boolean, what: string): Promise<void> {
    const end = this.#clock.now() + PATIENCE_SECONDS * 1e6;
    for (;;) {
      // A waiter for a promise runs before time goes on: it may have something to send.
      while (this.#settle()) await new Promise((resolve) => setImmediate(resolve));
      await Promise.resolve();
      if (done()) return;
      let next = this.#clock.nextMicros();
      if (next === undefined) {
        // A promise may have others behind it.
        await new Promise((resolve) => setImmediate(resolve));
        if (done()) return;
        next = this.#clock.nextMicros();
      }
      if (next === undefined) throw new Error(`${what}: never, nothing is under way any more`);
      if (next > end) throw new Error(`${what}: not within ${PATIENCE_SECONDS} virtual seconds`);
      this.#clock.step();
    }
  }

  async soon(done: () => boolean): Promise<boolean> {
    this.#settle();
    await Promise.resolve();
    return done();
  }

  /** Delivers what travels. Was there any? */
  #settle(): boolean {
    let any = false;
    while (this.#network.deliver() > 0) any = true;
    return any;
  }
}

/** Real sockets on this machine, real time. */
class UdpWorld extends World {
  readonly name = 'udp';
  #devices = 0;

  /**
   * Devices of different ports have no multicast group in common. So they have the same port, and
   * addresses that no other process has.
   */
  protected place(): Partial<OpenOptions> {
    const { pid } = process;
    const address = `127.${200 + this.#devices++}.${(pid >> 8) & 255}.${pid & 255}`;
    return { link: new UdpLink({ address }) };
  }

  async until(done: () => boolean, what: string): Promise<void> {
    const end = performance.now() + PATIENCE_SECONDS * 1000;
    while (!done()) {
      if (performance.now() > end) throw new Error(`${what}: not within ${PATIENCE_SECONDS} s`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async soon(done: () => boolean): Promise<boolean> {
    const end = performance.now() + SOON_MILLIS;
    while (performance.now() < end) {
      if (done()) return true;
      await new Promise((resolve) => setImmediate(resolve));
    }
    return false;
  }
}

/** Tests that ran to their end, by the upstream test they stand for: report.ts reads it. */
const ran = new Map<string, Ran>();

/**
 * Defines a test that runs in every world. `upstream`: the test of rdma-core that it stands for,
 * without `test_`; pyverbs.md says the same the other way round.
 */
function define(upstream: string, name: string, body: (world: World) => Promise<void>): void {
  for (const worldName of WORLD_NAMES) {
    test(`${name} [${worldName}]`, async () => {
      const world = worldName === 'udp' ? new UdpWorld() : new VirtualWorld(worldName);
      try {
        await body(world);
      } finally {
        await world.close();
      }
      const record = ran.get(upstream) ?? { name, worlds: [] };
      record.worlds.push(worldName);
      ran.set(upstream, record);
    });
  }
}

/** Runs the file's tests, and leaves word of what ran. */
function run(): void {
  const name = basename(process.argv[1]!).replace('.test.js', '');
  test.after(() => {
    mkdirSync(RAN_FOLDER, { recursive: true });
    const record = JSON.stringify(Object.fromEntries(ran));
    writeFileSync(new URL(`${name}.json`, RAN_FOLDER), record);
    // The next file of this process has tests of its own.
    ran.clear();
  });
  test.run();
}

export const everywhere = Object.assign(define, { run });
