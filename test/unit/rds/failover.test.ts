/** A node with two devices, each on a wire of its own: the wires are cut one after the other. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  LoopbackNetwork,
  createLoopbackPair,
  faultLink,
  openDevice,
  rds,
} from '../../../host/index.js';
import { Endpoint } from '../../../host/link/endpoint.js';
import type { FaultLink } from '../../../host/link/fault.js';

const { AF_INET_OFFLOAD, SOCK_DGRAM } = rds;
const PORT = 4000;
const MESSAGES = 20;

interface Wire {
  readonly ends: readonly [FaultLink, FaultLink];
  cut(): void;
  heal(): void;
}

function wire(network: LoopbackNetwork, index: number): Wire {
  const link = (side: number): FaultLink =>
    faultLink(network.link(Endpoint.parse(`10.${index}.0.${side}`, 4791)));
  const ends = [link(1), link(2)] as const;
  return {
    ends,
    cut: () => ends.forEach((end) => end.partition()),
    heal: () => ends.forEach((end) => end.heal()),
  };
}

test('what was under way arrives over the other device, in order, whole and once', async () => {
  const network = new LoopbackNetwork();
  const wires = [wire(network, 0), wire(network, 1)];
  const contexts = await Promise.all(
    wires.map(async ({ ends }) => Promise.all(ends.map((link) => openDevice({ link })))),
  );
  const nodes = [0, 1].map((side) => {
    const node = rds.RdsNode.of(contexts[0]![side]!, { heartbeatMicros: 300_000 });
    node.addDevice(contexts[1]![side]!);
    return node;
  });
  try {
    const [one, other] = nodes.map(({ context }) => {
      const socket = rds.socket(AF_INET_OFFLOAD, SOCK_DGRAM, 0, context);
      socket.bind({ port: PORT });
      return socket;
    }) as [rds.RdsSocket, rds.RdsSocket];
    // Either of its devices is the node.
    assert.is(rds.RdsNode.of(contexts[1]![0]!), nodes[0]);
    const to = other.getsockname()!;
    const sizes = [10, 3000, 60_000];
    const reading = (async () => {
      for (let number = 0; number < 3 * MESSAGES; number++) {
        const { data } = (await other.recv())!;
        assert.is(data.length, sizes[number % 3]);
        assert.ok(data.every((byte) => byte === number));
      }
    })();
    const send = async (from: number, count: number): Promise<void> => {
      for (let number = from; number < from + count; number++) {
        await one.send(to, new Uint8Array(sizes[number % 3]!).fill(number));
      }
    };
    await send(0, MESSAGES);
    wires[0]!.cut();
    await send(MESSAGES, MESSAGES);
    const [path] = [...one.node.core.paths];
    while (path!.routes.current.from !== 1 || path!.pending > 0) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    wires[0]!.heal();
    wires[1]!.cut();
    await send(2 * MESSAGES, MESSAGES);
    await reading;
    assert.is(path!.routes.current.from, 0);
    assert.is(one.node.core.statistics.lost, 0);
  } finally {
    for (const context of contexts.flat()) await context.close();
  }
});

test('a device that is a node of its own, or of that node already, is not another one', async () => {
  const links = createLoopbackPair();
  const contexts = [await openDevice({ link: links.a }), await openDevice({ link: links.b })];
  try {
    const [one, other] = contexts.map((context) => rds.RdsNode.of(context)) as [
      rds.RdsNode,
      rds.RdsNode,
    ];
    assert.throws(() => one.addDevice(other.context), /EADDRINUSE/);
    one.addDevice(one.context);
    assert.is(one.core.addresses.length, 1);
  } finally {
    for (const context of contexts) await context.close();
  }
});

test.run();
