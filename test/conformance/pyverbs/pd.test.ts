/** Protection domains (rdma-core tests/test_pd.py). */
import * as assert from 'uvu/assert';
import { everywhere } from './world.js';

everywhere('alloc_pd', 'a domain is allocated, and has its context', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  assert.is(pd.context, context);
  assert.is.not(pd.handle, 0);
});

everywhere('dealloc_pd', 'a domain that is gone makes nothing any more', async (world) => {
  const context = await world.open();
  const pd = context.allocPd();
  pd.dealloc();
  assert.throws(() => pd.regMr(context.alloc(8), 0), /EINVAL/);
});

everywhere('multiple_pd_creation', 'domains come and go without end', async (world) => {
  const context = await world.open({ protectionDomainsMax: 2 });
  const kept = context.allocPd();
  for (let count = 0; count < 200; count++) context.allocPd().dealloc();
  context.allocPd();
  assert.throws(() => context.allocPd(), /ENOMEM/);
  kept.dealloc();
});

everywhere('destroy_pd_twice', 'a second dealloc is refused and does no harm', async (world) => {
  const context = await world.open({ protectionDomainsMax: 1 });
  const first = context.allocPd();
  first.dealloc();
  assert.throws(() => first.dealloc(), /EINVAL/);
  // Nor does it free the domain that has the slot now.
  const second = context.allocPd();
  assert.throws(() => first.dealloc(), /EINVAL/);
  const memory = context.alloc(64);
  second.regMr(memory, 0).dereg();
  second.dealloc();
});

everywhere.run();
