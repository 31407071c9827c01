/** A heap of several processes, whose parts all run in this one, on a memory of its own. */
import { RefusalError } from '../../host/errors/errors.js';
import type { HeapMembers } from '../../host/verbs/heap/heap-lock.js';
import {
  Header,
  HeapTable,
  Kind,
  SpanKind,
  heapBytes,
  kindOf,
  spanKindOf,
  spanNumberOf,
} from '../../host/verbs/heap/heap-table.js';
import { CLASS_UNITS, SPAN_UNITS, objectsOf } from '../../host/verbs/heap/size-classes.js';
import { SlabHeap, type SlabHeapOptions } from '../../host/verbs/heap/slab-heap.js';
import { usageOf } from '../../host/verbs/heap/heap-usage.js';

const ADDRESS = 64;
const SLOTS = 4;

/** Exception that ends a process of the world. */
export class Killed extends Error {}

export class HeapWorld {
  readonly table: HeapTable;
  readonly incarnations: number[] = Array.from({ length: SLOTS }, () => 0);
  readonly committed: [address: number, bytes: number][] = [];
  /** Source of storage for heaps that join later. */
  room: SlabHeapOptions['room'];
  /** Bytes that `commit` gives storage at most. */
  bytesMax = Infinity;

  constructor(readonly spans: number) {
    const memory = new Int32Array(new SharedArrayBuffer(ADDRESS + heapBytes(spans)));
    this.table = new HeapTable(memory, ADDRESS, spans);
  }

  /** Members as the process of a slot sees them. */
  members(slot: number): HeapMembers {
    return {
      slot,
      slotsMax: SLOTS,
      incarnation: (of) => this.incarnations[of]!,
      look: () => undefined,
      describe: (of) => `process of slot ${of}`,
    };
  }

  /** The part of a process that has joined. */
  join(slot: number): SlabHeap {
    const heap = new SlabHeap({
      table: this.table,
      members: this.members(slot),
      commit: (address, bytes) => {
        if (address + bytes > this.table.data + this.bytesMax) {
          throw new RefusalError('ENOSPC', 'no room here');
        }
        this.committed.push([address, bytes]);
      },
      ...(this.room && { room: this.room }),
    });
    heap.join();
    return heap;
  }

  /** The device has detected the death of the process of this slot. */
  bury(slot: number): void {
    this.incarnations[slot]!++;
  }

  /** Sentences about what is wrong with the table, which no process changes now. */
  audit(): string[] {
    const wrong: string[] = [];
    const { table } = this;
    for (let span = 0; span < table.spans; span += table.step(span)) {
      const word = table.span(span);
      const kind = spanKindOf(word);
      if (kind === SpanKind.CHANGING) wrong.push(`span ${span} is being changed`);
      const isSlab = kind === SpanKind.SLAB;
      const size = isSlab ? CLASS_UNITS[spanNumberOf(word)]! : SPAN_UNITS;
      const objects = isSlab ? objectsOf(spanNumberOf(word)) : kind === SpanKind.RUN ? 1 : 0;
      const units = kind === SpanKind.RUN ? table.step(span) * SPAN_UNITS : SPAN_UNITS;
      for (let unit = 0; unit < units; unit++) {
        const object = table.unit(span * SPAN_UNITS + unit);
        const begins = unit % size === 0 && unit / size < objects;
        if (begins && object === 0) wrong.push(`span ${span}: object ${unit / size} is lost`);
        if (!begins && object !== 0) wrong.push(`span ${span}: unit ${unit} has ${object}`);
      }
    }
    return wrong;
  }

  /** Bytes that processes hold, and those of the common part. */
  get used(): number {
    const { processes, commonBytes } = usageOf(this.table);
    return processes.reduce((sum, { heldBytes }) => sum + heldBytes, commonBytes);
  }

  get isLocked(): boolean {
    return Atomics.load(this.table.words, this.table.header + Header.LOCK) !== 0;
  }

  kindAt(address: number): Kind {
    return kindOf(this.table.unit((address - this.table.data) / 64));
  }
}

type Step = (...values: never[]) => unknown;
const STEPS = ['load', 'store', 'compareExchange', 'add', 'sub', 'exchange'] as const;

/**
 * Runs `work`, and calls `at` before each access to shared memory, with its number. The code under
 * test changes shared words by `Atomics` only.
 */
export function stepping(work: () => void, at: (step: number) => void): void {
  const atomics = Atomics as unknown as Record<string, Step>;
  const real = STEPS.map((name) => atomics[name]!);
  let step = 0;
  const restore = (): void => STEPS.forEach((name, index) => (atomics[name] = real[index]!));
  const patch = (): void =>
    STEPS.forEach((name, index) => {
      atomics[name] = (...values) => {
        restore();
        try {
          at(step++);
        } finally {
          patch();
        }
        return real[index]!(...values);
      };
    });
  patch();
  try {
    work();
  } finally {
    restore();
  }
}

/** Kills the process that runs `work` at a step. False: the work ended before. */
export function killAt(step: number, work: () => void): boolean {
  let isDead = false;
  try {
    stepping(work, (now) => {
      isDead ||= now === step;
      // A dead process does nothing any more: not in its `finally` either.
      if (isDead) throw new Killed();
    });
  } catch (error) {
    if (!(error instanceof Killed)) throw error;
  }
  return isDead;
}
