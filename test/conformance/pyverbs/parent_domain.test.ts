/** Parent domains and their allocators (rdma-core tests/test_parent_domain.py). */
import * as assert from 'uvu/assert';
import {
  QpType,
  type Context,
  type ParentDomain,
  type ParentDomainInitAttributes,
  type ProtectionDomain,
} from '../../../host/index.js';
import { createPlayers, traffic, type PlayerOptions } from './player.js';
import { everywhere, type World } from './world.js';

type Allocators = Pick<ParentDomainInitAttributes, 'alloc' | 'free'>;

/** Counts the calls of allocators, by resource type. */
class Books {
  readonly asked: string[] = [];
  freed = 0;
  /** Queues in memory of the application's. */
  aligned(context: Context): Allocators {
    return {
      alloc: (size, alignment, resourceType) => {
        this.asked.push(resourceType);
        const buffer = context.alloc(size + alignment);
        const start = -buffer.byteOffset & (alignment - 1);
        buffer.fill(0xa5);
        return buffer.subarray(start, start + size);
      },
      free: (buffer) => {
        this.freed++;
        assert.ok(buffer.length > 0);
      },
    };
  }

  /** The device's own memory, although the allocator was called. */
  preset(): Allocators {
    return {
      alloc: (_size, _alignment, resourceType) => void this.asked.push(resourceType),
      free: () => this.freed++,
    };
  }
}

async function run(
  world: World,
  allocators: (context: Context) => Allocators,
  options: PlayerOptions = {},
): Promise<ParentDomain[]> {
  const parents: ParentDomain[] = [];
  const bases: ProtectionDomain[] = [];
  const makePd = (context: Context) => {
    const pd = context.allocPd();
    const td = context.allocTd();
    const parent = context.allocParentDomain({ pd, td, ...allocators(context) });
    parents.push(parent);
    bases.push(pd);
    assert.throws(() => pd.dealloc(), /EBUSY/);
    assert.throws(() => td.dealloc(), /EBUSY/);
    return parent;
  };
  const { client, server } = await createPlayers(world, { ...options, makePd });
  await traffic(client, server);
  for (const player of [client, server]) {
    assert.throws(() => (player.pd as ParentDomain).dealloc(), /EBUSY/);
    if (player.isDatagram) player.ah.destroy();
    player.qp.destroy();
    player.srq?.destroy();
    player.cq.destroy();
    player.mr.dereg();
  }
  for (const parent of parents) {
    parent.dealloc();
    assert.throws(() => parent.createSrq(), /EINVAL/);
    parent.td!.dealloc();
  }
  for (const base of bases) base.dealloc();
  return parents;
}

everywhere('without_allocators_rc_traffic', 'a parent domain is a domain', async (world) => {
  await run(world, () => ({}));
});

everywhere('default_allocators_rc_traffic', 'allocators may leave it to the device', async (w) => {
  const books = new Books();
  await run(w, () => books.preset());
  assert.equal(books.asked, ['QP', 'QP']);
  assert.is(books.freed, 0, 'what the device gave it takes back itself');
});

everywhere('mem_align_rc_traffic', 'RC queues live in the application’s memory', async (world) => {
  const books = new Books();
  await run(world, (context) => books.aligned(context));
  assert.equal(books.asked, ['QP', 'QP']);
  assert.is(books.freed, 2);
});

everywhere('mem_align_ud_traffic', 'UD queues live in the application’s memory', async (world) => {
  const books = new Books();
  await run(world, (context) => books.aligned(context), { qpType: QpType.UD });
  assert.is(books.freed, 2);
});

everywhere(
  'mem_align_srq_excq_rc_traffic',
  'all queues live in the application’s memory: shared receives, completions',
  async (world) => {
    const books = new Books();
    await run(world, (context) => books.aligned(context), {
      srq: true,
      makeCq: (context, pd) => context.createCqEx({ cqe: 100, parentDomain: pd as ParentDomain }),
    });
    assert.equal(books.asked.sort(), ['CQ', 'CQ', 'QP', 'QP', 'SRQ', 'SRQ']);
    assert.is(books.freed, 6);
  },
);

everywhere.run();
