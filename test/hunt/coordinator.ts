/** Starts the processes of a hunt, stops and kills them, and adds up their findings. */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { openDevice, type Context } from '../../host/index.js';
import { Random } from '../simulation/random.js';
import { auditArena } from '../support/arena-audit.js';
import { PAIR_BYTES } from './mail.js';
import type { MemberReport, MemberTask } from './member.js';

export interface Hunted {
  /** Rounds of each way. */
  readonly verified: { [way: string]: number };
  quiet: number;
  expired: number;
  readonly wrong: string[];
  kills: number;
  stops: number;
  restarts: number;
}

export interface HuntPlan {
  readonly millis: number;
  readonly seed: number;
  readonly name: string;
  readonly address: string;
  readonly progress?: (hunted: Hunted) => void;
}

const OWNERS = 2;
const TARGET = OWNERS;
const THREADS = OWNERS + 1;
const FILE = fileURLToPath(new URL('./member.js', import.meta.url));
/** A short stop catches the target in the middle of a call; some stops are long. */
const STOP_MILLIS = 40;
const LONG_STOP_MILLIS = 7000;
const LONG_STOP_EVERY = 400;
const KILL_EVERY = 40;
const PROGRESS_MILLIS = 10_000;
const END_MILLIS = 20_000;

const sleep = (millis: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, millis));

export class Coordinator {
  readonly hunted: Hunted = {
    verified: {},
    quiet: 0,
    expired: 0,
    wrong: [],
    kills: 0,
    stops: 0,
    restarts: 0,
  };
  readonly #plan: HuntPlan;
  readonly #random: Random;
  readonly #processes: (ChildProcess | undefined)[] = [];
  #task!: Omit<MemberTask, 'role' | 'index' | 'seed' | 'life'>;
  #lives = 0;

  constructor(plan: HuntPlan) {
    this.#plan = plan;
    this.#random = new Random(plan.seed);
  }

  async run(): Promise<void> {
    const { name, address, millis } = this.#plan;
    const device = { name, address, memoryBytes: 64 * 2 ** 20, processesMax: 8 };
    const context = await openDevice(device);
    try {
      const pd = context.allocPd();
      const mail = context.alloc(PAIR_BYTES * OWNERS);
      this.#task = {
        device,
        shareKey: 7,
        shpd: Buffer.from(pd.allocShpd(7)).toString('hex'),
        mail: mail.byteOffset,
        pairs: OWNERS,
        ownerPorts: Array.from({ length: OWNERS }, () => context.local.port),
      };
      for (let index = 0; index <= THREADS; index++) await this.#start(index);
      await this.#disturb(performance.now() + millis);
      await this.#end();
      await this.#audit(context);
    } finally {
      for (const child of this.#processes) child?.kill('SIGKILL');
      await context.close();
    }
  }

  async #start(index: number): Promise<void> {
    const role = index < OWNERS ? 'owner' : index === TARGET ? 'target' : 'threads';
    const seed = this.#random.u32();
    const life = ++this.#lives;
    const own = { address: '127.1.11.9' };
    const device = role === 'threads' ? own : this.#task.device;
    const task: MemberTask = { ...this.#task, device, role, index, seed, life };
    const child = fork(FILE, [JSON.stringify(task)], {
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
    });
    this.#processes[index] = child;
    let errors = '';
    child.stderr!.setEncoding('utf8').on('data', (text: string) => (errors += text));
    child.on('message', (report: MemberReport) => this.#take(report));
    child.once('exit', (code, signal) => {
      if (signal === 'SIGKILL' || code === 0) return;
      this.hunted.wrong.push(`${role} ${index} ended with ${code ?? signal}: ${errors.trim()}`);
    });
    await Promise.race([once(child, 'message'), once(child, 'exit')]);
  }

  #take({ found, restarted }: MemberReport): void {
    const { hunted } = this;
    if (restarted) hunted.restarts++;
    if (!found) return;
    for (const [way, count] of Object.entries(found.verified)) {
      hunted.verified[way] = (hunted.verified[way] ?? 0) + count;
    }
    hunted.quiet += found.quiet;
    hunted.expired += found.expired;
    hunted.wrong.push(...found.wrong);
  }

  /** Stops and kills processes until that time. */
  async #disturb(end: number): Promise<void> {
    const { hunted } = this;
    let told = performance.now();
    for (let count = 1; performance.now() < end && hunted.wrong.length === 0; count++) {
      await sleep(this.#random.below(60));
      if (count % KILL_EVERY === 0) await this.#kill(this.#random.below(THREADS));
      else await this.#stop(count);
      if (performance.now() - told < PROGRESS_MILLIS) continue;
      told = performance.now();
      this.#plan.progress?.(hunted);
    }
  }

  async #stop(count: number): Promise<void> {
    const child = this.#processes[this.#random.below(THREADS)]!;
    this.hunted.stops++;
    child.kill('SIGSTOP');
    await sleep(count % LONG_STOP_EVERY === 0 ? LONG_STOP_MILLIS : this.#random.below(STOP_MILLIS));
    child.kill('SIGCONT');
  }

  async #kill(index: number): Promise<void> {
    const child = this.#processes[index]!;
    this.hunted.kills++;
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    await this.#start(index);
  }

  async #end(): Promise<void> {
    for (const child of this.#processes) child!.kill('SIGTERM');
    const ended = this.#processes.map(async (child) => {
      if (child!.exitCode === null && child!.signalCode === null) await once(child!, 'exit');
    });
    const late = sleep(END_MILLIS).then(() => 'late');
    if ((await Promise.race([Promise.all(ended), late])) === 'late') {
      this.hunted.wrong.push(`a process did not end within ${END_MILLIS} ms`);
    }
  }

  /** Audits the tables after all processes have ended. */
  async #audit(context: Context): Promise<void> {
    const { shared, arena } = context.device;
    for (let look = 0; look < 50 && shared!.processes().length > 1; look++) {
      shared!.members.look();
      await sleep(20);
    }
    this.hunted.wrong.push(...shared!.locked(() => auditArena(arena)));
  }
}
