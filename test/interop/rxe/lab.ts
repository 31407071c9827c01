/**
 * A bridge with guests on it, in the network namespace that this process is in. We are 10.77.0.1 and
 * fd77::1, guest N is 10.77.0.(N+1) and fd77::(N+1), the MTU is 9000: enough for path MTU 4096.
 */
import { mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Program, cliPath } from '../../support/processes.js';
import { run, type Output } from '../tools.js';
import { Guest, NETWORK_MTU } from './guest.js';
import { IMAGE } from './image.js';

const BRIDGE = 'br0';

export class Lab {
  readonly ipv4 = '10.77.0.1';
  readonly ipv6 = 'fd77::1';
  readonly guests: readonly Guest[];
  /** A folder that every guest sees as /host. */
  readonly share: string;
  readonly #programs: Program[] = [];
  readonly #compiled = new Map<string, Promise<string>>();

  private constructor(share: string, guests: readonly Guest[]) {
    this.share = share;
    this.guests = guests;
  }

  /** Builds the bridge and starts the guests. `folder`: for their logs and the share. */
  static async open(folder: string, guestCount: number): Promise<Lab> {
    const share = join(folder, 'share');
    mkdirSync(share);
    const ip = (...args: string[]): Promise<Output> => run('ip', args);
    await ip('link', 'set', 'lo', 'up');
    await ip('link', 'add', BRIDGE, 'type', 'bridge');
    await ip('link', 'set', BRIDGE, 'mtu', `${NETWORK_MTU}`);
    await ip('address', 'add', '10.77.0.1/24', 'dev', BRIDGE);
    await ip('address', 'add', 'fd77::1/64', 'dev', BRIDGE, 'nodad');
    await ip('link', 'set', BRIDGE, 'up');
    const guests: Guest[] = [];
    const lab = new Lab(share, guests);
    try {
      for (let number = 1; number <= guestCount; number++) {
        const tap = `tap${number}`;
        await ip('tuntap', 'add', 'dev', tap, 'mode', 'tap');
        await ip('link', 'set', tap, 'mtu', `${NETWORK_MTU}`, 'master', BRIDGE, 'up');
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
    await Promise.all(this.guests.map((guest) => guest.stop()));
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
    ]);
    return `/host/${name}`;
  }
}
