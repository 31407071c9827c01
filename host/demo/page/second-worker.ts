/** The second Worker of a tab, with a context of the same device: its client, and its own side. */
import type { DeviceShare } from '../../device/sharing/thread-share.js';
import { DataChannelLink } from '../../link/channel/data-channel.js';
import { WebSocketLink } from '../../link/channel/websocket.js';
import { openDevice } from '../../verbs/open-device.js';
import { SecondContext, type SharingContext, type DomainShare } from '../second-context.js';
import type { Session } from '../session.js';
import type { Opened } from './open-endpoint.js';
import { signallingTo, socketUrl } from './ways.js';

/** Of the device's memory: for its queues. */
const MEMORY_BYTES = 4 * 2 ** 20;
const LIMITS = { queuePairsMax: 16, completionQueuesMax: 32, sharedReceiveQueuesMax: 1 };
/** Longer than a connection takes to fail. */
const LIMIT_MILLIS = 20_000;

interface Opening {
  readonly share: DeviceShare;
  readonly room: string | undefined;
  readonly kind: Session['kind'];
  readonly domain: DomainShare;
}

type Request = Opening | 'ask' | 'leave';

interface Answer {
  readonly value?: unknown;
  readonly error?: string;
}

/** Creates and ends Workers: the page. */
export interface WorkerOwner {
  /** Starts one that serves the port. */
  begin(port: MessagePort): void;
  /** Resolves when it is no more. */
  end(): Promise<void>;
}

/** Opens a context in a second Worker; without shared memory in the calling one. */
export async function openSecond(
  { endpoint: { context }, room }: Opened,
  { kind }: Session,
  domain: DomainShare,
  page: WorkerOwner,
): Promise<SharingContext> {
  if (!context.device.arena.memory.shared) return SecondContext.open(context.openDevice(), domain);
  const share = context.share({ memoryBytes: MEMORY_BYTES });
  const { port1: port, port2 } = new MessageChannel();
  const ask = async <Value>(request: Request): Promise<Value> => {
    const { value, error } = await new Promise<Answer>((resolve) => {
      const timer = setTimeout(
        () => resolve({ error: 'the second Worker does not answer' }),
        LIMIT_MILLIS,
      );
      port.onmessage = ({ data }: MessageEvent<Answer>) => {
        clearTimeout(timer);
        resolve(data);
      };
      port.postMessage(request);
    });
    if (error !== undefined) throw new Error(error);
    return value as Value;
  };
  const end = async (): Promise<void> => {
    await page.end();
    context.unshare(share);
  };
  page.begin(port2);
  try {
    const isKept = await ask<boolean>({ share, room, kind, domain });
    return {
      isKept,
      isApart: true,
      ask: () => ask('ask'),
      leave: () => ask<void>('leave').finally(end),
    };
  } catch (error) {
    await end();
    throw error;
  }
}

/** In the second Worker. */
export function serveSecond(port: MessagePort): void {
  let second: SecondContext;
  const perform = async (request: Request): Promise<unknown> => {
    if (request === 'ask') return second.ask();
    if (request === 'leave') return second.leave();
    second = await open(request);
    return second.isKept;
  };
  port.onmessage = ({ data }: MessageEvent<Request>) => {
    perform(data).then(
      (value) => port.postMessage({ value } satisfies Answer),
      (error: Error) => port.postMessage({ error: error.message } satisfies Answer),
    );
  };
}

async function open({ share, room, kind, domain }: Opening): Promise<SecondContext> {
  if (room === undefined) {
    const link = new WebSocketLink();
    const context = await openDevice({ link, threadShare: share, ...LIMITS });
    await link.connect(socketUrl('packets'));
    return SecondContext.open(context, domain);
  }
  const link = new DataChannelLink();
  const context = await openDevice({ link, threadShare: share, ...LIMITS });
  await link.connect(signallingTo(kind, domain.peer, room));
  return SecondContext.open(context, domain);
}
