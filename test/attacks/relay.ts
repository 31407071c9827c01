/**
 * An attacker on the path: a relay between a client and a server, each a process of its own. It has
 * a socket at the address of each, so that both see the right source; it reads every packet, and
 * delivers what it likes instead, with an ICRC that is right.
 */
import * as assert from 'uvu/assert';
import { MAD_BYTES, parseMad, type Message } from '../../host/cm/mad.js';
import { Random } from '../simulation/random.js';
import { Member } from '../support/member.js';
import { Attacker } from './attacker.js';
import type { AuthChoice, RemoteMemory, AttackedEnd } from './attacked-end.js';

const [BTH, DETH] = [12, 8];
const UD_SEND_ONLY = 0x64;
const ATTACKED_END = 'build/test/attacks/attacked-end.js';
export const SERVICE = 7474;

export type Side = 'client' | 'server';

/** A packet on its way, without the UDP header. */
export interface Seen {
  readonly from: Side;
  /** A copy. */
  readonly packet: Buffer;
}

/** The connection-manager message in a packet. */
export function messageOf(packet: Buffer): Message | undefined {
  if (packet[0] !== UD_SEND_ONLY) return undefined;
  const message = parseMad(packet.subarray(BTH + DETH, BTH + DETH + MAD_BYTES));
  return typeof message === 'string' ? undefined : message;
}

export function isData(packet: Buffer): boolean {
  return packet[0] !== UD_SEND_ONLY;
}

export class Relay {
  readonly random = new Random(23);
  /** All packets that passed, as their senders sent them. */
  readonly seen: Seen[] = [];
  /** Packets that a sender did not send in that form: changed, replayed, made up. */
  forged = 0;
  /** Packets delivered in the place of a packet; default: itself. */
  tamper: (seen: Seen) => readonly Buffer[] = ({ packet }) => [packet];
  readonly #ends: Readonly<Record<Side, Attacker>>;

  private constructor(ends: Readonly<Record<Side, Attacker>>) {
    this.#ends = ends;
    for (const [at, from] of [
      ['server', 'client'],
      ['client', 'server'],
    ] as const) {
      ends[at].onPacket = (bytes) => {
        const seen = { from, packet: Buffer.from(bytes) };
        this.seen.push(seen);
        for (const packet of this.tamper(seen)) this.#deliver(packet, from);
      };
    }
  }

  static async open(client: string, server: string): Promise<Relay> {
    return new Relay({ client: await Attacker.open(client), server: await Attacker.open(server) });
  }

  get sent(): number {
    return this.#ends.client.sent + this.#ends.server.sent;
  }

  /** Where the packets of a side to the other one have to go. */
  portFor(side: Side): number {
    return this.#ends[side === 'client' ? 'server' : 'client'].port;
  }

  /** Sends a packet of the attacker's own, in the name of a side. */
  inject(packet: Buffer, from: Side): void {
    this.forged++;
    this.#deliver(packet, from);
  }

  #deliver(packet: Buffer, from: Side): void {
    const to = this.#ends[from === 'client' ? 'server' : 'client'].address;
    const copy = Buffer.from(packet);
    void this.#ends[from].send(this.#ends[from].sealed(copy, to), to);
  }

  close(): void {
    this.#ends.client.close();
    this.#ends.server.close();
  }
}

/** Client, server and the relay between them. */
export class OnPath {
  readonly relay: Relay;
  readonly client: Member;
  readonly server: Member;
  readonly serverAddress: string;
  readonly clientAddress: string;
  #rounds = new Map<number, number>();
  readonly #messages = new Map<number, string[]>();

  constructor(relay: Relay, client: Member, server: Member, addresses: Record<Side, string>) {
    this.relay = relay;
    this.client = client;
    this.server = server;
    ({ client: this.clientAddress, server: this.serverAddress } = addresses);
  }

  async call<Name extends keyof AttackedEnd>(
    side: Side,
    name: Name,
    ...args: Parameters<Extract<AttackedEnd[Name], (...args: never[]) => unknown>>
  ): Promise<Awaited<ReturnType<Extract<AttackedEnd[Name], (...args: never[]) => unknown>>>> {
    return (await this[side].run(
      async ({ load }, file, method, values) => {
        const { attackedEnd } = (await load(file)) as { attackedEnd: Record<string, Function> };
        return (await attackedEnd[method]!(...values)) as unknown;
      },
      ATTACKED_END,
      name as string,
      args as unknown[],
    )) as never;
  }

  connect(choice: AuthChoice, maxCmRetries = 15): Promise<string | undefined> {
    return this.call('client', 'connect', this.serverAddress, SERVICE, choice, maxCmRetries);
  }

  /** WRITEs, SENDs, atomics and READs over connection `index`: all have their effect, once. */
  async exchange(index: number, count: number): Promise<void> {
    const from = this.#rounds.get(index) ?? 0;
    const memory: RemoteMemory = await this.call('server', 'memoryOf', index);
    assert.is(await this.call('client', 'rounds', index, memory, from, count), undefined);
    this.#rounds.set(index, from + count);
    await this.judge(index);
  }

  /** Checks that the server has each message of the client once, in order. */
  async judge(index: number): Promise<void> {
    const rounds = this.#rounds.get(index) ?? 0;
    const { count, slots } = await this.call('server', 'contents', index);
    assert.is(count, rounds, 'executed FETCH_AND_ADDs');
    for (const [slot, value] of slots.entries()) {
      let last = rounds - 1;
      while (last >= 0 && last % slots.length !== slot) last--;
      assert.is(value, last < 0 ? '' : `write ${last}`, `slot ${slot}`);
    }
    const messages = this.#messages.get(index) ?? [];
    messages.push(...(await this.call('server', 'messages', index)));
    this.#messages.set(index, messages);
    assert.equal(
      messages,
      Array.from({ length: rounds }, (_, round) => `message ${round}`),
    );
  }

  /** Sum of both sides' counters. */
  async dropped(): Promise<{ tags: number; replays: number; messages: number; ended: number }> {
    const [one, two] = [await this.call('client', 'state'), await this.call('server', 'state')];
    return {
      tags: one.dropTag + two.dropTag,
      replays: one.dropReplay + two.dropReplay,
      messages: one.unauthentic + two.unauthentic,
      ended: one.ended + two.ended,
    };
  }
}

export const PSK = 'a key of thirty-two random bytes';

/** Two processes with a relay between them; `auth` is the listener's. Resolves to what was forged. */
export async function onPath(
  net: number,
  auth: AuthChoice,
  work: (scene: OnPath) => Promise<void>,
): Promise<number> {
  const addresses = { client: `127.1.28.${net}`, server: `127.1.28.${net + 1}` };
  const relay = await Relay.open(addresses.client, addresses.server);
  const members: Member[] = [];
  try {
    for (let count = 0; count < 2; count++) members.push(await Member.start());
    const scene = new OnPath(relay, members[0]!, members[1]!, addresses);
    const { client, server } = addresses;
    await scene.call('client', 'open', client, server, relay.portFor('client'));
    await scene.call('server', 'open', server, client, relay.portFor('server'));
    await scene.call('server', 'listen', server, SERVICE, auth);
    await work(scene);
    return relay.forged;
  } finally {
    for (const member of members) {
      member.kill();
      await member.ended;
    }
    relay.close();
  }
}
