/** The second Worker of a pane, with a context of the same device: its client, and itself. */
import type { DeviceShare } from '../../device/sharing/thread-share.js';
import { DataChannelLink } from '../../link/channel/data-channel.js';
import { WebSocketLink } from '../../link/channel/websocket.js';
import { openDevice } from '../../verbs/open-device.js';
import { Guest, type Company, type Invitation } from '../guest.js';
import type { Session } from '../session.js';
import type { Opened } from './open-station.js';
import { signallingTo, socketUrl } from './ways.js';

/** Of the device's memory: for its queues. */
const MEMORY_BYTES = 4 * 2 ** 20;
const LIMITS = { queuePairsMax: 16, completionQueuesMax: 32, sharedReceiveQueuesMax: 1 };
/** Longer than a connection takes to fail. */
const PATIENCE_MILLIS = 20_000;

interface Coming {
  readonly share: DeviceShare;
  readonly room: string | undefined;
  readonly kind: Session['kind'];
  readonly invitation: Invitation;
}

type Request = Coming | 'ask' | 'leave';

interface Answer {
  readonly value?: unknown;
  readonly error?: string;
}

/** Creates and ends Workers: the page. */
export interface Housekeeper {
  /** A new one, which attends to that port. */
  begin(port: MessagePort): void;
  /** Resolves when it is no more. */
  end(): Promise<void>;
}

/** In the pane's Worker: a guest in another one; without shared memory in this one. */
export async function invite(
  { station: { context }, room }: Opened,
  { kind }: Session,
  invitation: Invitation,
  page: Housekeeper,
): Promise<Company> {
  if (!context.device.arena.memory.shared) return Guest.come(context.openDevice(), invitation);
  const share = context.share({ memoryBytes: MEMORY_BYTES });
  const { port1: port, port2 } = new MessageChannel();
  const ask = async <Value>(request: Request): Promise<Value> => {
    const { value, error } = await new Promise<Answer>((resolve) => {
      const timer = setTimeout(
        () => resolve({ error: 'the second Worker does not answer' }),
        PATIENCE_MILLIS,
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
    const isKept = await ask<boolean>({ share, room, kind, invitation });
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
export function attend(port: MessagePort): void {
  let guest: Guest;
  const perform = async (request: Request): Promise<unknown> => {
    if (request === 'ask') return guest.ask();
    if (request === 'leave') return guest.leave();
    guest = await come(request);
    return guest.isKept;
  };
  port.onmessage = ({ data }: MessageEvent<Request>) => {
    perform(data).then(
      (value) => port.postMessage({ value } satisfies Answer),
      (error: Error) => port.postMessage({ error: error.message } satisfies Answer),
    );
  };
}

async function come({ share, room, kind, invitation }: Coming): Promise<Guest> {
  if (room === undefined) {
    const link = new WebSocketLink();
    const context = await openDevice({ link, threadShare: share, ...LIMITS });
    await link.connect(socketUrl('packets'));
    return Guest.come(context, invitation);
  }
  const link = new DataChannelLink();
  const context = await openDevice({ link, threadShare: share, ...LIMITS });
  await link.connect(signallingTo(kind, invitation.peer, room));
  return Guest.come(context, invitation);
}
