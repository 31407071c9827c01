/** One end of a connection by librdmacm's calls, and what two of them say to each other. */
import * as assert from 'uvu/assert';
import {
  CmEventType,
  PortSpace,
  QpType,
  SendFlag,
  WcStatus,
  createEventChannel,
  type AddressHandle,
  type CmAddress,
  type CmEvent,
  type CmId,
  type ConnParam,
  type Context,
  type EventChannel,
  type MemoryRegion,
  type WorkCompletion,
} from '../../../host/index.js';
import { GRH_BYTES } from './player.js';
import type { World } from './world.js';

export const PORT = 7471;
const MESSAGE_BYTES = 1024;
const MESSAGES = 10;
/** One in twenty gets lost; ten in a row do not. */
const DATAGRAM_ATTEMPTS = 10;
/** As upstream's: one receive at a time. */
export const SMALL = { cap: { maxSendWr: 4, maxRecvWr: 1 } };

/** Result of `promise`, while the world makes progress. */
export async function settled<T>(world: World, promise: Promise<T>, what: string): Promise<T> {
  let outcome: (() => T) | undefined;
  promise.then(
    (value) => (outcome = () => value),
    (error: unknown) => {
      outcome = () => {
        throw error;
      };
    },
  );
  await world.until(() => outcome !== undefined, what);
  return outcome!();
}

export class CmPlayer {
  readonly world: World;
  readonly context: Context;
  readonly channel: EventChannel;
  /** Connected id: the child of a listener, on the passive side. */
  id: CmId;
  mr!: MemoryRegion;
  /** Datagrams: the address handle of their destination. */
  ah: AddressHandle | undefined;
  remoteQpn = 0;

  constructor(world: World, context: Context, id: CmId) {
    this.world = world;
    this.context = context;
    this.id = id;
    this.channel = id.channel;
  }

  static async create(world: World, portSpace: number = PortSpace.TCP): Promise<CmPlayer> {
    const context = await world.open();
    return new CmPlayer(world, context, createEventChannel(context).createId(portSpace));
  }

  /** Where others find it. */
  get address(): CmAddress {
    const { gid, port } = this.context.local;
    return { address: gid.toString(), port: PORT, udpPort: port };
  }

  /** The next event of the channel, which is that one. */
  async event(wanted: number): Promise<CmEvent> {
    const event = await settled(this.world, this.id.channel.getEvent(), 'an event');
    assert.is(event?.event, wanted, `event ${event?.name}`);
    event!.ackEvent();
    return event!;
  }

  /** Memory for messages, as `reg…` registers it. */
  register(by: 'regMsgs' | 'regRead' | 'regWrite' = 'regMsgs'): void {
    this.mr = this.id[by](this.context.alloc(MESSAGE_BYTES + GRH_BYTES));
  }

  /** Where messages lie. */
  get message(): Uint8Array {
    const from = this.id.qp?.qpType === QpType.UD ? GRH_BYTES : 0;
    return this.mr.buffer.subarray(from, from + MESSAGE_BYTES);
  }

  postRecv(): void {
    this.id.postRecv(1, this.mr.buffer, this.mr);
  }

  postSend(): void {
    const { id, message, mr, ah } = this;
    if (ah) id.postUdSend(2, message, mr, SendFlag.SIGNALED, ah, this.remoteQpn);
    else id.postSend(2, message, mr, SendFlag.SIGNALED);
  }

  async sendComp(): Promise<WorkCompletion> {
    return success(await settled(this.world, this.id.getSendComp(), 'a send completion'));
  }
}

function success(wc: WorkCompletion | undefined): WorkCompletion {
  assert.is(wc?.status, WcStatus.SUCCESS);
  return wc!;
}

/** Resolved, and with a route. */
export async function resolve(active: CmPlayer, target: CmAddress): Promise<void> {
  active.id.resolveAddr(target);
  await active.event(CmEventType.ADDR_RESOLVED);
  active.id.resolveRoute();
  await active.event(CmEventType.ROUTE_RESOLVED);
}

/** The passive side's part in a connection, from a request on. */
export interface Handshake {
  readonly portSpace?: number;
  /** After the queue pairs are there, before they are connected. */
  readonly prepare?: (id: CmId) => void;
  readonly active?: ConnParam;
  readonly passive?: ConnParam;
}

export interface Pair {
  readonly client: CmPlayer;
  readonly server: CmPlayer;
  readonly listenId: CmId;
}

/** A listener, and a client with a pending request; both have queue pairs. */
export async function ask(world: World, handshake: Handshake = {}): Promise<Pair> {
  const { portSpace, prepare = () => {}, active = {} } = handshake;
  const server = await CmPlayer.create(world, portSpace);
  const client = await CmPlayer.create(world, portSpace);
  const listenId = server.id;
  listenId.bindAddr(server.address);
  listenId.listen();
  await resolve(client, server.address);
  client.id.createQp(SMALL);
  prepare(client.id);
  client.id.connect(active);
  const request = await server.event(CmEventType.CONNECT_REQUEST);
  assert.is(request.listenId, listenId);
  server.id = request.id;
  server.id.createQp(SMALL);
  prepare(server.id);
  return { client, server, listenId };
}

/** Two connected players. */
export async function establish(world: World, handshake: Handshake = {}): Promise<Pair> {
  const pair = await ask(world, handshake);
  const { client, server } = pair;
  server.id.accept(handshake.passive);
  const { ud } = await client.event(CmEventType.ESTABLISHED);
  if (ud) {
    client.ah = client.id.pd.createAh(ud.ahAttr);
    client.remoteQpn = ud.qpNum;
    assert.is(ud.qpNum, server.id.qp!.qpNum);
  } else await server.event(CmEventType.ESTABLISHED);
  return pair;
}

/** Messages there and back; each byte is looked at. */
export async function cmTraffic({ client, server }: Pair): Promise<void> {
  for (let index = 0; index < MESSAGES; index++) {
    const wc = await oneMessage(client, server, index);
    if (client.ah) {
      // The answer goes to where the question came from.
      const grh = server.mr.buffer.subarray(0, GRH_BYTES);
      server.ah ??= server.id.pd.createAhFromWc(wc, grh, client.context.local.port);
      server.remoteQpn = client.id.qp!.qpNum;
      assert.is(wc.srcQp, server.remoteQpn);
    }
    await oneMessage(server, client, index + 128);
  }
}

/** A datagram that got lost is sent again. */
export async function oneMessage(
  from: CmPlayer,
  to: CmPlayer,
  fill: number,
): Promise<WorkCompletion> {
  to.postRecv();
  to.message.fill(0);
  let wc: WorkCompletion | undefined;
  void to.id.getRecvComp().then((completion) => (wc = completion));
  for (let attempt = 0; !wc; attempt++) {
    assert.ok(attempt < DATAGRAM_ATTEMPTS, `${attempt} datagrams in a row did not arrive`);
    from.message.fill(fill);
    from.postSend();
    await from.sendComp();
    if (from.ah) await from.world.soon(() => wc !== undefined);
    else await from.world.until(() => wc !== undefined, 'a message');
  }
  success(wc);
  assert.ok(to.message.every((byte) => byte === fill));
  return wc;
}

/** Both sides hear that it is over. */
export async function disconnect({ client, server }: Pair): Promise<void> {
  server.id.disconnect();
  await client.event(CmEventType.DISCONNECTED);
  await server.event(CmEventType.DISCONNECTED);
  client.id.disconnect();
}
