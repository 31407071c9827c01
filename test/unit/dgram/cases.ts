/**
 * Cases of `differential.test.ts`: each is a short program that writes down what it sees. They
 * cover the methods, events, errors and orders of callbacks of `node:dgram`.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import cluster from 'node:cluster';
import type nodeDgram from 'node:dgram';
import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';

export type Dgram = typeof nodeDgram;
export type Socket = nodeDgram.Socket;

/** Arguments of a case. */
export interface Stage {
  readonly dgram: Dgram;
  /** Two addresses. */
  readonly here: string;
  readonly there: string;
  /** Writes a line. Port numbers that the system chose must not be in it. */
  note(...what: unknown[]): void;
  /** Writes down what a call returns or throws. */
  call(name: string, run: () => unknown): void;
  /** Resolves when datagrams to the socket's address and port go by RDP, if they ever will. */
  reachable(address: string, port: number): Promise<void>;
}

export type Case = readonly [name: string, run: (stage: Stage) => Promise<void> | void];

type Loose = Socket & {
  readonly [
    method in
      | 'send'
      | 'sendto'
      | 'bind'
      | 'connect'
      | 'close'
      | 'setTTL'
      | 'addMembership'
      | 'setBroadcast'
      | 'bindSync'
      | 'connectSync'
  ]: (...args: unknown[]) => unknown;
};

/** Code, and the properties of a system error, with ports left out. */
export function told(error: unknown): string {
  if (!(error instanceof Error)) return inspect(error);
  const { code, syscall, errno, address, name } = error as NodeJS.ErrnoException & {
    address?: string;
  };
  const message = error.message.replace(/\d{4,5}/g, 'PORT');
  return inspect([name, code, syscall, errno, address, message], { breakLength: Infinity });
}

export async function bound(
  { dgram, here, reachable }: Stage,
  address = here,
  options: object = {},
): Promise<Loose> {
  const type = address.includes(':') ? 'udp6' : 'udp4';
  const socket = dgram.createSocket({ type, ...options }) as Loose;
  socket.bind(0, address);
  await once(socket, 'listening');
  await reachable(address, socket.address().port);
  return socket;
}

export async function closed(...sockets: Socket[]): Promise<void> {
  for (const socket of sockets) {
    const end = once(socket, 'close');
    socket.close();
    await end;
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

async function turns(count = 20): Promise<void> {
  for (let index = 0; index < count; index++) await turn();
}

/** The thread computes. */
function block(millis: number): void {
  const end = performance.now() + millis;
  while (performance.now() < end);
}

/** The next message as text, with the length and family of its sender. */
async function next(socket: Socket): Promise<string> {
  const [data, { family, address, size }] = (await once(socket, 'message')) as [
    Buffer,
    nodeDgram.RemoteInfo,
  ];
  return `${data} ${Buffer.isBuffer(data)} ${family} ${address} ${size}`;
}

const BYTES = Buffer.from('0123456789');

/** Arguments of `send` in front of the callback; `P` stands for the port, `A` for the address. */
const SENDS: readonly (readonly unknown[])[] = [
  [BYTES, 'P', 'A'],
  ['text', 'P', 'A'],
  ['äöü', 'P', 'A'],
  [new Uint8Array([65, 66]), 'P', 'A'],
  [new Uint16Array([0x4141]), 'P', 'A'],
  [new DataView(BYTES.buffer, BYTES.byteOffset, 3), 'P', 'A'],
  [BYTES, 2, 3, 'P', 'A'],
  [BYTES, 0, 0, 'P', 'A'],
  ['text', 1, 2, 'P', 'A'],
  [[BYTES, 'and', new Uint8Array([66])], 'P', 'A'],
  [[], 'P', 'A'],
  [['', ''], 'P', 'A'],
  ['', 'P', 'A'],
  [Buffer.alloc(0), 'P', 'A'],
];

/** Arguments that are refused. */
const WRONG_SENDS: readonly (readonly unknown[])[] = [
  [],
  ['x'],
  ['x', 0],
  ['x', 65536],
  ['x', -1],
  ['x', 1.5],
  ['x', 'port'],
  ['x', null],
  ['x', {}],
  [5, 7],
  [null, 7],
  [undefined, 7],
  [{}, 7],
  [[5], 7],
  [[{}], 7, 'A'],
  ['x', 7, 5],
  ['x', 7, {}],
  ['x', 7, true],
  ['abc', 4, 1, 7, 'A'],
  ['abc', 0, 4, 7, 'A'],
  ['abc', -1, 1, 7, 'A'],
  ['abc', '1', 1, 7, 'A'],
  ['abc', 0, 1, 0, 'A'],
  ['abc', 0, 1, 7, 5],
  [{ length: 3 }, 0, 1, 7, 'A'],
];

const METHODS: readonly (readonly [name: string, ...args: unknown[]])[] = [
  ['setTTL', 16],
  ['setTTL', 0],
  ['setTTL', 256],
  ['setTTL', 'x'],
  ['setBroadcast', true],
  ['setBroadcast', 0],
  ['setMulticastTTL', 16],
  ['setMulticastTTL', 'x'],
  ['setMulticastTTL', 1000],
  ['setMulticastLoopback', true],
  ['setMulticastLoopback', 0],
  ['setMulticastInterface', '127.0.0.1'],
  ['setMulticastInterface', 'x'],
  ['setMulticastInterface', 5],
  ['addMembership', '224.0.0.114'],
  ['addMembership', '1.2.3.4'],
  ['addMembership'],
  ['dropMembership', '224.0.0.115'],
  ['dropMembership'],
  ['addSourceSpecificMembership', 1, '232.0.0.1'],
  ['addSourceSpecificMembership', '127.0.0.1', 1],
  ['dropSourceSpecificMembership', '127.0.0.1', '232.0.0.9'],
  ['setRecvBufferSize', 'x'],
  ['setRecvBufferSize', 10000],
  ['setSendBufferSize', -1],
  ['setSendBufferSize', 10000],
  ['getSendQueueSize'],
  ['getSendQueueCount'],
  ['remoteAddress'],
  ['disconnect'],
  ['sendto'],
  ['sendto', 'x', 0, 1, 'port', '127.0.0.1'],
  ['sendto', 'x', 'y', 1, 7, '127.0.0.1'],
  ['sendto', 'x', 0, 1, 7, 5],
  ['connect', 0],
  ['connect', 'x'],
  ['connect', 7, 5],
];

function filled(args: readonly unknown[], port: number, address: string): unknown[] {
  return args.map((arg) => (arg === 'P' ? port : arg === 'A' ? address : arg));
}

export const CASES: readonly Case[] = [
  ...SENDS.map((args): Case => [
    `send ${inspect(args, { breakLength: Infinity })}`,
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const sent = new Promise<void>((resolve) => {
        one.send(...filled(args, other.address().port, stage.there), (...heard: unknown[]) => {
          stage.note('callback', ...heard);
          resolve();
        });
      });
      stage.note(await next(other));
      await sent;
      await closed(one, other);
    },
  ]),
  ...WRONG_SENDS.map((args): Case => [
    `wrong send ${inspect(args, { breakLength: Infinity })}`,
    async (stage) => {
      const one = await bound(stage);
      stage.call('send', () => one.send(...filled(args, 7, stage.there)));
      await turns();
      await closed(one);
    },
  ]),
  ...METHODS.map(([name, ...args]): Case => [
    `${name}(${args.map((arg) => inspect(arg)).join()}) before bind, when bound, when closed`,
    async (stage) => {
      const unbound = stage.dgram.createSocket('udp4');
      unbound.on('error', (error) => stage.note('error', told(error)));
      const method = (socket: Socket) => (): string => {
        const methods = socket as unknown as Record<string, (...all: unknown[]) => unknown>;
        const result = methods[name]!(...args);
        return result === socket ? 'itself' : inspect(result);
      };
      stage.call('unbound', method(unbound));
      await turns();
      await closed(unbound);
      const socket = await bound(stage);
      socket.on('error', (error) => stage.note('error', told(error)));
      stage.call('bound', method(socket));
      await closed(socket);
      stage.call('closed', method(socket));
    },
  ]),
  [
    'sends without a callback, and back to the sender',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      stage.note(one.send('there', other.address().port, stage.there));
      const [, from] = (await once(other, 'message')) as [Buffer, nodeDgram.RemoteInfo];
      stage.note(from.port === one.address().port);
      other.send('back', from.port, from.address);
      stage.note(await next(one));
      await closed(one, other);
    },
  ],
  [
    'order of send callbacks, ticks and later calls',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const { port } = other.address();
      const heard: string[] = [];
      const all = new Promise<void>((resolve) => {
        for (const name of ['a', 'b', 'c']) {
          one.send(name, port, stage.there, () => {
            heard.push(name);
            if (name === 'c') resolve();
          });
        }
      });
      heard.push('returned');
      await all;
      stage.note(heard);
      await closed(one, other);
    },
  ],
  [
    'the asynchronous context of messages is that of the socket, of callbacks that of the send',
    async (stage) => {
      const store = new AsyncLocalStorage<string>();
      const [one, other] = [await bound(stage), await store.run('socket', () => bound(stage))];
      const third = await bound(stage, stage.there);
      const heard = (socket: Socket): Promise<void> =>
        new Promise((resolve) => {
          socket.once('message', (data) => {
            stage.note(`${data}`, store.getStore());
            resolve();
          });
        });
      const toThird = heard(third);
      await store.run('send', async () => {
        await new Promise<void>((resolve) =>
          one.send('to third', third.address().port, stage.there, () => {
            stage.note(store.getStore());
            resolve();
          }),
        );
      });
      await toThird;
      const toOther = heard(other);
      third.send('to other', other.address().port, stage.here);
      await toOther;
      await closed(one, other, third);
    },
  ],
  [
    'datagrams arrive in order',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const list: string[] = [];
      other.on('message', (data) => list.push(`${data}`));
      for (let index = 0; index < 100; index++) {
        one.send(`${index}`, other.address().port, stage.there);
        if (index % 7 === 0) await turn();
      }
      while (list.length < 100) await turn();
      stage.note(list);
      await closed(one, other);
    },
  ],
  [
    'ticks and microtasks of a message come before the next message, ticks first',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const list: string[] = [];
      const all = new Promise<void>((resolve) => {
        other.on('message', (data) => {
          const name = `${data}`;
          list.push(name);
          queueMicrotask(() => list.push(`microtask ${name}`));
          process.nextTick(() => {
            list.push(`tick ${name}`);
            queueMicrotask(() => list.push(`microtask of the tick ${name}`));
          });
          if (name === 'f') setImmediate(resolve);
        });
      });
      for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) {
        one.send(name, other.address().port, stage.there);
      }
      // All have come before the first one is read.
      block(50);
      await all;
      stage.note(list);
      await closed(one, other);
    },
  ],
  [
    'a listener that throws ends no other message',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const list: string[] = [];
      const caught = (error: Error): void => void list.push(error.message);
      process.on('uncaughtException', caught);
      const all = new Promise<void>((resolve) => {
        other.on('message', (data) => {
          list.push(`${data}`);
          if (`${data}` === 'd') setImmediate(resolve);
          else throw new Error(`of ${data}`);
        });
      });
      for (const name of ['a', 'b', 'c', 'd']) one.send(name, other.address().port, stage.there);
      block(50);
      await all;
      process.off('uncaughtException', caught);
      stage.note(list);
      await closed(one, other);
    },
  ],
  [
    'callbacks send again, many times',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      let [heard, arrived] = [0, 0];
      other.on('message', () => arrived++);
      await new Promise<void>((resolve) => {
        const again = (): void => {
          if (heard++ === 50) resolve();
          else one.send('x', other.address().port, stage.there, again);
        };
        again();
      });
      while (arrived < 50) await turn();
      stage.note(heard, arrived);
      await closed(one, other);
    },
  ],
  [
    'the memory of a datagram may change after its callback',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const bytes = Buffer.from('before');
      const coming = next(other);
      await new Promise<void>((resolve) =>
        one.send(bytes, other.address().port, stage.there, () => {
          bytes.fill('x');
          resolve();
        }),
      );
      stage.note(await coming);
      await closed(one, other);
    },
  ],
  [
    'a datagram that is larger than UDP',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      for (const bytes of [65507, 65508, 70_000]) {
        const said = await new Promise<string>((resolve) =>
          one.send(Buffer.alloc(bytes), other.address().port, stage.there, (error, count) =>
            resolve(error ? told(error) : `${count}`),
          ),
        );
        stage.note(bytes, said);
      }
      one.send(Buffer.alloc(70_000), other.address().port, stage.there);
      await turns();
      await closed(one, other);
    },
  ],
  [
    'a name that has no address: callback, and event without a callback',
    async (stage) => {
      const lookup: nodeDgram.SocketOptions['lookup'] = (name, _, callback) => {
        stage.note('lookup', name);
        const error = Object.assign(new Error(`no ${name}`), { code: 'ENOTFOUND' });
        process.nextTick(callback, error, '', 4);
      };
      const unbound = stage.dgram.createSocket({ type: 'udp4', lookup });
      unbound.on('error', (error) => stage.note('error', told(error)));
      unbound.send('x', 7, 'nowhere', () => stage.note('never'));
      await turns();
      let isBound = false;
      const one = await bound(stage, stage.here, {
        lookup: ((name, options, callback) => {
          if (isBound) lookup(name, options, callback);
          else process.nextTick(callback, null, name, 4);
        }) satisfies typeof lookup,
      });
      isBound = true;
      one.on('error', (error) => stage.note('error', told(error)));
      await new Promise<void>((resolve) => {
        one.send('x', 7, 'nowhere', (...heard: unknown[]) => {
          stage.note('callback', heard.length, told(heard[0]));
          resolve();
        });
      });
      one.send('x', 7, 'nowhere');
      await turns();
      await closed(one);
    },
  ],
  [
    'a lookup function is called once for each datagram, also for an address',
    async (stage) => {
      const other = await bound(stage, stage.there);
      const lookup: nodeDgram.SocketOptions['lookup'] = (name, options, callback) => {
        stage.note('lookup', name, typeof options);
        process.nextTick(callback, null, name === 'peer' ? stage.there : name, 4);
      };
      const one = await bound(stage, stage.here, { lookup });
      for (const name of ['peer', stage.there]) {
        const coming = next(other);
        one.send(name, other.address().port, name);
        stage.note(await coming);
      }
      await closed(one, other);
    },
  ],
  [
    'wrong options of createSocket',
    ({ dgram, call }) => {
      const create = dgram.createSocket as (...args: unknown[]) => unknown;
      const wrongs = [undefined, null, 'udp', 5, {}, { type: 'tcp' }, ['udp4'], () => 'udp4'];
      for (const wrong of wrongs) call('createSocket', () => void create(wrong));
      for (const lookup of ['x', {}, 5, null, true]) {
        call('lookup', () => void create({ type: 'udp4', lookup }));
      }
      call('signal', () => void create({ type: 'udp4', signal: {} }));
      call('listener', () => void create('udp4', 'no function'));
    },
  ],
  [
    'bind: forms, return value, callback and order',
    async (stage) => {
      const { dgram, here, note } = stage;
      const forms: ((socket: Loose, done: () => void) => unknown)[] = [
        (socket, done) => socket.bind(0, here, done),
        (socket, done) => socket.bind({ port: 0, address: here }, done),
        (socket, done) => socket.bind({ port: 0, address: here, exclusive: true }, done),
        (socket, done) => socket.bind(0, done),
        (socket, done) => socket.bind(undefined, here, done),
        (socket, done) => socket.bind(done),
      ];
      for (const form of forms) {
        const socket = dgram.createSocket('udp4') as Loose;
        const heard: string[] = [];
        socket.on('listening', () => heard.push('listening'));
        await new Promise<void>((resolve) => {
          const result = form(socket, () => {
            heard.push('callback');
            resolve();
          });
          note(result === socket);
          heard.push('returned');
        });
        const { address, family } = socket.address();
        note(heard, address, family);
        stage.call('again', () => socket.bind(0));
        await closed(socket);
      }
    },
  ],
  [
    'bind: a port in use, a foreign address, a wrong port',
    async (stage) => {
      const one = await bound(stage);
      const { port } = one.address();
      for (const [where, address] of [
        [port, stage.here],
        [0, '192.0.2.1'],
        [0, 'not.an.address.invalid'],
      ] as const) {
        const socket = stage.dgram.createSocket('udp4');
        socket.bind(where, address);
        const [error] = (await once(socket, 'error')) as [Error];
        stage.note(
          told(error)
            .replace(/EAI_AGAIN/g, 'ENOTFOUND')
            .replace(/-300\d/g, '-3008'),
        );
        await closed(socket);
      }
      const socket = stage.dgram.createSocket('udp4') as Loose;
      stage.call('port', () => socket.bind(65536, stage.here) === socket);
      socket.on('error', (error) => stage.note(told(error)));
      await turns();
      await closed(one, socket);
    },
  ],
  [
    'address and remoteAddress at each stage',
    async (stage) => {
      const socket = stage.dgram.createSocket('udp4') as Loose;
      stage.call('address', () => socket.address());
      stage.call('remoteAddress', () => socket.remoteAddress());
      socket.bind(0, stage.here);
      await once(socket, 'listening');
      stage.call('keys', () => Object.keys(socket.address()).sort());
      await closed(socket);
      stage.call('address', () => socket.address());
    },
  ],
  [
    'close: callback, event, twice, and calls after it',
    async (stage) => {
      const socket = await bound(stage);
      const heard: string[] = [];
      socket.on('close', (...args) => heard.push(`event ${args.length}`));
      await new Promise<void>((resolve) => {
        stage.note(
          socket.close(() => {
            heard.push('callback');
            resolve();
          }) === socket,
        );
        heard.push('returned');
      });
      stage.note(heard);
      for (const name of ['send', 'bind', 'close', 'ref', 'unref', 'address'] as const) {
        stage.call(name, () => {
          const result = (socket as unknown as Record<string, (...a: unknown[]) => unknown>)[name]!(
            'x',
            7,
            stage.there,
          );
          return result === socket;
        });
      }
    },
  ],
  [
    'close before listening, while it listens, and in its callback',
    async (stage) => {
      const { dgram, here, note } = stage;
      const early = dgram.createSocket('udp4');
      early.on('listening', () => note('listening'));
      early.on('close', () => note('close'));
      early.bind(0, here);
      stage.call('close', () => early.close() === early);
      await turns();
      // In a worker of node:cluster Node itself asks a socket for its address that it has closed.
      if (!cluster.isWorker) {
        const late = dgram.createSocket('udp4');
        late.on('close', () => note('close'));
        late.bind(0, here, () => late.close());
        await turns();
      }
      const never = dgram.createSocket('udp4');
      never.close(() => note('never bound'));
      await turns();
      stage.call('close', () => dgram.createSocket('udp4').close('no function' as never) !== null);
      await turns();
    },
  ],
  [
    'what is sent before bind leaves in order, callbacks in order',
    async (stage) => {
      const other = await bound(stage, stage.there);
      const list: string[] = [];
      other.on('message', (data) => list.push(`${data}`));
      const one = stage.dgram.createSocket('udp4');
      const heard: unknown[] = [];
      one.on('listening', () => heard.push('listening'));
      for (const text of ['a', 'bb', 'ccc']) {
        one.send(text, other.address().port, stage.there, (error, bytes) =>
          heard.push(bytes, error),
        );
      }
      while (list.length < 3) await turn();
      stage.note(list, heard, one.address().address);
      await closed(one, other);
    },
  ],
  [
    'implicit bind of connect; connect, send, disconnect',
    async (stage) => {
      const [other, stranger] = [await bound(stage, stage.there), await bound(stage, stage.there)];
      const { port } = other.address();
      const one = stage.dgram.createSocket('udp4') as Loose;
      const heard: string[] = [];
      for (const event of ['listening', 'connect'] as const) one.on(event, () => heard.push(event));
      await new Promise<void>((resolve) => {
        one.connect(port, stage.there, (...args: unknown[]) => {
          heard.push(`callback ${args.length}`);
          resolve();
        });
      });
      stage.note(heard, one.remoteAddress().port === port, one.remoteAddress().address);
      stage.call('connect', () => one.connect(port, stage.there));
      stage.call('send with a port', () => one.send('x', port));
      stage.call('send with an address', () => one.send('x', 0, 1, port, stage.there));
      for (const args of [['x'], ['abc', 1, 1], [['a', 'b']], [[]], [Buffer.alloc(0)]]) {
        const coming = next(other);
        await new Promise<void>((resolve) =>
          one.send(...args, (...said: unknown[]) => {
            stage.note('sent', ...said);
            resolve();
          }),
        );
        stage.note((await coming).split(' ')[0]);
      }
      const mine = one.address().port;
      stranger.send('not from the peer', mine, '127.0.0.1');
      await turns();
      other.send('from the peer', mine, '127.0.0.1');
      await turns();
      stage.note(one.disconnect());
      stage.call('remoteAddress', () => one.remoteAddress());
      stage.call('disconnect', () => one.disconnect());
      stage.call('send', () => one.send('x'));
      await closed(one, other, stranger);
    },
  ],
  [
    'odd forms of send of a connected socket',
    async (stage) => {
      const [one, other] = [stage.dgram.createSocket('udp4'), stage.dgram.createSocket('udp4')];
      other.on('message', (message) => stage.note('arrived', `${message}`));
      await new Promise<void>((resolve) => void other.bind(0, stage.there, resolve));
      const { port } = other.address();
      await new Promise<void>((resolve) => void one.connect(port, stage.there, resolve));
      const forms: unknown[][] = [
        ['a', undefined],
        ['b', null],
        ['c', undefined, undefined],
        ['dd', 0, 1, undefined],
        ['ee', 0, 1],
        ['ff', 0, 1, undefined, undefined],
      ];
      for (const form of forms) {
        const heard = (): void => stage.note('callback of', form[0]);
        stage.call(`send ${form.length}`, () => (one as Loose).send(...form, heard));
        await sleep(50);
      }
      one.close();
      other.close();
    },
  ],
  [
    'connect to what has no address',
    async (stage) => {
      const one = await bound(stage);
      one.connect(7, 'not.an.address.invalid');
      const [error] = (await once(one, 'error')) as [NodeJS.ErrnoException];
      stage.note(error.syscall, error.code === 'ENOTFOUND' || error.code === 'EAI_AGAIN');
      stage.call('remoteAddress', () => one.remoteAddress());
      await closed(one);
    },
  ],
  [
    'connect to a port without a socket: the error of a later send',
    async (stage) => {
      const one = await bound(stage);
      const gone = await bound(stage, stage.there);
      const { port } = gone.address();
      await closed(gone);
      // A node learns within moments that the port was bound, and that it is not any more.
      await sleep(200);
      one.on('error', (error) => stage.note('error', told(error)));
      await new Promise<void>((resolve) => void one.connect(port, stage.there, resolve));
      for (let index = 0; index < 3; index++) {
        await new Promise<void>((resolve) =>
          one.send('x', (error: Error | null) => {
            stage.note(index, error && told(error));
            resolve();
          }),
        );
        await turns();
      }
      await closed(one);
    },
  ],
  [
    'bindSync and connectSync, where Node has them',
    async (stage) => {
      const other = await bound(stage, stage.there);
      const one = stage.dgram.createSocket('udp4') as Loose;
      stage.note(typeof one.bindSync, typeof one.connectSync);
      if (!one.bindSync) return closed(other);
      const heard: string[] = [];
      for (const event of ['listening', 'connect'] as const) one.on(event, () => heard.push(event));
      stage.call('bindSync', () => typeof one.bindSync({ port: 0, address: stage.here }));
      stage.call('again', () => one.bindSync());
      stage.call('connectSync', () => one.connectSync(other.address().port, stage.there));
      stage.call('again', () => one.connectSync(other.address().port, stage.there));
      const coming = next(other);
      one.send('x');
      stage.note(await coming, heard);
      await closed(one, other);
    },
  ],
  [
    'an abort signal closes; an aborted one as well',
    async (stage) => {
      const controller = new AbortController();
      const one = await bound(stage, stage.here, { signal: controller.signal });
      const end = once(one, 'close');
      controller.abort();
      await end;
      stage.call('close', () => one.close());
      const late = stage.dgram.createSocket({ type: 'udp4', signal: AbortSignal.abort() });
      await once(late, 'close');
      stage.call('close', () => late.close());
    },
  ],
  [
    'the listener of createSocket, removed and once',
    async (stage) => {
      const heard: string[] = [];
      const listener = (data: Buffer): void => void heard.push(`${data}`);
      const one = stage.dgram.createSocket('udp4', listener);
      one.bind(0, stage.here);
      await once(one, 'listening');
      const other = await bound(stage, stage.there);
      stage.note(one.listenerCount('message'));
      other.send('a', one.address().port, stage.here);
      while (heard.length === 0) await turn();
      one.off('message', listener);
      one.once('message', () => heard.push('once'));
      other.send('b', one.address().port, stage.here);
      other.send('c', one.address().port, stage.here);
      while (heard.length === 1) await turn();
      await turns();
      stage.note(heard);
      await closed(one, other);
    },
  ],
  [
    'classes: prototype, names, lengths, instanceof',
    (stage) => {
      const { dgram, note } = stage;
      const Base = dgram.Socket as unknown as { new (...args: unknown[]): Socket; call: unknown };
      note(
        Object.keys(dgram)
          .sort()
          .filter((key) => !key.startsWith('_') && key !== 'default'),
      );
      note(dgram.Socket.length, dgram.createSocket.length, dgram.Socket.name);
      class Own extends (Base as unknown as new (type: string) => Socket) {}
      const own = new Own('udp4');
      note(
        own instanceof Own,
        own instanceof dgram.Socket,
        own instanceof EventEmitter,
        own.constructor === Own,
      );
      const called: object = Object.create(dgram.Socket.prototype) as object;
      note((Base as unknown as (...a: unknown[]) => unknown).call(called, 'udp4'));
      note(called instanceof dgram.Socket, {} instanceof dgram.Socket, {} instanceof Own);
      const bare = Base as unknown as (type: string) => unknown;
      stage.call('without new', () => bare('udp4'));
      for (const name of ['bind', 'send', 'close', 'connect', 'ref', 'setTTL', 'address']) {
        note(name, typeof (called as Record<string, unknown>)[name]);
      }
    },
  ],
  [
    'properties of a socket',
    async (stage) => {
      const one = await bound(stage);
      stage.note((one as unknown as { type: string }).type, one.eventNames());
      stage.note(
        one.getSendQueueCount(),
        one.getSendQueueSize(),
        one.ref() === one,
        one.unref() === one,
      );
      stage.note(typeof (one as unknown as Record<symbol, unknown>)[Symbol.asyncDispose]);
      await closed(one);
    },
  ],
  [
    'buffer sizes of options and calls',
    async (stage) => {
      const one = await bound(stage, stage.here, {
        recvBufferSize: 20_000,
        sendBufferSize: 30_000,
      });
      stage.note(one.getRecvBufferSize(), one.getSendBufferSize());
      one.setRecvBufferSize(40_000);
      one.setSendBufferSize(50_000);
      stage.note(one.getRecvBufferSize(), one.getSendBufferSize());
      await closed(one);
    },
  ],
  [
    'multicast: joined, sent, left',
    async (stage) => {
      const one = stage.dgram.createSocket({ type: 'udp4', reuseAddr: true });
      await new Promise<void>((resolve) => void one.bind(0, resolve));
      one.addMembership('239.77.88.98', '127.0.0.1');
      stage.call('twice', () => one.addMembership('239.77.88.98', '127.0.0.1'));
      one.setMulticastInterface('127.0.0.1');
      const coming = next(one);
      one.send('to all', one.address().port, '239.77.88.98');
      stage.note((await coming).split(' ').slice(0, 3));
      one.dropMembership('239.77.88.98', '127.0.0.1');
      stage.call('twice', () => one.dropMembership('239.77.88.98', '127.0.0.1'));
      await closed(one);
    },
  ],
  [
    'broadcast without permission',
    async (stage) => {
      const one = await bound(stage, '0.0.0.0');
      const said = await new Promise<string>((resolve) =>
        one.send('x', 7, '255.255.255.255', (error: Error | null) => resolve(told(error))),
      );
      stage.note(said);
      await closed(one);
    },
  ],
  [
    'IPv6: default host, mapped addresses, a socket of both families',
    async (stage) => {
      const six = stage.dgram.createSocket('udp6');
      six.bind(0);
      await once(six, 'listening');
      const one = stage.dgram.createSocket('udp6');
      const coming = next(six);
      one.send('six', six.address().port);
      stage.note((await coming).split(' ').slice(0, 4));
      const four = await bound(stage);
      const mapped = next(six);
      four.send('four', six.address().port, '127.0.0.1');
      stage.note(await mapped);
      const only = stage.dgram.createSocket({ type: 'udp6', ipv6Only: true });
      only.bind(0, '::1');
      await once(only, 'listening');
      stage.note(only.address().family, only.address().address);
      const wrong = await new Promise<string>((resolve) =>
        four.send('x', 7, '::1', (error: Error | null) => resolve(told(error))),
      );
      stage.note(wrong.includes('EINVAL') || wrong.includes('ENOTFOUND'));
      await closed(six, one, four, only);
    },
  ],
  [
    'an exception of a listener does not lose the next datagram',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      const heard: string[] = [];
      const caught = new Promise<void>((resolve) => {
        const listeners = process.listeners('uncaughtException');
        process.removeAllListeners('uncaughtException');
        process.once('uncaughtException', (error) => {
          heard.push(error.message);
          for (const listener of listeners) process.on('uncaughtException', listener);
          resolve();
        });
      });
      other.on('message', (data) => {
        if (`${data}` === 'bad') throw new Error('thrown');
        heard.push(`${data}`);
      });
      for (const text of ['bad', 'good']) one.send(text, other.address().port, stage.there);
      await caught;
      while (heard.length < 2) await turn();
      stage.note(heard);
      await closed(one, other);
    },
  ],
  [
    'send after close in the same turn, and close after send',
    async (stage) => {
      const [one, other] = [await bound(stage), await bound(stage, stage.there)];
      one.close();
      stage.call('send', () => one.send('x', other.address().port, stage.there));
      await turns();
      await closed(other);
    },
  ],
];
