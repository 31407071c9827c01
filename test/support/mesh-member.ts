/**
 * A member of a mesh in a process of its own: `node mesh-member.js URL ROOM KEEP_ALIVE_MILLIS`. Commands
 * come by standard input, a line each; answers are lines of JSON.
 */
import { createInterface } from 'node:readline';
import { joinMesh } from '../../host/mesh/index.js';

const [url, room, keepAlive] = process.argv.slice(2);
const mesh = await joinMesh({
  url: url!,
  room: room!,
  memory: { table: 4096 },
  keepAliveMillis: Number(keepAlive),
  onJoin: ({ id }) => say({ join: id }),
  onLeave: ({ id }, reason) => say({ leave: id, reason: reason?.code ?? 'closed' }),
});

function say(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Commands of the test; the answer is their value. */
const commands: Readonly<Record<string, (words: string[]) => Promise<unknown>>> = {
  peers: async ([count]) => mesh.waitForPeers(Number(count), { timeout: 20_000 }),
  write: async ([at, value]) => {
    for (const { memory } of mesh.peers.values()) {
      await memory.table.write(Number(at), Uint8Array.of(Number(value)));
    }
  },
  table: async ([count]) => [...mesh.self.memory.table.subarray(0, Number(count))],
  barrier: async () => mesh.barrier({ timeout: 20_000 }),
  sum: async ([value]) => [...(await mesh.allReduce(Float64Array.of(Number(value)), 'sum'))],
  close: async () => mesh.close(),
};

say({ self: mesh.self.id });
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.split(' ');
  void commands[name!]!(words).then(
    (value) => say({ done: name, value: value ?? null }),
    (error: { code?: string; members?: string[]; message: string }) =>
      say({ done: name, code: error.code, members: error.members, message: error.message }),
  );
  if (name === 'close') break;
}
