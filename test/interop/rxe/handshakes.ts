/** Connections in numbers, and with each of the connection manager's messages lost once. */
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { ConnectError, RejectReason, connect, listen, type Context } from '../../../host/index.js';
import { Manager } from '../../../host/cm/manager.js';
import { root } from '../../support/paths.js';
import type { Report } from '../group.js';
import { cmListening, inTime, withMtu } from './cm-peer.js';
import { withDevice } from './cm-programs.js';
import {
  PORT,
  REFUSAL,
  beRefused,
  connectionsCommand,
  makeOne,
  refuseOne,
  takeOne,
  type Role,
} from './connections.js';
import { NETWORK_MTU } from './guest.js';
import type { Lab } from './lab.js';

const CONNECTIONS_SOURCE = fileURLToPath(new URL('test/interop/rxe/connections.c', root));
const MANY = 1000;
const MESSAGE_BYTES = 64;
const SECONDS_MAX = 120;
/** Time for which a closed connection with Linux is remembered: four of its intervals of 4.3 s. */
const TIME_WAIT_SECONDS = 40;

/** Attribute ids of the messages (IBA 12.6, 12.11, table of management attributes). */
const ATTRIBUTES = {
  REQ: 0x10,
  REJ: 0x12,
  REP: 0x13,
  RTU: 0x14,
  DREQ: 0x15,
  DREP: 0x16,
  SIDR_REQ: 0x17,
  SIDR_REP: 0x18,
};
export type Handshake = keyof typeof ATTRIBUTES;

/** Every one of those messages that comes from there; behind UDP, BTH and DETH is the datagram. */
function matchAll(message: Handshake, source: string): string {
  const isDatagram = 'udp dport 4791 @th,64,8 0x64 @th,104,24 1';
  const attribute = `@th,352,16 0x${ATTRIBUTES[message].toString(16).padStart(4, '0')}`;
  return `ip saddr ${source} ${isDatagram} ${attribute}`;
}

/** Only the first. */
export function firstOf(message: Handshake, source: string): string {
  return `${matchAll(message, source)} numgen inc mod 1000000000 < 1 counter drop`;
}

/** Sizes of a device's tables: Verbena's, and the guest's. */
async function holdings(context: Context, lab: Lab): Promise<unknown> {
  return {
    heapBytesFree: context.device.arena.heap.bytesFree,
    linux: (await lab.guest.run('rdma resource show')).trim(),
  };
}

/** A thousand connections each way; then nothing is left of them, here or there. */
export async function many(report: Report, lab: Lab): Promise<void> {
  const program = await lab.compile(CONNECTIONS_SOURCE);
  const { guest } = lab;
  await withDevice(lab.ipv4, async (context) => {
    const listener = await listen({ address: lab.ipv4, port: PORT }, { context });
    const command = (role: Role, count: number): string => {
      const address = role === 'connect' ? lab.ipv4 : guest.ipv4;
      return connectionsCommand(program, role, address, count, MESSAGE_BYTES, true);
    };
    const take = async (count: number): Promise<void> => {
      const linux = guest.run(command('connect', count), SECONDS_MAX);
      linux.catch(() => undefined);
      for (let index = 0; index < count; index++) await takeOne(listener, index, MESSAGE_BYTES);
      assert.match(await linux, new RegExp(`^${count} done$`, 'm'));
    };
    const make = async (count: number): Promise<void> => {
      const linux = guest.spawn(command('listen', count));
      try {
        await cmListening(guest, PORT);
        for (let index = 0; index < count; index++) {
          await makeOne(context, guest.ipv4, index, MESSAGE_BYTES);
        }
        assert.match(await linux.finished(), new RegExp(`^${count} done$`, 'm'));
      } finally {
        await linux.stop();
      }
    };
    await take(1);
    await make(1);
    const before = await holdings(context, lab);
    await report.check(`Linux to Verbena: ${MANY} connections come and go`, () => take(MANY));
    await report.check(`Verbena to Linux: ${MANY} connections come and go`, () => make(MANY));
    await report.check('and nothing is left of them, on either side', async () => {
      const { core, byQueuePair, ids } = Manager.of(context);
      const isQuiet = (): boolean => Object.values(core.books).every((count) => count === 0);
      for (let tick = 0; tick < TIME_WAIT_SECONDS * 10 && !isQuiet(); tick++) {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      assert.ok(isQuiet(), JSON.stringify(core.books));
      // The listener's.
      assert.deepEqual([byQueuePair.size, ids.size], [0, 1]);
      assert.deepEqual(await holdings(context, lab), before);
    });
    await listener.close();
  });
}

/** Leaves room for a path MTU of 1024. */
const SMALL_MTU = 1500;

/** The active side selects the path MTU: we refuse one that we lack, Linux does not. */
export async function disagreements(report: Report, lab: Lab): Promise<void> {
  const program = await lab.compile(CONNECTIONS_SOURCE);
  const { guest } = lab;
  const small = { ours: SMALL_MTU, theirs: NETWORK_MTU };
  await report.check('Linux to Verbena: a path MTU that we do not have is refused', () =>
    withMtu(lab, small, () =>
      withDevice(lab.ipv4, async (context) => {
        const listener = await listen({ address: lab.ipv4, port: PORT }, { context });
        const command = connectionsCommand(program, 'connect', lab.ipv4, 1, MESSAGE_BYTES);
        const { output } = await inTime('the program in the guest', guest.spawn(command).ended);
        assert.match(output, new RegExp(`^REJECTED ${RejectReason.INVALID_MTU}$`, 'm'));
        await listener.close();
      }),
    ),
  );
  const smaller = { ours: NETWORK_MTU, theirs: SMALL_MTU };
  await report.check('Verbena to Linux: a path MTU that Linux does not have is taken', () =>
    withMtu(lab, smaller, () =>
      withDevice(lab.ipv4, async (context) => {
        const command = connectionsCommand(program, 'listen', guest.ipv4, 1, MESSAGE_BYTES);
        const linux = guest.spawn(command);
        try {
          await cmListening(guest, PORT);
          await makeOne(context, guest.ipv4, 0, MESSAGE_BYTES);
          assert.match(await linux.finished(), /^1 done$/m);
        } finally {
          await linux.stop();
        }
      }),
    ),
  );
}

interface Loss {
  readonly message: Handshake;
  readonly from: 'Verbena' | 'Linux';
  /** Linux's. */
  readonly role: Role;
  /** We refuse, when Linux connects. */
  readonly refuses?: boolean;
  /** Events that the program in the guest receives. */
  readonly events: readonly string[];
}

const TAKEN = ['CONNECT_REQUEST 0', 'ESTABLISHED 0', 'DISCONNECTED 0'];
const RESOLVED = ['ADDR_RESOLVED 0', 'ROUTE_RESOLVED 0'];
const MADE = [...RESOLVED, 'ESTABLISHED 0', 'DISCONNECTED 0'];

const LOSSES: readonly Loss[] = [
  { message: 'REQ', from: 'Verbena', role: 'listen', events: TAKEN },
  { message: 'REP', from: 'Linux', role: 'listen', events: TAKEN },
  { message: 'RTU', from: 'Verbena', role: 'listen', events: TAKEN },
  { message: 'DREQ', from: 'Verbena', role: 'listen', events: TAKEN },
  { message: 'DREP', from: 'Linux', role: 'listen', events: TAKEN },
  // Linux keeps no record of a REJ: a retried REQ is a new one.
  {
    message: 'REJ',
    from: 'Linux',
    role: 'refuse',
    events: ['CONNECT_REQUEST 0', 'CONNECT_REQUEST 0'],
  },
  { message: 'REQ', from: 'Linux', role: 'connect', events: MADE },
  { message: 'REP', from: 'Verbena', role: 'connect', events: MADE },
  { message: 'RTU', from: 'Linux', role: 'connect', events: MADE },
  { message: 'DREQ', from: 'Linux', role: 'connect', events: MADE },
  { message: 'DREP', from: 'Verbena', role: 'connect', events: MADE },
  {
    message: 'REJ',
    from: 'Verbena',
    role: 'connect',
    refuses: true,
    events: [...RESOLVED, `REJECTED ${RejectReason.CONSUMER_DEFINED}`],
  },
];

async function shakeHands(lab: Lab, context: Context, program: string, loss: Loss): Promise<void> {
  const { guest } = lab;
  const { role, refuses = false } = loss;
  const address = role === 'connect' ? lab.ipv4 : guest.ipv4;
  const listener =
    role === 'connect' ? await listen({ address, port: PORT }, { context }) : undefined;
  const count = role === 'refuse' ? 2 : 1;
  const linux = guest.spawn(connectionsCommand(program, role, address, count, MESSAGE_BYTES));
  try {
    if (!listener) await cmListening(guest, PORT);
    const said = role === 'refuse' ? await beRefused(context, address) : undefined;
    if (role === 'listen') await makeOne(context, address, 0, MESSAGE_BYTES);
    if (listener) await (refuses ? refuseOne(listener) : takeOne(listener, 0, MESSAGE_BYTES));
    const { output, code } = await inTime('the program in the guest', linux.ended);
    const events = output.split('\n').filter((line) => /^[A-Z_]+ -?\d+$/.test(line));
    assert.deepEqual(events, loss.events, output);
    assert.equal(code, refuses ? 1 : 0, output);
    if (said) {
      assert.deepEqual(said, { reason: RejectReason.CONSUMER_DEFINED, said: REFUSAL });
    }
  } catch (error) {
    throw new Error(`${(error as Error).message}\n${linux.output}`, { cause: error });
  } finally {
    await linux.stop();
    await listener?.close();
  }
}

/** A sixteenth of a second, twice more: then we give up. */
const IMPATIENT = { cmResponseTimeout: 14, maxCmRetries: 2 };
/** Before Linux gives up: it has our REJ. */
const FIRST = { ...IMPATIENT, timeout: 150 };

/** Linux accepts, and its REP is lost: both sides fail with an error, there with `end`. */
async function neverAnswered(
  lab: Lab,
  context: Context,
  program: string,
  limits: typeof IMPATIENT,
  end: 'REJECTED 4' | 'UNREACHABLE -110',
): Promise<void> {
  const { guest } = lab;
  const lostMessages = [matchAll('REP', guest.ipv4)];
  // The side that gives up first sends a REJ, which the other one may get before it gives up.
  const ofBoth = [guest.ipv4, lab.ipv4].map((source) => matchAll('REJ', source));
  if (end === 'UNREACHABLE -110') lostMessages.push(...ofBoth);
  const linux = guest.spawn(connectionsCommand(program, 'listen', guest.ipv4, 1, MESSAGE_BYTES));
  try {
    await cmListening(guest, PORT);
    const { lost } = await lab.withDrops(
      lostMessages.map((rule) => `${rule} counter drop`),
      async () => {
        const connecting = connect({ address: guest.ipv4, port: PORT }, { context, ...limits });
        const error: unknown = await inTime('connect', connecting).catch((reason) => reason);
        assert.ok(error instanceof ConnectError && error.code === 'ETIMEDOUT', String(error));
        const { output } = await inTime('the program in the guest', linux.ended);
        assert.match(output, new RegExp(`^CONNECT_REQUEST 0\n${end}\n0 done$`, 'm'));
      },
    );
    assert.ok(lost > 1);
  } finally {
    await linux.stop();
  }
}

/** Each message of a connection is lost once, from either side. */
export async function losses(report: Report, lab: Lab): Promise<void> {
  const program = await lab.compile(CONNECTIONS_SOURCE);
  await withDevice(lab.ipv4, async (context) => {
    for (const loss of LOSSES) {
      const { message, from, role } = loss;
      const roles = role === 'connect' ? 'Linux to Verbena' : 'Verbena to Linux';
      await report.check(`${roles}: the first ${message} of ${from} is lost`, async () => {
        const source = from === 'Linux' ? lab.guest.ipv4 : lab.ipv4;
        const use = (): Promise<void> => shakeHands(lab, context, program, loss);
        const { lost } = await lab.withDrops([firstOf(message, source)], use);
        assert.equal(lost, 1);
      });
    }
    await report.check('Verbena to Linux: every REP of Linux is lost: both give up', () =>
      neverAnswered(lab, context, program, IMPATIENT, 'UNREACHABLE -110'),
    );
    await report.check('Verbena to Linux: a connect that times out sends a REJ', () =>
      neverAnswered(lab, context, program, FIRST, 'REJECTED 4'),
    );
  });
}
