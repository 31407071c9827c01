/** All connections with one peer, once each of them is there. */
import type { Endpoint } from '../link/endpoint.js';
import type { MemoryRegion } from '../verbs/regions/memory-region.js';
import { paintLine } from './brush.js';
import { Role, type End, type PeerKind } from './private-data.js';
import { Latencies } from './latencies.js';
import { PICTURE_BYTES } from './memory-layout.js';
import { Layer, Painter } from './painter.js';
import { View } from './view.js';

export interface SessionRegions {
  /** Our picture: what is painted on it is WRITTEN to the other. */
  readonly ours: MemoryRegion;
  /** Where their memory is READ to. */
  readonly theirs: MemoryRegion;
  /** Strokes on the peer's picture, before they are WRITTEN. */
  readonly outgoing: MemoryRegion;
  /** The other's messages, and one of ours. */
  readonly inbox: MemoryRegion;
}

/** All three there: painted to, shown, and spoken to. */
export const ROLES = [Role.PAINT, Role.VIEW, Role.MESSAGE] as const;

export class Session {
  readonly peer: Endpoint;
  readonly kind: PeerKind;
  readonly regions: SessionRegions;
  readonly view: View;
  readonly painter: Painter;
  readonly message: End;
  /** Milliseconds of a READ of 64 bytes. */
  readonly delays = new Latencies();
  readonly #ours: Layer;
  readonly #theirs: Layer;
  /** Resolved when any of its connections is over, or has failed. */
  readonly over: Promise<void>;
  #fail: () => void = () => {};

  constructor(peer: Endpoint, ends: ReadonlyMap<Role, End>, regions: SessionRegions) {
    const paint = ends.get(Role.PAINT)!;
    this.peer = peer;
    this.kind = paint.privateData.kind;
    this.regions = regions;
    this.view = new View(ends.get(Role.VIEW)!, regions.theirs, this.delays);
    this.#ours = new Layer(regions.ours);
    this.#theirs = new Layer(regions.outgoing);
    this.painter = new Painter(paint, [this.#ours, this.#theirs], () => this.#fail());
    this.message = ends.get(Role.MESSAGE)!;
    const failed = new Promise<void>((resolve) => (this.#fail = resolve));
    const disconnected = ROLES.map((role) => ends.get(role)!.connection.disconnected);
    this.over = Promise.race([failed, ...disconnected]);
  }

  /** READs all of theirs. Rejects when that is not possible any more; then the session ends. */
  async refresh(): Promise<void> {
    try {
      await this.view.refresh();
    } catch (error) {
      this.#fail();
      throw error;
    }
  }

  /** Paints on our picture and, by WRITE, on theirs. */
  paintOurs(line: readonly [number, number, number, number], colour: number): void {
    paintLine(this.#ours.picture, this.#ours.touched, line, colour);
    this.painter.flush();
  }

  /** Paints on theirs alone. */
  paintTheirs(line: readonly [number, number, number, number], colour: number): void {
    const { picture, touched } = this.#theirs;
    const { memory } = this.view;
    paintLine(picture, touched, line, colour, (from, to) =>
      picture.set(memory.subarray(from, to), from),
    );
    this.painter.flush();
  }

  /** WRITEs the square around a point of our picture. */
  copySquare(x: number, y: number, radius: number): void {
    for (let row = y - radius; row <= y + radius; row++) {
      this.#ours.touched.add(row, x - radius, x + radius);
    }
    this.painter.flush();
  }

  /** Copies their paint, as READ last, to our empty points; `isTheirsFirst`: to the others too. */
  adoptTheirs(isTheirsFirst: boolean): void {
    const { picture } = this.#ours;
    const { memory } = this.view;
    for (let at = 0; at < PICTURE_BYTES; at++) {
      if (memory[at] !== 0 && (isTheirsFirst || picture[at] === 0)) picture[at] = memory[at]!;
    }
  }

  /** WRITEs all of our picture. */
  copyOurs(): void {
    this.#ours.touched.all();
    this.painter.flush();
  }

  clear(): void {
    this.#ours.picture.fill(0, 0, PICTURE_BYTES);
    this.copyOurs();
  }
}
