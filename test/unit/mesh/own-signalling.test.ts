/** Members that meet by the application's own channel, or by texts that a person carries. */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { BroadcastSignalling, type Answerer, type Signalling } from '../../../host/index.js';
import { joinMesh, type Mesh } from '../../../host/mesh/index.js';
import type { SignallingRoom } from '../../../host/link/signalling/signalling.js';
import { releaseDataChannels } from '../../support/channel-mesh.js';

const test = suite('unit/mesh/own-signalling');
const WAIT = { timeout: 20_000 };
let meshes: Mesh[] = [];

test.after.each(async () => {
  await Promise.all(meshes.map((mesh) => mesh.close()));
  meshes = [];
});
test.after(releaseDataChannels);

/** Texts between members, as a chat or a database of the application has them. */
class Chat {
  texts = 0;
  readonly #members = new Map<
    string,
    { answer: Answerer; newcomer: (way: Signalling, name?: string) => void }
  >();

  carry<Value>(value: Value): Value {
    this.texts++;
    return JSON.parse(JSON.stringify(value)) as Value;
  }

  /** The object that an application passes as `signalling`. */
  room(): SignallingRoom {
    const join: SignallingRoom['join'] = (name, answer, newcomer) => {
      for (const [other, member] of this.#members) {
        member.newcomer(this.#way(other, name), name);
      }
      this.#members.set(name, { answer, newcomer });
      return () => void this.#members.delete(name);
    };
    return { join, listen: (answer) => join('listener', answer, () => undefined) };
  }

  #way(from: string, to: string): Signalling {
    return {
      name: 'the chat',
      exchange: async (offer) => {
        const member = this.#members.get(to);
        if (!member) throw new Error(`${to} has left`);
        return this.carry(await member.answer(this.carry(offer), from));
      },
    };
  }
}

async function joined(signalling: SignallingRoom): Promise<Mesh<{ table: number }>> {
  const mesh = await joinMesh({ signalling, memory: { table: 4096 as number } });
  meshes.push(mesh as unknown as Mesh);
  return mesh;
}

/** Each writes its number to all others; all have the sum. */
async function worksTogether(all: readonly Mesh<{ table: number }>[]): Promise<void> {
  await Promise.all(all.map((mesh) => mesh.waitForPeers(all.length - 1, WAIT)));
  for (const [index, mesh] of all.entries()) {
    for (const { memory } of mesh.peers.values()) {
      await memory.table.write(index, Uint8Array.of(index + 1));
    }
  }
  const sums = all.map((mesh, index) => mesh.allReduce(Int32Array.of(index), 'sum', WAIT));
  const wanted = (all.length * (all.length - 1)) / 2;
  for (const [sum] of await Promise.all(sums)) assert.is(sum, wanted);
  for (const [own, mesh] of all.entries()) {
    const table = [...mesh.self.memory.table.subarray(0, all.length)];
    assert.equal(
      table,
      all.map((_, index) => (index === own ? 0 : index + 1)),
    );
  }
}

test('three members meet by a channel of the application, which carries texts', async () => {
  const chat = new Chat();
  const all = [await joined(chat.room()), await joined(chat.room()), await joined(chat.room())];
  await worksTogether(all);
  assert.is(chat.texts, 6, 'an offer and an answer for each pair');
});

test('members of different rooms connect by copy and paste', async () => {
  const chat = new Chat();
  const [a, b] = [
    await joined(new BroadcastSignalling(`paste ${process.pid} a`)),
    await joined(new BroadcastSignalling(`paste ${process.pid} b`)),
  ];
  const texts: string[] = [];
  await a.link.connect({
    name: 'copy and paste',
    exchange: async (offer) => {
      texts.push(JSON.stringify(offer));
      const answer = await b.link.answer(JSON.parse(texts[0]!));
      return chat.carry(answer);
    },
  });
  await worksTogether([a, b]);
  assert.is(texts.length, 1);
  // The texts connect once.
  const again = await b.link.answer(JSON.parse(texts[0]!)).catch((error: Error) => error);
  assert.match((again as Error).message, /was received before; connect again/);
});

test.run();
