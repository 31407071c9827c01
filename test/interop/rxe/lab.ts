/**
 * A bridge with guests on it, in the network namespace that this process is in. We are 10.77.0.1
 * and fd77::1, guest N is 10.77.0.(N+1) and fd77::(N+1), the MTU is 9000: enough for path MTU 4096.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Program, cliPath } from '../../support/processes.js';
import { run, type Output } from '../tools.js';
import { Guest, NETWORK_MTU, type GuestOptions } from './guest.js';
import { IMAGE } from './image.js';

const BRIDGE = 'br0';
/**
 * Its own. Without one a bridge has the lowest of its interfaces', so another one when one joins;
 * and Linux gives a connection up that it is making when its neighbour's address changes
 * (cma_netevent_callback: UNREACHABLE, and a REJ with TIMEOUT to us).
 */
const BRIDGE_ADDRESS = '02:00:00:00:77:01';
const LOWEST_ADDRESS = '02:00:00:00:00:01';

/**
 * Every so-manieth and every so-manieth: two primes, each for half of the losses. Where one period
 * is what a side sends in one go, the same packet is lost in every retry.
 */
function lossPeriods(percent: number): readonly number[] {
  const periods: { readonly [percent: number]: readonly number[] } = { 1: [197, 211], 5: [37, 43] };
  return periods[percent] ?? [Math.round(100 / percent)];
}

function ip(...args: string[]): Promise<Output> {
  return run('ip', args);
}

async function addTap(tap: string, address?: string): Promise<void> {
  await ip('tuntap', 'add', 'dev', tap, 'mode', 'tap');
  if (address !== undefined) await ip('link', 'set', tap, 'address', address);
  await ip('link', 'set', tap, 'mtu', `${NETWORK_MTU}`, 'master', BRIDGE, 'up');
}

export class Lab {
  readonly ipv4 = '10.77.0.1';
  readonly ipv6 = 'fd77::1';
  readonly guests: Guest[];
  /** A folder that every guest sees as /host. */
  readonly share: string;
  /** For files of this run. */
  readonly folder: string;
  readonly #programs: Program[] = [];
  readonly #booted: Guest[] = [];
  readonly #taps = new Set<string>();
  readonly #compiled = new Map<string, Promise<string>>();

  private constructor(folder: string, share: string, guests: Guest[]) {
    this.folder = folder;
    this.share = share;
    this.guests = guests;
  }

  /**
   * Starts one more guest, of a number that no other has; it may be stopped, and started again.
   * Resolves when it takes commands.
   */
  async boot(number: number, options: Omit<GuestOptions, 'tap' | 'share' | 'folder'>) {
    const tap = `tap${number}`;
    if (!this.#taps.has(tap)) await addTap(tap);
    this.#taps.add(tap);
    const guest = new Guest(number, { ...options, tap, share: this.share, folder: this.folder });
    this.#booted.push(guest);
    await guest.booted();
    return guest;
  }

  /** An interface joins the bridge whose address is below those of all others. Once. */
  join(): Promise<void> {
    return addTap('lowest', LOWEST_ADDRESS);
  }

  /** Starts guests anew whose kernels are gone. Returns what those said last. */
  async revive(): Promise<string[]> {
    const told: string[] = [];
    for (const [index, guest] of this.guests.entries()) {
      if (!guest.isGone) continue;
      const { number } = guest;
      told.push(`guest ${number} is gone; its last words:\n${guest.lastWords}`);
      const { share, folder } = this;
      const next = new Guest(number, { tap: `tap${number}`, share, folder });
      this.guests[index] = next;
      await next.booted();
    }
    return told;
  }

  /** Builds the bridge and starts the guests. `folder`: for their logs and the share. */
  static async open(folder: string, guestCount: number): Promise<Lab> {
    const share = join(folder, 'share');
    mkdirSync(share);
    await ip('link', 'set', 'lo', 'up');
    await ip('link', 'add', BRIDGE, 'address', BRIDGE_ADDRESS, 'type', 'bridge');
    await ip('link', 'set', BRIDGE, 'mtu', `${NETWORK_MTU}`);
    await ip('address', 'add', '10.77.0.1/24', 'dev', BRIDGE);
    await ip('address', 'add', 'fd77::1/64', 'dev', BRIDGE, 'nodad');
    await ip('link', 'set', BRIDGE, 'up');
    const guests: Guest[] = [];
    const lab = new Lab(folder, share, guests);
    try {
      for (let number = 1; number <= guestCount; number++) {
        const tap = `tap${number}`;
        await addTap(tap);
        guests.push(new Guest(number, { tap, share, folder }));
      }
      await Promise.all(guests.map((guest) => guest.booted()));
      return lab;
    } catch (error) {
      await lab.close();
      throw error;
    }
  }

  /** The first guest: most groups need no other. */
  get guest(): Guest {
    return this.guests[0]!;
  }

  /** Starts a program of this machine in the namespace. What still runs is ended by `close`. */
  spawn(command: string, ...args: readonly (string | number)[]): Program {
    const program = new Program(command, args.map(String));
    this.#programs.push(program);
    return program;
  }

  /** Starts `verbena` with these words. */
  verbena(...args: readonly (string | number)[]): Program {
    return this.spawn(process.execPath, cliPath, ...args);
  }

  /** Runs a program of this machine in the namespace. Rejects unless its code is 0. */
  run(command: string, args: readonly string[], seconds?: number): Promise<Output> {
    return run(command, args, seconds);
  }

  /**
   * While `use` runs, `percent` of the RoCEv2 packets that a guest gets are lost, and of those that
   * we get: at fixed intervals, the same in every run, among the first `packets` at each place.
   * Rejects when no packet was lost: then nothing was proven.
   */
  async withLoss<T>(
    percent: number,
    use: () => Promise<T>,
    packets = 999_999_999,
  ): Promise<{ result: T; lost: number }> {
    const among = `numgen inc mod 1000000000 < ${packets}`;
    const lose = lossPeriods(percent).map(
      (period) => `udp dport 4791 ${among} numgen inc mod ${period} ${period >> 1} counter drop`,
    );
    return this.withDrops(lose, use);
  }

  /**
   * The same with matches of nft and their verdict (`udp dport 4791 @th,64,8 0x0a counter drop` is
   * every RDMA WRITE ONLY). They apply where packets arrive, in the guests and here: if a packet is
   * dropped where it leaves, rxe gets an error and gives up.
   */
  async withDrops<T>(
    matches: readonly string[],
    use: () => Promise<T>,
  ): Promise<{ result: T; lost: number }> {
    const script = [
      'add table inet loss',
      'add chain inet loss input { type filter hook input priority 0; }',
      ...matches.map((match) => `add rule inet loss input ${match}`),
    ].join('\n');
    const places = [
      (text: string): Promise<string> => this.#nft(text),
      ...this.guests.map((guest) => (text: string) => guest.run(`nft -f - <<'END'\n${text}\nEND`)),
    ];
    const added: typeof places = [];
    try {
      for (const place of places) {
        await place(script);
        added.push(place);
      }
      const result = await use();
      const tables = await Promise.all(places.map((place) => place('list table inet loss')));
      const counts = tables.flatMap((table) => [...table.matchAll(/counter packets (\d+)/g)]);
      const lost = counts.reduce((sum, [, count]) => sum + Number(count), 0);
      if (lost === 0) throw new Error('no packet was lost');
      return { result, lost };
    } finally {
      for (const place of added) await place('delete table inet loss');
    }
  }

  /**
   * Compiles a C program against the guest's own libibverbs and librdmacm, once; returns its path in
   * a guest.
   */
  compile(source: string): Promise<string> {
    let made = this.#compiled.get(source);
    if (!made) {
      made = this.#compile(source);
      this.#compiled.set(source, made);
    }
    return made;
  }

  async close(): Promise<void> {
    for (const program of this.#programs) program.kill('SIGKILL');
    await Promise.all(this.#programs.map((program) => program.ended));
    await Promise.all([...this.guests, ...this.#booted].map((guest) => guest.stop()));
  }

  async #nft(script: string): Promise<string> {
    const file = join(this.folder, 'rules.nft');
    writeFileSync(file, script);
    return (await run('nft', ['-f', file])).stdout;
  }

  async #compile(source: string): Promise<string> {
    const name = basename(source, '.c');
    const include = join(IMAGE, 'include');
    const libraries = join(IMAGE, 'root/usr/lib/x86_64-linux-gnu');
    await run('gcc', [
      ...['-O1', '-g', '-Wall', '-Wextra', '-Werror', `-I${include}`],
      ...[`-I${include}/x86_64-linux-gnu`, '-o', join(this.share, name), source],
      ...[`-L${libraries}`, `-Wl,-rpath-link,${libraries}`],
      ...['-l:libibverbs.so.1', '-l:librdmacm.so.1'],
      ...(readFileSync(source, 'utf8').includes('<librpma.h>') ? ['-l:librpma.so.0'] : []),
    ]);
    return `/host/${name}`;
  }
}
