/**
 * Hosts in network namespaces with a switch (switch.c) between them. Needs root, gcc, /dev/net/tun.
 * Namespaces belong to the switch's process, and go with it.
 */
import { execFileSync, spawn, type ChildProcessByStdio } from 'node:child_process';
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { root } from '../support/paths.js';
import { Program } from '../support/processes.js';

const SOURCE = fileURLToPath(new URL('test/net/switch.c', root));
const MOUNT_SYS = 'mount -t sysfs sysfs /sys && exec "$@"';
/** Of all addresses: those that hosts change to are in the same subnet. */
const PREFIX = 16;
/** A host's own queue before the switch: none of its packets is dropped there. */
const HOST_QUEUE_PACKETS = 10_000;

/** Impairments of a link. */
export interface Link {
  /** Of each output port, in Mbit/s. */
  readonly rate: number;
  /** Packets that wait at an output port; one more is dropped. */
  readonly queue: number;
  /** Milliseconds both ways together. */
  readonly rtt: number;
  /** Share of packets lost, both ways. */
  readonly loss?: number;
  /** Share of packets that arrive late, and by how many milliseconds. */
  readonly late?: readonly [share: number, millis: number];
  /** Waiting packets from which on those that allow it are marked. 0: never. */
  readonly ecn?: number;
  /** Bytes of an IP packet; `true`: longer ones are refused by ICMP, `false`: they vanish. */
  readonly mtu?: readonly [bytes: number, icmp: boolean];
}

/** Of one output port, since the link was set. */
export interface PortCounters {
  readonly packets: number;
  readonly dropped: number;
  readonly lost: number;
  readonly marked: number;
  /** Packets that allow to be marked. */
  readonly capable: number;
  readonly tooLong: number;
  /** Packets during an outage. */
  readonly cut: number;
  readonly queueMax: number;
  /** Packets that wait now. */
  readonly queue: number;
  /** IP bytes that arrived, by the host that sent them. */
  readonly carried: readonly number[];
}

/** Why there can be no network here; undefined: there can. */
export function missingForNetwork(): string | undefined {
  if (process.geteuid?.() !== 0) return 'needs root, for network namespaces';
  try {
    accessSync('/dev/net/tun', constants.R_OK | constants.W_OK);
    execFileSync('gcc', ['--version'], { stdio: 'ignore' });
  } catch (error) {
    return `needs gcc and /dev/net/tun: ${(error as Error).message}`;
  }
  return undefined;
}

export class Network {
  readonly hosts: number;
  readonly #folder: string;
  readonly #switch: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: Interface;
  readonly #programs = new Set<Program>();
  #firstNamespace = 0;

  private constructor(hosts: number, folder: string) {
    this.hosts = hosts;
    this.#folder = folder;
    const program = join(folder, 'switch');
    execFileSync('gcc', ['-O2', '-Wall', '-Wextra', '-Werror', '-o', program, SOURCE]);
    this.#switch = spawn(program, [`${hosts}`], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface(this.#switch.stdout);
  }

  static async open(hosts: number): Promise<Network> {
    const network = new Network(hosts, mkdtempSync(join(tmpdir(), 'verbena-net-')));
    network.#firstNamespace = Number(await network.#nextLine());
    for (let host = 1; host <= hosts; host++) {
      const queue = `txqueuelen ${HOST_QUEUE_PACKETS}`;
      for (const words of [
        'link set lo up',
        `address add ${addressOf(host)}/${PREFIX} dev net0`,
        `link set net0 mtu 1500 ${queue} up`,
      ]) {
        network.#runOn(host, 'ip', words.split(' '));
      }
    }
    return network;
  }

  /** Sets the link between all hosts, and counters to 0. TCP forgets what it knows of paths. */
  set({ rate, queue, rtt, loss = 0, late = [0, 0], ecn = 0, mtu = [9000, true] }: Link): void {
    this.#tell(`rate ${rate}`, `queue ${queue}`, `delay ${rtt / 2}`, `loss ${loss}`);
    this.#tell(`late ${late.join(' ')}`, `ecn ${ecn}`, `mtu ${mtu[0]} ${Number(mtu[1])}`, 'down 0');
    for (let host = 1; host <= this.hosts; host++) {
      this.#runOn(host, 'ip', ['tcp_metrics', 'flush']);
      this.#runOn(host, 'ip', ['route', 'flush', 'cache']);
    }
    this.#tell('reset');
  }

  /** Of a running link; see `Link.mtu`. */
  setMtu(bytes: number, icmp: boolean): void {
    this.#tell(`mtu ${bytes} ${Number(icmp)}`);
  }

  /** Nothing passes. */
  cut(isDown: boolean): void {
    this.#tell(`down ${Number(isDown)}`);
  }

  /** MTU of the hosts' own interfaces. */
  setHostMtu(bytes: number): void {
    for (let host = 1; host <= this.hosts; host++) {
      this.#runOn(host, 'ip', ['link', 'set', 'net0', 'mtu', `${bytes}`]);
    }
  }

  /** The host loses its address, and gets another one, which is returned. */
  changeAddress(host: number): string {
    const address = `10.9.1.${host}`;
    // In this order: with its first address, Linux deletes the others of the subnet.
    this.#runOn(host, 'ip', ['address', 'del', `${addressOf(host)}/${PREFIX}`, 'dev', 'net0']);
    this.#runOn(host, 'ip', ['address', 'add', `${address}/${PREFIX}`, 'dev', 'net0']);
    return address;
  }

  /** By host, from index 0 on. */
  async counters(): Promise<readonly PortCounters[]> {
    this.#tell('counters');
    return JSON.parse(await this.#nextLine()) as readonly PortCounters[];
  }

  /** Resolves when this number of bytes of a host have arrived at host 2, or `work` has ended. */
  async untilCarried(bytes: number, work: Promise<unknown>, from = 1): Promise<void> {
    let isOver = false;
    const end = (): void => void (isOver = true);
    work.then(end, end);
    while (!isOver && (await this.counters())[1]!.carried[from - 1]! < bytes) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Starts a program on a host. What still runs is ended by `close`. */
  start(host: number, command: string, args: readonly string[]): Program {
    // Its /sys has its interfaces, with their MTUs.
    const inside = ['unshare', '--mount', 'sh', '-c', MOUNT_SYS, 'sh', command, ...args];
    const program = new Program('nsenter', [this.#namespaceOf(host), ...inside]);
    this.#programs.add(program);
    return program;
  }

  async close(): Promise<void> {
    for (const program of this.#programs) program.kill();
    await Promise.all([...this.#programs].map((program) => program.ended));
    const ended = new Promise((resolve) => this.#switch.once('close', resolve));
    this.#switch.stdin.end();
    await ended;
    rmSync(this.#folder, { recursive: true });
  }

  #namespaceOf(host: number): string {
    return `--net=/proc/${this.#switch.pid}/fd/${this.#firstNamespace + host - 1}`;
  }

  #runOn(host: number, command: string, args: readonly string[]): void {
    execFileSync('nsenter', [this.#namespaceOf(host), command, ...args], { stdio: 'ignore' });
  }

  #tell(...lines: readonly string[]): void {
    this.#switch.stdin.write(`${lines.join('\n')}\n`);
  }

  #nextLine(): Promise<string> {
    return new Promise((resolve, reject) => {
      const closed = (): void => reject(new Error('the switch has ended'));
      this.#lines.once('close', closed);
      this.#lines.once('line', (line) => {
        this.#lines.off('close', closed);
        resolve(line);
      });
    });
  }
}

/** `host` counts from 1. */
export function addressOf(host: number): string {
  return `10.9.0.${host}`;
}
