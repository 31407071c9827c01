/** The address of a room of a signalling server. */
import { MisuseError } from '../../errors/errors.js';

/** Where a room is: `ws://host:port/path#ROOM`. */
export interface RoomAddress {
  readonly url: string;
  readonly room: string;
}

export function isRoomAddress(text: string): boolean {
  return /^wss?:\/\//.test(text);
}

/** Throws MisuseError. */
export function parseRoomAddress(text: string): RoomAddress {
  try {
    const url = new URL(text);
    const room = decodeURIComponent(url.hash.slice(1));
    url.hash = '';
    if (isRoomAddress(text) && room !== '') return { url: `${url}`, room };
  } catch {
    // Said below.
  }
  throw new MisuseError('address', `"${text}" is no room; write ws://host:port/path#ROOM`);
}
