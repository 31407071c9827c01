/**
 * A process of a hunt: an owner or the target of the device named by `task.device`, or both of them
 * in threads of a device of their own.
 */
import { once } from 'node:events';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { openDevice, type Context, type DeviceShare } from '../../host/index.js';
import { PAIR_BYTES } from './mail.js';
import { runOwner, type Found } from './owner.js';
import { runTarget } from './target.js';

export interface MemberTask {
  readonly role: 'owner' | 'target' | 'threads';
  readonly device: { readonly name?: string; readonly address: string };
  readonly shpd?: string;
  readonly shareKey: number;
  /** Address of the block of pairs, and the number of pairs. */
  readonly mail: number;
  readonly pairs: number;
  readonly index: number;
  readonly seed: number;
  readonly life: number;
  readonly ownerPorts: readonly number[];
}

export interface MemberReport {
  readonly found?: Found;
  readonly ready?: boolean;
  readonly restarted?: boolean;
}

interface ThreadTask {
  readonly share: DeviceShare;
  readonly shpd: Uint8Array;
  readonly shareKey: number;
  readonly mail: number;
  readonly life: number;
  readonly ownerPort: number;
  readonly address: string;
}

const THREAD_MILLIS = 1500;

async function asThread({ share, shpd, shareKey, mail, life, ownerPort, address }: ThreadTask) {
  const context = await openDevice({ threadShare: share });
  const pd = context.sharePd(shpd, shareKey);
  const bytes = new Uint8Array(context.device.arena.memory.buffer, mail, PAIR_BYTES);
  const task = { mail: bytes, pairs: 1, ownerAddress: address, ownerPorts: [ownerPort], life };
  parentPort!.postMessage('ready');
  await runTarget(context, pd, task, () => false);
}

/** An owner here, and a target in a Worker that is terminated repeatedly. */
async function asThreads(
  { device, shareKey, seed }: MemberTask,
  tell: (report: MemberReport) => void,
): Promise<void> {
  await using context = await openDevice({
    ...device,
    port: 0,
    threadsMax: 2,
    memoryBytes: 128 * 2 ** 20,
  });
  const pd = context.allocPd();
  const shpd = pd.allocShpd(shareKey);
  const mail = context.alloc(PAIR_BYTES);
  let isStopped = false;
  const lives = (async () => {
    for (let life = 1; !isStopped; life++) {
      const share = context.share({ memoryBytes: 24 * 2 ** 20 });
      const { address } = device;
      const task: ThreadTask = {
        ...{ share, shpd, shareKey, mail: mail.byteOffset, life, address },
        ownerPort: context.local.port,
      };
      const worker = new Worker(new URL(import.meta.url), { workerData: task });
      await once(worker, 'message');
      await new Promise((resolve) => setTimeout(resolve, THREAD_MILLIS));
      await worker.terminate();
      await unshare(context, share);
      tell({ restarted: true });
    }
  })();
  process.once('SIGTERM', () => (isStopped = true));
  tell({ ready: true });
  await runOwner(
    context,
    pd,
    { mail, index: 0, seed },
    (found) => tell({ found }),
    () => isStopped,
  );
  await lives;
}

async function unshare(context: Context, share: DeviceShare): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      return context.unshare(share);
    } catch (error) {
      if ((error as { code?: string }).code !== 'EBUSY' || attempt === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

async function asProcess(task: MemberTask, tell: (report: MemberReport) => void): Promise<void> {
  await using context = await openDevice({ ...task.device });
  const pd = context.sharePd(Buffer.from(task.shpd!, 'hex'), task.shareKey);
  const mail = context.attach(task.mail, PAIR_BYTES * task.pairs);
  let isStopped = false;
  process.once('SIGTERM', () => (isStopped = true));
  tell({ ready: true });
  const { index, seed, pairs, life, ownerPorts, device } = task;
  if (task.role === 'owner') {
    const report = (found: Found): void => tell({ found });
    await runOwner(context, pd, { mail, index, seed }, report, () => isStopped);
  } else {
    const ownerAddress = device.address;
    await runTarget(context, pd, { mail, pairs, ownerAddress, ownerPorts, life }, () => isStopped);
  }
}

if (!isMainThread) await asThread(workerData as ThreadTask);
else {
  const task = JSON.parse(process.argv[2]!) as MemberTask;
  const tell = (report: MemberReport): void => void process.send!(report);
  const abandoned = (): void => process.exit(1);
  process.once('disconnect', abandoned);
  await (task.role === 'threads' ? asThreads : asProcess)(task, tell);
  process.off('disconnect', abandoned);
  process.disconnect();
}
