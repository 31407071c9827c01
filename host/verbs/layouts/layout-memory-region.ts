/**
 * A region without memory of its own, `ibv_reg_mr(pd, NULL, 0, IBV_ACCESS_ZERO_BASED)`: its layout
 * says which bytes of other regions it is, in which order.
 */
import { wholeU64 } from '../../errors/whole-number.js';
import { checkBits } from '../../errors/check-whole.js';
import {
  AccessFlag,
  Errno,
  KeyKind,
  KeyState,
  LayoutFault,
  LayoutParametersLayout,
  MrSetLayoutFlag,
} from '#build/abi.js';
import { checkArray, checkKeys } from '../../base/options.js';
import type { EngineMemory } from '../../engine/memory.js';
import { structAt, type Struct } from '../../engine/struct.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';
import { Key, awaitRelease, retryChange } from '../regions/key.js';
import {
  extentOf,
  faultSentence,
  listBytes,
  putComposite,
  putInterleaved,
  signed64,
  type MrLayoutInterleaved,
  type LayoutOptions,
} from './layout-list.js';
import type { RegionCounters } from '../regions/memory-region.js';
import type { ProtectionDomain } from '../domains/protection-domain.js';
import { refuse } from '../refuse.js';
import type { Binding } from '../queues/work-request.js';
import type { Sge } from '../queues/sge.js';

/** Of a WrOpcode.BIND_MR. */
export interface MrSetLayout {
  /** Whose layout was set with MrSetLayoutFlag.WITH_POST_WR. */
  readonly mr: LayoutMemoryRegion;
}

/** Encoding of a layout: format, and number of entries. */
interface List {
  readonly interleaved: boolean;
  readonly count: number;
  put(at: number): void;
}

/** A region that is a layout of others (`pd.regMr(null, 0, …)`, seed 001). */
export class LayoutMemoryRegion {
  readonly #key: Key;
  /** Memory of programs that an engine may be reading. */
  readonly #programs = new Set<number>();
  #setKey: number | undefined;
  #addr = 0n;
  #length = 0;

  /** @internal Use `pd.regMr(null, 0, access)`. */
  constructor(
    readonly pd: ProtectionDomain,
    /** Made of AccessFlag: what may be done through the layout. */
    readonly access: number,
  ) {
    checkBits('access', access, 'AccessFlag');
    const wanted = { kind: KeyKind.LAYOUT, pd: pd.handle, access };
    this.#key = new Key(pd.context, wanted, 'regMr', {
      EOPNOTSUPP: `access 0x${access.toString(16)} has a flag that a layout cannot have; leave it out`,
      EINVAL: 'REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE',
    });
    pd.resources.add(this);
  }

  /**
   * The key of the layout that was set last; with WITH_POST_WR it opens that layout from BIND_MR
   * on. It opens nothing before the first layout and after an invalidation.
   */
  get lkey(): number {
    return this.#setKey ?? this.#key.value;
  }

  /** The same key. */
  get rkey(): number {
    return this.lkey;
  }

  /** Address of the first byte of the packed stream that was set last. */
  get addr(): bigint {
    return this.#addr;
  }

  /** Bytes of the packed stream that was set last (stencils: of one instance); 0: none was. */
  get length(): number {
    return this.#length;
  }

  /** Has it a layout now? */
  get bound(): boolean {
    return this.#key.live && this.#key.note.state === KeyState.LIVE;
  }

  /**
   * `ibv_mr_set_layout_sg`: the bytes of all entries in sequence. An entry's key names a region, or
   * another layout region, whose `addr` is then an offset in its stream. `flags` is made of
   * MrSetLayoutFlag. Without flags the layout is bound when the call returns, on every queue pair,
   * under a new key (after the first time), and no engine uses the previous layout;
   * AVOID_INVALIDATION keeps the key, and requests in flight may see either layout; WITH_POST_WR
   * records it for WrOpcode.BIND_MR.
   * Throws MisuseError; RefusalError EINVAL and EACCES, which name the entry and its fault, ENOMEM,
   * EAGAIN (another thread is changing the region). Nothing has changed then.
   */
  setLayoutSg(flags: number, sgList: readonly Sge[], options: LayoutOptions = {}): void {
    checkArray('sgList', sgList, 'SGEs');
    this.#set('setLayoutSg', flags, options, {
      interleaved: false,
      count: sgList.length,
      put: (at) => putComposite(this.#memory, at, sgList, this.#isStencil),
    });
  }

  /**
   * `ibv_mr_set_layout_interleaved`: of each source `numRepeated` data in turn, until all have given
   * what they have; one that has no more is passed over. One source is a strided layout. Flags and
   * errors as `setLayoutSg`.
   */
  setLayoutInterleaved(
    flags: number,
    ilvList: readonly MrLayoutInterleaved[],
    options: LayoutOptions = {},
  ): void {
    checkArray('ilvList', ilvList, 'sources');
    this.#set('setLayoutInterleaved', flags, options, {
      interleaved: true,
      count: ilvList.length,
      put: (at) => putInterleaved(this.#memory, at, ilvList, this.#isStencil),
    });
  }

  /**
   * `ibv_dereg_mr`. Regions that the layout names are untouched; layouts that stand on this one open
   * nothing any more. Throws RefusalError EBUSY when another thread does not leave the memory: call
   * again later.
   */
  dereg(): void {
    if (this.#key.gone) throw new MisuseError('memory region', 'is deregistered already');
    this.#key.release('dereg');
    const { userHeap } = this.pd.context.device.arena;
    for (const program of this.#programs) userHeap.free(program);
    this.#programs.clear();
    this.pd.resources.delete(this);
  }

  /** Operations of peers on this region, under any layout. */
  counters(): RegionCounters {
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    return this.#key.counters();
  }

  [Symbol.dispose](): void {
    if (!this.#key.gone) this.dereg();
  }

  /** @internal What a BIND_MR puts into the ring. */
  binding(): Binding {
    if (!this.#key.live) throw new MisuseError('mrSetLayout.mr', 'is deregistered');
    const target = this.#key.value;
    return { target, key: this.lkey, base: 0, address: 0, memory: 0, length: 0, access: 0 };
  }

  get #isStencil(): boolean {
    return (this.access & AccessFlag.ZERO_BASED) === 0;
  }

  get #memory(): EngineMemory {
    return this.pd.context.device.arena.memory;
  }

  #set(verb: string, flags: number, options: LayoutOptions, list: List): void {
    checkKeys(verb, options, 'extent origin');
    if (!this.#key.live) throw new MisuseError('memory region', 'is deregistered');
    checkBits('flags', flags, 'MrSetLayoutFlag');
    const { arena } = this.pd.context.device;
    const entries = LayoutParametersLayout.size;
    const scratch = arena.heap.alloc(entries + listBytes(list.interleaved, list.count));
    try {
      list.put(scratch + entries);
      const parameters = structAt(arena.memory, LayoutParametersLayout, scratch);
      const { extent = 0, origin = 0 } = options;
      parameters.extent = (this.#isStencil ? extentOf : wholeU64)('extent', extent);
      parameters.origin = signed64('origin', origin);
      parameters.key = this.#key.value;
      parameters.flags = flags;
      parameters.interleaved = list.interleaved ? 1 : 0;
      parameters.count = list.count;
      parameters.entries = scratch + entries;
      this.#compile(verb, scratch, parameters);
      this.#setKey = parameters.bound;
      this.#length = parameters.packed;
      if (!this.#isStencil) this.#addr = parameters.origin;
    } finally {
      arena.heap.free(scratch);
    }
    const keeps = MrSetLayoutFlag.AVOID_INVALIDATION | MrSetLayoutFlag.WITH_POST_WR;
    if (flags & keeps) return;
    // The verb is a fence: when it returns, no engine reads the previous layout.
    if (!awaitRelease(() => (this.#reclaim() <= 1 ? 1 : 0))) {
      throw new RefusalError(
        'EBUSY',
        `${verb}: the layout is set; another thread is still using the old one; call dereg`,
      );
    }
  }

  #compile(verb: string, at: number, parameters: Struct<typeof LayoutParametersLayout>): void {
    const { arena, engine } = this.pd.context.device;
    const why = (errno: number): void => {
      const sentence = faultSentence(parameters.fault, parameters.faultIndex);
      refuse(errno, verb, {
        EINVAL: sentence,
        EACCES: sentence,
        EAGAIN: 'another thread is changing the region; call again',
      });
    };
    this.#reclaim();
    const bytes = arena.exports.mrLayoutBytes(at);
    if (bytes === 0) why(Errno.EINVAL);
    const { heap, userHeap } = arena;
    const home = userHeap.alloc(bytes);
    // Memory that other processes may write is no place to compile in.
    const isShared = heap !== userHeap;
    try {
      const program = isShared ? heap.alloc(bytes) : home;
      try {
        parameters.program = program;
        parameters.home = isShared ? home : 0;
        const set = (): number => retryChange(() => arena.exports.setMrLayout(engine.context, at));
        parameters.scratch = 0;
        const errno = set();
        why(
          parameters.fault === LayoutFault.SCRATCH ? this.#setWithScratch(parameters, set) : errno,
        );
      } finally {
        if (isShared) heap.free(program);
      }
    } catch (error) {
      userHeap.free(home);
      throw error;
    }
    this.#programs.add(home);
  }

  /** Allocates memory for the engine's search for a cycle, if the layout refers to layouts. */
  #setWithScratch(parameters: Struct<typeof LayoutParametersLayout>, set: () => number): number {
    const { heap } = this.pd.context.device.arena;
    const scratch = heap.alloc(parameters.scratch);
    try {
      parameters.scratch = scratch;
      return set();
    } finally {
      heap.free(scratch);
    }
  }

  /** Frees the programs that no engine reads; returns the number of the remaining ones. */
  #reclaim(): number {
    const { arena, engine } = this.pd.context.device;
    for (const program of this.#programs) {
      if (arena.exports.mrLayoutReleased(engine.context, program) !== 1) continue;
      this.#programs.delete(program);
      arena.userHeap.free(program);
    }
    return this.#programs.size;
  }
}
