/** Opens a device that several processes share, as one of them. */
import type { ArenaMemory } from '../../engine/arena.js';
import { fetchEngine } from '../../engine/load.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import type { UdpBatchLink } from '../../link/udp/udp-batch.js';
import type { UdpOptions } from '../../link/udp/udp-options.js';
import type { Clock } from '../clock.js';
import { InlineProgress } from '../progress/inline-progress.js';
import type { RunningEngine } from '../progress/progress.js';
import {
  ThreadProgress,
  startThread,
  type ThreadProgressOptions,
} from '../progress/thread-progress.js';
import { SharedDevice, type SharedOptions, type SharedSizes } from './shared-device.js';

/** A link of a device that several processes share: where it is, is known when it is opened. */
export interface PolledOptions {
  readonly udp: UdpOptions;
  readonly makeLink: (udp: UdpOptions) => UdpBatchLink;
}

/** `thread` or `polled`. */
export interface OpenSharedOptions extends Partial<SharedSizes> {
  /** Absent: the device has no name. */
  readonly processShare?: SharedOptions;
  readonly back?: SharedOptions['back'];
  /** Not available for a device with a name. */
  readonly cacheModel?: object;
  readonly thread?: ThreadProgressOptions | undefined;
  readonly polled?: PolledOptions | undefined;
}

/** Of these its device is made. */
export interface SharedParts {
  readonly arena: ArenaMemory;
  readonly progress: ThreadProgress | InlineProgress;
  readonly link: UdpBatchLink | undefined;
  readonly shared: SharedDevice;
}

/**
 * Undefined: no other process shares it. `defaults`: sizes of a device that this process creates.
 * Throws MisuseError for options that a device with a name does not have. Rejects as
 * `SharedDevice.open`, with what the link refuses (LinkError), and with what `make` throws.
 */
export async function openShared<Made extends { readonly engine: RunningEngine }>(
  options: OpenSharedOptions,
  defaults: SharedSizes,
  clock: Clock,
  make: (parts: SharedParts) => Made,
): Promise<Made | undefined> {
  if (!options.processShare) return undefined;
  if (options.cacheModel) {
    throw new MisuseError('cacheModel', 'is not available for a device with a name');
  }
  await fetchEngine(true);
  const processShare = { ...options.processShare, back: options.back };
  const since = Math.floor(Number((clock.wallclockNanos?.(clock.now()) ?? 0n) / 1_000_000_000n));
  const { memoryBytes, regionsMax, protectionDomainsMax, poolUsersMax } = options;
  const sizes = { memoryBytes, regionsMax, protectionDomainsMax, poolUsersMax };
  const { thread, polled } = options;
  // Before others are kept from coming: it takes longer than all the rest.
  const started = thread && (await startThread());
  let shared: SharedDevice | undefined;
  let progress: ThreadProgress | InlineProgress | undefined;
  try {
    shared = await SharedDevice.open(processShare, sizes, defaults, since);
    const { arena, slot } = shared;
    const udp = await shared.choose((thread ?? polled)!.udp, processShare);
    const link = polled?.makeLink(udp);
    progress = link
      ? await InlineProgress.open(arena, link, clock, await shared.packetInbox(link))
      : await ThreadProgress.open(arena, { ...thread!, udp }, slot, started);
    const { socketDescriptor, callPort } = link ?? (progress as ThreadProgress);
    // Many that come together wait for each other up to here.
    shared.attach(progress.info.local, socketDescriptor, callPort);
    const made = make({ arena, progress, link, shared });
    shared.start(made.engine.context);
    return made;
  } catch (error) {
    const stop = async (): Promise<void> => {
      await progress?.close();
      await started?.terminate();
    };
    if (!shared) {
      await stop();
      throw error;
    }
    await shared.abandon(stop);
    throw localMemoryError(error);
  }
}

/** Memory of this process alone is short: what it lacks was to be for its engine and link. */
function localMemoryError(error: unknown): unknown {
  if (!(error instanceof RefusalError) || error.code !== 'ENOMEM') return error;
  const rule = "localMemoryBytes are too few for this process's engine and link";
  const remedy = 'raise them where the device is created, or lower queuePairsMax and other limits';
  return new RefusalError('ENOMEM', `openDevice: ${rule}; ${remedy}`, { cause: error });
}
