/** Stands in for client-places.ts in a page, whose members connect by another address each time. */
import { PROTOCOL } from './hello.js';
import type { Remote } from './remote.js';

export function makePlace(): { requestData: Uint8Array; secret?: string } {
  return { requestData: PROTOCOL };
}

export class ClientPlaces {
  claim(): void {}
  unclaim(): void {}
  take(_requestData: unknown, _secret: unknown, add: () => Remote): Remote {
    return add();
  }
}
