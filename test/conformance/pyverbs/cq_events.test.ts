/** Completion channels (rdma-core tests/test_cq_events.py). */
import * as assert from 'uvu/assert';
import { QpType, type CompletionChannel, type Context } from '../../../host/index.js';
import { createPlayers, traffic } from './player.js';
import { everywhere, type World } from './world.js';

async function events(world: World, qpType: number): Promise<void> {
  const channels = new Map<Context, CompletionChannel>();
  const makeCq = (context: Context) => {
    const channel = context.createCompChannel();
    channels.set(context, channel);
    const cq = context.createCq(64, channel);
    cq.reqNotify();
    return cq;
  };
  const { client, server } = await createPlayers(world, { qpType, makeCq });
  for (let round = 0; round < 2; round++) {
    const told: string[] = [];
    for (const player of [client, server]) {
      const name = player === client ? 'client' : 'server';
      const event = channels.get(player.context)!.getCqEvent();
      void event.then((cq) => cq === player.cq && told.push(name));
    }
    await world.soon(() => false);
    assert.equal(told, [], 'nothing happened, no event');
    await traffic(client, server, { iterations: 2 });
    await world.until(() => told.length === 2, 'an event on each channel');
    assert.is(channels.get(client.context)!.context, client.context);
    // One shot: the queue is armed before the next messages, and drained first.
    for (const player of [client, server]) {
      player.qp.postRecv([]);
      player.cq.reqNotify();
    }
    assert.equal(client.cq.poll(1), []);
    assert.equal(server.cq.poll(1), []);
  }
}

everywhere('cq_events_ud', 'datagrams wake the waiter of the channel', (world) =>
  events(world, QpType.UD),
);
everywhere('cq_events_rc', 'messages wake the waiter of the channel', (world) =>
  events(world, QpType.RC),
);

everywhere.run();
