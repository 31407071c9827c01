/** Forking (rdma-core tests/test_fork.py). */
import * as assert from 'uvu/assert';
import { ForkStatus, forkInit, isForkInitialized } from '../../../host/index.js';
import { everywhere } from './world.js';

everywhere('is_fork_initialized', 'nothing has to be done about forks', async (world) => {
  const context = await world.open();
  forkInit();
  assert.is(isForkInitialized(), ForkStatus.UNNEEDED);
  // Not before a region is there, either.
  context.allocPd().regMr(context.alloc(8), 0);
  forkInit();
  assert.is(isForkInitialized(), ForkStatus.UNNEEDED);
});

everywhere.run();
