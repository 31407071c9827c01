/** Stands in for half-open.ts in a page, where each address is proven (cookies.browser.ts). */
import type { Connection } from './connection.js';
import type { Sender } from './half-open.js';
import { SourceCounts } from './source-counts.js';

export class HalfOpen {
  readonly sources = new SourceCounts();
  readonly unproven = 0;
  size = 0;

  add(connection: Connection, { source }: Sender): void {
    connection.isHalfOpen = true;
    this.size++;
    this.sources.add(source);
  }

  accepted(): void {}
  prove(): void {}

  remove(connection: Connection): void {
    connection.isHalfOpen = false;
    this.size--;
    this.sources.remove(connection.peer.gid.toString());
  }
}
