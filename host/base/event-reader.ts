/** Events for any number of readers: each has all of them from its call on. */

const EVENTS_KEPT = 1024;

/** The events of one reader. The oldest are dropped if it does not read. */
export class EventReader<Event> {
  readonly events: Event[] = [];
  #wake: () => void = () => {};
  #isOver = false;

  push(event: Event): void {
    this.events.push(event);
    if (this.events.length > EVENTS_KEPT) this.events.shift();
    this.#wake();
  }

  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  /** Undefined: the source has ended. */
  async next(): Promise<Event | undefined> {
    while (this.events.length === 0 && !this.#isOver) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return this.events.shift();
  }
}

/** A reader, as its source calls it. */
export type EventTarget<Event> = Pick<EventReader<Event>, 'push' | 'end'>;

/** A function of its own: what it makes must not keep the reader. */
function addWeak<Event>(
  readers: Set<EventTarget<Event>>,
  reader: WeakRef<EventReader<Event>>,
): EventTarget<Event> {
  const target: EventTarget<Event> = {
    push(event) {
      const waiting = reader.deref();
      if (waiting) waiting.push(event);
      else readers.delete(target);
    },
    end: () => reader.deref()?.end(),
  };
  readers.add(target);
  return target;
}

/**
 * Events from the call on. `isOver`: has the source ended when the loop begins? `left` is called
 * when the loop ends. A loop that never begins keeps nothing: until then the source has a weak
 * reference.
 */
export function eventsFor<Event>(
  readers: Set<EventTarget<Event>>,
  reader: EventReader<Event>,
  isOver: () => boolean,
  left: () => void = () => {},
): AsyncGenerator<Event, void, undefined> {
  const target = addWeak(readers, new WeakRef(reader));
  return (async function* () {
    readers.delete(target);
    readers.add(reader);
    if (isOver()) reader.end();
    try {
      for (let event = await reader.next(); event; event = await reader.next()) yield event;
    } finally {
      readers.delete(reader);
      left();
    }
  })();
}
