/** The file server: a device, and what receives files over it. */
import type { AuthOptions, Context, CounterValues } from '../../index.js';
import { MisuseError } from '../../errors/errors.js';
import { DirectoryStore } from '../../transfer/directory-store.js';
import {
  CONNECTION_BYTES,
  FileReceiver,
  MEMORY_CLIENT_BYTES,
  WAITING_MAX,
  type FileReceiverEvents,
} from '../../transfer/file-receiver.js';
import type { RoomAddress } from '../base/room-address.js';
import { RoomDevice } from '../base/room-device.js';
import { openLocalDevice, type DeviceOptions } from '../base/open-device.js';
import { PMEM_SERVICE } from '../file-transfer/pmem-records.js';
import { refuseClients } from './other-service.js';

export interface FileServerOptions extends DeviceOptions {
  /** Where files go. */
  readonly directory: string;
  /** Data channels to the members of a room, in place of UDP. */
  readonly room?: RoomAddress;
  /** Called when the signalling server of the room is not reached; attempts follow. */
  readonly onRoomLost?: (error: Error) => void;
  readonly clientsMax: number;
  /** Bytes of memory that each client may write into. */
  readonly windowBytes: number;
  /**
   * Keys, of which each client must prove one; its packets carry tags then. Default: the server
   * accepts clients without a key.
   */
  readonly auth?: AuthOptions | undefined;
  /** Bytes of all files in the directory, finished or not. Default: what the disk has. */
  readonly quotaBytes?: number | undefined;
  /** Unfinished files that nothing was written to for so long are removed. Default 7 days. */
  readonly expireMillis?: number | undefined;
}

const WITHOUT_PMEM =
  'this server has no persistent memory: put without --pmem, or start "verbena serve --pmem FILE"';
/** Half-open connections that the connection manager accepts (cm/limits.ts). */
const HALF_OPEN_MAX = 256;
/** Device memory besides the clients: tables, packets ahead, and their connections. */
const MEMORY_BASE_BYTES = 28 * 2 ** 20 + (WAITING_MAX + HALF_OPEN_MAX) * CONNECTION_BYTES;

export class FileServer {
  readonly context: Context;
  readonly directory: string;
  readonly #receiver: FileReceiver;

  private constructor(receiver: FileReceiver, directory: string) {
    this.context = receiver.context;
    this.directory = directory;
    this.#receiver = receiver;
  }

  /** Rejects with RefusalError: no such directory, no memory; LinkError: address or port taken. */
  static async open(options: FileServerOptions, events: FileReceiverEvents): Promise<FileServer> {
    const { quotaBytes, expireMillis, clientsMax, windowBytes, auth } = options;
    const store = await DirectoryStore.open(options.directory, { quotaBytes, expireMillis });
    const clientBytes = windowBytes + MEMORY_CLIENT_BYTES;
    if (MEMORY_BASE_BYTES + clientsMax * clientBytes > 2 ** 32) {
      throw new MisuseError(
        'windowBytes',
        `${clientsMax} clients (--max-clients) with ${windowBytes} bytes each ` +
          '(--window-bytes) are more than the 4 GiB that a device has',
      );
    }
    const memoryBytes = MEMORY_BASE_BYTES + clientsMax * clientBytes;
    const context = options.room
      ? (await RoomDevice.open(options.room, memoryBytes, options.onRoomLost)).context
      : await openLocalDevice(options, { memoryBytes });
    try {
      const other = { address: `${context.local.gid}`, port: PMEM_SERVICE };
      await refuseClients(context, other, auth, WITHOUT_PMEM);
      const receiver = { context, store, clientsMax, windowBytes, auth };
      return new FileServer(await FileReceiver.open(receiver, events), store.directory);
    } catch (error) {
      await context.close();
      throw error;
    }
  }

  /** How many clients are being served. */
  get clientCount(): number {
    return this.#receiver.clientCount;
  }

  get counters(): CounterValues {
    return this.context.counters();
  }

  /** Ends every transfer, what arrived is synced. Rejects where a capture could not be written. */
  async close(): Promise<void> {
    await this.#receiver.close();
    await this.context.close();
  }
}
