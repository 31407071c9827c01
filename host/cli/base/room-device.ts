/** A device over data channels that meets pages and programs in a room of a signalling server. */
import type { Context } from '../../index.js';
import { DataChannelLink } from '../../link/channel/data-channel.js';
import { RefusalError } from '../../errors/errors.js';
import { openDevice } from '../../verbs/open-device.js';
import { RoomSignalling } from '../../link/signalling/room.js';
import type { RoomAddress } from './room-address.js';

/** How long a put waits for a member that receives files. */
const MEMBER_MILLIS = 15_000;
const LOOK_MILLIS = 50;
const AGAIN_MILLIS = 5000;
/** A signalling server that is not reached within that time counts as absent. */
const SERVER_MILLIS = 3000;

export class RoomDevice {
  readonly context: Context;
  readonly #link: DataChannelLink;
  readonly #room: string;
  /** Members that receive no files. */
  readonly #others = new Set<string>();
  #refusal: Error | undefined;
  /** The last attempt to reach the signalling server failed; attempts follow. */
  #lost: { readonly error: Error; readonly millis: number } | undefined;

  private constructor(link: DataChannelLink, context: Context, room: string) {
    this.#link = link;
    this.context = context;
    this.#room = room;
  }

  /**
   * `onLost`: as that of RoomSignalling, and for a refusal as well. Rejects with RefusalError
   * (node-datachannel or ws is missing), MisuseError.
   */
  static async open(
    { url, room }: RoomAddress,
    memoryBytes: number,
    onLost: (error: Error) => void = () => undefined,
  ): Promise<RoomDevice> {
    const link = new DataChannelLink();
    const context = await openDevice({ link, memoryBytes });
    const device = new RoomDevice(link, context, room);
    try {
      const events = {
        onRefused: (error: Error): void => {
          device.#refusal = error;
          onLost(error);
        },
        onLost: (error: Error): void => {
          device.#lost = { error, millis: performance.now() };
          onLost(error);
        },
      };
      link.meet(new RoomSignalling(url, room, events));
      return device;
    } catch (error) {
      await context.close();
      throw error;
    }
  }

  /**
   * The GID of a member that may receive files. Rejects with RefusalError ETIMEDOUT (no member);
   * LinkError ECONNREFUSED (no signalling server).
   */
  async findMember(signal: AbortSignal): Promise<string> {
    for (let waited = LOOK_MILLIS; waited < MEMBER_MILLIS; waited += LOOK_MILLIS) {
      if (this.#refusal) throw this.#refusal;
      const isLost = this.#lost && performance.now() - this.#lost.millis < SERVER_MILLIS;
      if (isLost && waited >= SERVER_MILLIS) throw this.#lost!.error;
      signal.throwIfAborted();
      const gids = this.#link.peers.map(({ gid }) => `${gid}`);
      const found = gids.find((gid) => !this.#others.has(gid));
      if (found !== undefined) return found;
      // All members were tried: one of them may receive files by now.
      if (waited % AGAIN_MILLIS === 0) this.#others.clear();
      await new Promise((resolve) => setTimeout(resolve, LOOK_MILLIS));
    }
    const sentence = `no member of the room "${this.#room}" receives files`;
    const remedy = 'start "verbena serve --room" there, or open the page that receives';
    throw new RefusalError('ETIMEDOUT', `${sentence}; ${remedy}`);
  }

  /** `findMember` returns another member from now on. */
  exclude(gid: string): void {
    this.#others.add(gid);
  }
}
