/**
 * The thread that runs a device's engine and link: one loop that takes in what was posted and what
 * arrived, lets the engine work, and sends. When nothing comes for a while it sleeps in one poll
 * over its socket and an eventfd, until a packet, a kick or the engine's next deadline.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { ControlBlock } from '../engine/control-block.js';
import { Engine } from '../engine/engine.js';
import { EventRing } from '../engine/event-ring.js';
import { instantiate, type EngineParts } from '../engine/load.js';
import { EngineMemory } from '../engine/memory.js';
import { LinkError } from '../errors/errors.js';
import { Gid, type Endpoint } from '../link/endpoint.js';
import type { LinkInfo, LinkMemory, LinkReceiver } from '../link/link.js';
import { loadPosix } from '../link/posix.js';
import { UdpBatchLink } from '../link/udp-batch.js';
import type { UdpOptions } from '../link/udp.js';
import { RealClock } from './clock.js';
import { Destinations } from './destinations.js';
import { Mailroom } from './mailroom.js';

export interface ThreadTask extends EngineParts {
  /** Address of the ControlBlock. */
  readonly control: number;
  /** Memory for the link. */
  readonly linkArea: number;
  readonly linkBytes: number;
  readonly udp: UdpOptions;
  /** How long to look for work before sleeping. */
  readonly spinMicros: number;
  /** Where several processes share the device: address of our copy of the arena, and our slot. */
  readonly shared: { readonly arena: number; readonly slot: number } | undefined;
}

export type ThreadMessage =
  | {
      readonly kind: 'opened';
      readonly info: Omit<LinkInfo, 'local'>;
      readonly address: string;
      readonly port: number;
      readonly wakeDescriptor: number;
      readonly socketDescriptor: number;
      /** Where other processes wake this one's thread; -1: there are none. */
      readonly callPort: number;
    }
  | { readonly kind: 'failed'; readonly code: LinkError['code']; readonly message: string };

const CACHE_LINE = 64;
/** Any datagram wakes. */
const WAKE = Uint8Array.of(1);

/** A range that is only ever handed out: the link lives as long as the thread. */
function linkMemory(memory: EngineMemory, start: number, bytes: number): LinkMemory {
  let next = start;
  return {
    buffer: memory.buffer,
    alloc(size) {
      const address = next;
      next += Math.ceil(size / CACHE_LINE) * CACHE_LINE;
      if (next > start + bytes)
        throw new LinkError('EIO', `the link wants more than ${bytes} bytes`);
      return address;
    },
    free() {},
  };
}

function tell(message: ThreadMessage): void {
  parentPort!.postMessage(message);
}

function tellFailure(error: unknown): void {
  const { code, message } = error as LinkError;
  tell({ kind: 'failed', code: code ?? 'EIO', message });
}

const task = workerData as ThreadTask;
const clock = new RealClock();
const memory = new EngineMemory(task.memory);
const control = new ControlBlock(memory, task.control);
let engine: Engine<Endpoint> | undefined;
let deadline = 0;

// Packets that arrive before the engine runs are lost, as on any network.
const receiver: LinkReceiver = {
  packet: (bytes, source) => engine?.addReceived(bytes, source),
  segments: (address, length, size, source) => engine?.addSegments(address, length, size, source),
  flush: () => engine?.flushReceived(),
  failed: tellFailure,
};

const link = new UdpBatchLink(task.udp);
const mailroom = task.shared && (await makeMailroom(task.shared));

async function makeMailroom({ arena, slot }: { arena: number; slot: number }): Promise<Mailroom> {
  const { posix } = await loadPosix();
  const here = Gid.parse('127.0.0.1');
  const wake = (port: number): void => {
    posix!.sendDatagram(link.callDescriptor, WAKE, posix!.socketAddress(here, port, ''));
  };
  return new Mailroom({ memory, arena, slot, wake });
}

/** Takes in and gives out what there is. How many doorbells and packets there were. */
function turn(running: Engine<Endpoint>, context: number): number {
  let done = running.exports.postDoorbells(context, clock.now());
  done += link.poll();
  if (mailroom) done += mailroom.collect(receiver);
  if (deadline !== 0 && clock.now() >= deadline) {
    running.advance();
    done++;
  } else {
    running.drain();
  }
  return done;
}

function run(context: number): void {
  const exports = control.guard(instantiate(memory, task.module));
  const destinations = new Destinations(memory, (peer) => link.setPeerSegments(peer, true));
  const running = new Engine<Endpoint>(
    memory,
    exports,
    context,
    {
      send: (batch) => link.send(batch),
      destinationOf: (path) => destinations.of(path),
      events: undefined,
      deadline: (micros) => (deadline = micros),
    },
    () => clock.now(),
  );
  engine = running;
  const nobody = { completion: () => {}, asyncEvent: () => {} };
  const events = new EventRing(memory, context, nobody);
  let eventsSeen = 0;
  let busyUntil = 0;
  while (!control.stopped) {
    const kicks = control.kicks;
    const done = turn(running, context);
    if (events.head !== eventsSeen) {
      eventsSeen = events.head;
      control.call();
    }
    const now = clock.now();
    if (done > 0) busyUntil = now + task.spinMicros;
    else if (now >= busyUntil && control.fallAsleep(kicks)) {
      if (!mailroom || mailroom.fallAsleep()) {
        if (deadline === 0) link.wait();
        else link.wait(Math.max(deadline - now, 0));
        mailroom?.awake();
      }
      control.awake();
    }
  }
  // What was posted before the end leaves: the last word of a connection is often among it.
  turn(running, context);
}

async function main(): Promise<void> {
  try {
    const { local, ...info } = await link.open(
      mailroom ? mailroom.sorted(receiver) : receiver,
      linkMemory(memory, task.linkArea, task.linkBytes),
    );
    const address = local.gid.toString();
    const { wakeDescriptor, socketDescriptor, callPort } = link;
    const descriptors = { wakeDescriptor, socketDescriptor, callPort };
    tell({ kind: 'opened', info, address, port: local.port, ...descriptors });
  } catch (error) {
    tellFailure(error);
    return;
  }
  try {
    const context = await new Promise<number>((resolve) => parentPort!.once('message', resolve));
    if (context !== 0) run(context);
  } catch (error) {
    tellFailure(error);
  }
  await link.close();
  parentPort!.close();
}

void main();
