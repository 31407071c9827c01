/** One Linux guest with rxe, and programs that run in it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { IMAGE } from './image.js';

/** Of the port in the guest that takes commands. */
const AGENT_PORT = 7777;
const MEMORY_MEGABYTES = 512;
/** Software emulation on a busy machine; 6 to 9 s when it is idle. */
const BOOT_SECONDS = 1200;
/** So long a guest that is up may take for nothing at all. */
const ANSWER_MILLIS = 10_000;
/** Nothing takes that long, on a machine that does other things, too: what does, hangs. */
const RUN_SECONDS = 240;

export const NETWORK_MTU = 9000;

export interface GuestEnded {
  /** Undefined when the connection to the guest ended first. */
  readonly code: number | undefined;
  /** Standard output and standard error, as they came. */
  readonly output: string;
}

/** A program in a guest. */
export class GuestProgram {
  readonly ended: Promise<GuestEnded>;
  readonly #guest: Guest;
  readonly #command: string;
  readonly #socket: Socket;
  readonly #waiting = new Set<() => void>();
  #text = '';
  #isEnded = false;

  constructor(guest: Guest, command: string) {
    this.#guest = guest;
    this.#command = command;
    this.#socket = createConnection({ host: guest.ipv4, port: AGENT_PORT });
    this.#socket.setEncoding('latin1');
    this.#socket.write(`${Buffer.from(command).toString('base64')}\n`);
    this.#socket.on('data', (text: string) => {
      this.#text += text;
      this.#wake();
    });
    // A failure shows in the data that came, or did not.
    this.#socket.on('error', () => undefined);
    const closed = new Promise((resolve) => this.#socket.on('close', resolve));
    this.ended = closed.then(() => {
      this.#isEnded = true;
      this.#wake();
      const code = /\0(\d+)\n$/.exec(this.#text)?.[1];
      return { code: code === undefined ? undefined : Number(code), output: this.output };
    });
  }

  /** Output so far. */
  get output(): string {
    const start = this.#text.indexOf('\n') + 1;
    const end = this.#text.lastIndexOf('\0');
    return this.#text.slice(start, end < 0 ? undefined : end);
  }

  /** Waits until what it printed matches. Rejects when it ends without, or takes too long. */
  async printed(pattern: RegExp, seconds = RUN_SECONDS): Promise<RegExpExecArray> {
    const deadline = performance.now() + seconds * 1000;
    for (;;) {
      const found = pattern.exec(this.output);
      if (found) return found;
      const left = deadline - performance.now();
      if (this.#isEnded || left <= 0) {
        const how = this.#isEnded ? 'ended' : `took ${seconds} s`;
        throw new Error(`${this.#command}: ${how} without ${pattern}:\n${this.output}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#waiting.add(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Waits for its end, and ends it when that takes too long. Rejects unless its code is 0. */
  async finished(seconds = RUN_SECONDS): Promise<string> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), seconds * 1000);
    });
    const ended = await Promise.race([this.ended, late]);
    clearTimeout(timer);
    if (!ended) {
      await this.stop();
      throw new Error(`${this.#command}: not done after ${seconds} s\n${this.output.slice(-2000)}`);
    }
    if (ended.code === 0) return ended.output;
    throw new Error(`${this.#command}: ended with ${ended.code}\n${ended.output.slice(-2000)}`);
  }

  /** Ends it, and what it started. */
  async stop(): Promise<void> {
    if (this.#isEnded) return;
    const pid = /^(\d+)\n/.exec(this.#text)?.[1];
    if (pid !== undefined) await this.#guest.run(`kill -KILL -${pid} || true`);
    else this.abandon();
    await this.ended;
  }

  /** Forgets it: its guest is gone, or about to be. */
  abandon(): void {
    this.#socket.destroy();
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }
}

export interface GuestOptions {
  /** Its wire. */
  readonly tap: string;
  /** Folder that the guest mounts as /host. */
  readonly share: string;
  /** For its log. */
  readonly folder: string;
  /** Default 512. */
  readonly megabytes?: number;
  /** For its first process (guest/init), as `name=value`. */
  readonly words?: readonly string[];
  /** For QEMU. */
  readonly args?: readonly string[];
}

export class Guest {
  /** From 1. */
  readonly number: number;
  readonly ipv4: string;
  readonly ipv6: string;
  readonly #log: string;
  readonly #machine: ChildProcess;
  readonly #programs = new Set<GuestProgram>();

  /** Starts it in this network namespace. */
  constructor(number: number, options: GuestOptions) {
    this.number = number;
    this.ipv4 = `10.77.0.${number + 1}`;
    this.ipv6 = `fd77::${number + 1}`;
    this.#log = join(options.folder, `guest-${number}.log`);
    const more = (options.words ?? []).map((word) => `guest.${word}`);
    const words = [`guest.number=${number}`, `guest.mtu=${NETWORK_MTU}`, ...more];
    // With us it ends, too, however we end.
    const args = [
      ...['--pdeathsig', 'KILL', 'qemu-system-x86_64'],
      // Emulated, cmpxchg16b may come back with wrong flags: a guest's kernel dies in its allocator.
      ...['-machine', 'q35,nvdimm=on,accel=tcg', '-cpu', 'max,-cx16', '-smp', '1'],
      ...['-m', `${options.megabytes ?? MEMORY_MEGABYTES},slots=2,maxmem=4G`],
      ...['-nodefaults', '-no-reboot', '-display', 'none', '-serial', `file:${this.#log}`],
      ...['-kernel', join(IMAGE, 'vmlinuz'), '-initrd', join(IMAGE, 'initrd')],
      '-append',
      // A busy machine is too slow for the kernel's test of its timers, and it would panic.
      `console=ttyS0 quiet panic=-1 mitigations=off no_timer_check ` +
        `guest.port=${AGENT_PORT} ${words.join(' ')}`,
      ...['-netdev', `tap,id=wire,ifname=${options.tap},script=no,downscript=no`],
      ...['-device', `virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:77:00:0${number}`],
      '-virtfs',
      `local,path=${options.share},mount_tag=host,security_model=none,id=share`,
      ...['-device', 'virtio-rng-pci'],
      ...['-object', 'memory-backend-ram,id=persistent,size=64M'],
      ...['-device', 'nvdimm,memdev=persistent,id=nvdimm'],
      ...(options.args ?? []),
    ];
    this.#machine = spawn('setpriv', args, { stdio: ['ignore', 'ignore', 'inherit'] });
    this.#machine.on('error', () => undefined);
  }

  /** Resolves when it takes commands. */
  async booted(): Promise<void> {
    const deadline = performance.now() + BOOT_SECONDS * 1000;
    while (performance.now() < deadline) {
      if (this.isGone) break;
      const attempt = new GuestProgram(this, 'true');
      const answer = await Promise.race([attempt.ended, wait(ANSWER_MILLIS)]);
      if (answer?.code === 0) return;
      attempt.abandon();
      await wait(200);
    }
    throw new Error(`guest ${this.number} does not start:\n${this.console.slice(-2000)}`);
  }

  /** Waits until something in it listens on a TCP port. */
  async listening(port: number, seconds = 20): Promise<void> {
    const hex = port.toString(16).toUpperCase().padStart(4, '0');
    const found = `cat /proc/net/tcp /proc/net/tcp6 | grep -q ':${hex} [0-9A-F]*:0000 0A'`;
    await this.run(`until ${found}; do sleep 0.05; done`, seconds);
  }

  /** Has its machine ended: did its kernel panic? */
  get isGone(): boolean {
    const { pid, exitCode, signalCode } = this.#machine;
    return pid === undefined || exitCode !== null || signalCode !== null;
  }

  /** Last messages of its kernel. */
  get lastWords(): string {
    const { console } = this;
    const fault = console.search(/BUG:|Oops|general protection|Kernel panic/);
    return fault < 0 ? console.slice(-2000) : console.slice(fault - 200, fault + 6000);
  }

  /** Its console. */
  get console(): string {
    try {
      return readFileSync(this.#log, 'latin1').replaceAll('\r', '');
    } catch {
      return '';
    }
  }

  /** Starts a shell command. */
  spawn(command: string): GuestProgram {
    const program = new GuestProgram(this, command);
    this.#programs.add(program);
    void program.ended.then(() => this.#programs.delete(program));
    return program;
  }

  /** Runs a shell command to its end; returns what it prints. Rejects unless its code is 0. */
  run(command: string, seconds = RUN_SECONDS): Promise<string> {
    return this.spawn(command).finished(seconds);
  }

  async stop(): Promise<void> {
    // Its connections end without a disconnect.
    for (const program of this.#programs) program.abandon();
    if (this.isGone) return;
    const gone = once(this.#machine, 'exit');
    this.#machine.kill('SIGKILL');
    await gone;
  }
}

function wait(millis: number): Promise<undefined> {
  return new Promise((resolve) => setTimeout(() => resolve(undefined), millis));
}
