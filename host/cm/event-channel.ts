/** `rdma_event_channel`: what happens to its ids, in order. */
import { MisuseError } from '../errors/errors.js';
import { EventDescriptor } from '../link/event-descriptor.js';
import { checkContext, type Context } from '../verbs/context.js';
import { CmId } from './cm-id.js';
import { CmEventType, PortSpace, type CmEventName } from './enums.js';
import type { CmEventDetails, ConnParam, UdParam } from './event-details.js';

/** `rdma_cm_event`. */
export interface CmEventFields extends CmEventDetails {
  readonly event: CmEventType;
  readonly id: CmId;
  /** CONNECT_REQUEST: whose request it is; `id` is a new one, made for it. */
  readonly listenId?: CmId;
}

/** `struct rdma_cm_event`: what happened to an id. */
export class CmEvent {
  readonly event: CmEventType;
  /** Its name, for humans. */
  readonly name: CmEventName;
  readonly id: CmId;
  readonly listenId: CmId | undefined;
  readonly status: number;
  readonly conn: ConnParam | undefined;
  readonly ud: UdParam | undefined;
  readonly arg: bigint | undefined;
  #isAcknowledged = false;

  constructor(fields: CmEventFields) {
    this.event = fields.event;
    // The values count from 0, in the order of the names.
    this.name = Object.keys(CmEventType)[fields.event] as CmEventName;
    this.id = fields.id;
    this.listenId = fields.listenId;
    this.status = fields.status ?? 0;
    this.conn = fields.conn;
    this.ud = fields.ud;
    this.arg = fields.arg;
  }

  /** Private data of the other application. */
  get privateData(): Uint8Array {
    return this.conn?.privateData ?? this.ud?.privateData ?? new Uint8Array(0);
  }

  /**
   * `rdma_ack_cm_event`. Has no effect on memory: an unacknowledged event does not keep its id from
   * being destroyed.
   */
  ackEvent(): void {
    if (this.#isAcknowledged) throw new MisuseError('event', 'is acknowledged already');
    this.#isAcknowledged = true;
  }
}

/** `struct rdma_event_channel`: where the events of ids arrive (`createEventChannel`). */
export class EventChannel {
  readonly #ids = new Set<CmId>();
  #events: CmEvent[] = [];
  readonly #waiting: ((event: CmEvent | undefined) => void)[] = [];
  readonly #descriptor = new EventDescriptor();
  #isClosed = false;
  #isOver = false;

  /** @internal Use `createEventChannel()`. */
  constructor(readonly context: Context) {
    context.endings.add(this.#contextEnds);
  }

  /** The last context of a device closes with it; another one leaves no listener to the others. */
  readonly #contextEnds = (): void => {
    if (!this.context.device.closed) for (const id of [...this.#ids]) id.destroy();
    this.#end();
  };

  /** No further event is queued; queued events can still be taken. */
  readonly #end = (): void => {
    this.#isOver = true;
    this.#descriptor.close();
    this.context.endings.delete(this.#contextEnds);
    this.#hand();
  };

  /** `rdma_create_id`: one end of a connection, or a listener. Throws MisuseError, RefusalError. */
  createId(portSpace: number = PortSpace.TCP): CmId {
    if (this.#isClosed) throw new MisuseError('event channel', 'is destroyed');
    return CmId.create(this, portSpace);
  }

  /** @internal Of the same device. */
  createAnother(): EventChannel {
    return createEventChannel(this.context);
  }

  /** `rdma_get_cm_event`: the next event; undefined after the channel or its context was closed. */
  getEvent(): Promise<CmEvent | undefined> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#hand();
    });
  }

  /**
   * `rdma_event_channel.fd`: a file descriptor that poll(2) finds readable while an event is queued;
   * `getEvent` takes it. As `getFd` of a completion channel: the thread of the context signals it,
   * the channel closes it. Rejects with MisuseError (destroyed, or the context is closed),
   * RefusalError EOPNOTSUPP (no Linux; neither koffi nor node:ffi), EMFILE.
   */
  getFd(): Promise<number> {
    return this.#descriptor.open();
  }

  /** Yields events until the channel is destroyed or its context is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CmEvent, void, undefined> {
    for (let event = await this.getEvent(); event; event = await this.getEvent()) yield event;
  }

  /** `rdma_destroy_event_channel`. Its ids are destroyed with it. */
  destroy(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const id of [...this.#ids]) id.destroy();
    this.#end();
  }

  [Symbol.dispose](): void {
    this.destroy();
  }

  /** @internal */
  push(fields: CmEventFields): CmEvent {
    const event = new CmEvent(fields);
    this.#deliver(event);
    return event;
  }

  #deliver(event: CmEvent): void {
    this.#events.push(event);
    // Behind the verb that caused it, and the next one, which may withdraw it.
    if (this.#waiting.length > 0) queueMicrotask(() => this.#hand());
    else this.#descriptor.set(this.#events);
  }

  /** Events to the calls that wait for them. */
  #hand(): void {
    while (this.#waiting.length > 0 && (this.#events.length > 0 || this.#isOver))
      this.#waiting.shift()!(this.#events.shift());
    this.#descriptor.set(this.#events);
  }

  /** @internal Nothing has taken the event, and nothing will. */
  withdraw(event: object): void {
    this.#events = this.#events.filter((one) => one !== event);
    this.#descriptor.set(this.#events);
  }

  /** @internal */
  add(id: CmId): void {
    this.#ids.add(id);
  }

  /** @internal The id comes from another channel, and what waits there for it. */
  take(id: CmId, from: EventChannel): void {
    from.#ids.delete(id);
    this.#ids.add(id);
    for (const event of from.#events.splice(0)) {
      ((event.listenId ?? event.id) === id ? this : from).#deliver(event);
    }
    from.#descriptor.set(from.#events);
  }

  /** @internal Removes an id with its unread events; requests to it are refused. */
  remove(id: CmId): void {
    this.#ids.delete(id);
    const orphans: CmId[] = [];
    this.#events = this.#events.filter((event) => {
      if (event.listenId === id) orphans.push(event.id);
      return event.id !== id && event.listenId !== id;
    });
    this.#descriptor.set(this.#events);
    for (const orphan of orphans) orphan.destroy();
  }
}

/**
 * `rdma_create_event_channel`, for ids of one device: there is no table of devices by address here.
 * Throws MisuseError when the context is closed.
 */
export function createEventChannel(context: Context): EventChannel {
  checkContext('createEventChannel', context);
  return new EventChannel(context);
}
