/**
 * Each option of the calls that take objects, with values of each type. The names of the options
 * are those that the refusal of an unknown one lists, so that a new option is tried as well.
 */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { createSocket } from '../../host/dgram/index.js';
import {
  MisuseError,
  VerbenaError,
  connect,
  createEventChannel,
  createFmrPool,
  listen,
  openDevice,
  rds,
  share,
  type Context,
} from '../../host/index.js';
import { joinMesh } from '../../host/mesh/index.js';
import { putFile, receiveFiles } from '../../host/transfer/index.js';

const HERE = '127.0.89.1';
const VALUES: Readonly<Record<string, unknown>> = {
  null: null,
  5: 5,
  '-1': -1,
  '1.5': 1.5,
  NaN: NaN,
  '"x"': 'x',
  '""': '',
  '[]': [],
  '{}': {},
  function: () => undefined,
  true: true,
  symbol: Symbol('value'),
  '5n': 5n,
};

interface Closable {
  close?(): unknown;
  leave?(): unknown;
}
type Call = (context: Context, options: never) => unknown;
/** By option: the values that it takes. The others must be refused with MisuseError. */
type Takes = Readonly<Record<string, string>>;

/** Options of a call with the device of the test, unless they choose one. */
function at(context: Context, options: object): object {
  const chooses = ['context', 'pd', 'device'].some((name) => name in options);
  return chooses ? options : { context, ...options };
}

const CM_OPTIONS = {
  cmResponseTimeout: '5',
  maxCmRetries: '5',
  ackTimeout: '5',
  pathMtu: '5',
  doubledFlushIcrc: 'true',
};

const CALLS: Readonly<Record<string, readonly [Call, Takes]>> = {
  share: [
    (context, options) => share(`rdma://${HERE}:0`, { table: 64 }, at(context, options)),
    {
      onClient: 'function',
      onError: 'function',
      lendBytes: '5',
      clientsMax: '5',
      clientsPerSource: '5',
      device: '{}',
      messageBytesMax: '5',
    },
  ],
  'share, a region': [
    (context, options) => {
      const sized = Object.keys(options).some((key) => key !== 'rights');
      const region = { ...(sized ? {} : { bytes: 64 }), ...(options as object) };
      return share(`rdma://${HERE}:0`, { region }, { context });
    },
    { bytes: '5' },
  ],
  'connect to a URL': [
    (context, options) => connect(`rdma://${HERE}:9`, { timeout: 5, ...at(context, options) }),
    {
      timeout: '5 1.5',
      share: '{}',
      ask: '{}',
      reconnect: '{} true',
      device: '{}',
      messageBytesMax: '5',
    },
  ],
  connect: [
    (context, options) => connect(`${HERE}:9`, { timeout: 5, ...at(context, options) }),
    {
      device: '{}',
      udpPort: '5',
      timeout: '5 1.5',
      qp: '{}',
      cqe: '5',
      responderResources: '5',
      initiatorDepth: '5',
      retryCount: '5',
      rnrRetryCount: '5',
      srq: 'true',
      qpNum: '5',
      ...CM_OPTIONS,
    },
  ],
  listen: [
    (context, options) => listen(`${HERE}:0`, at(context, options)),
    { device: '{}', backlog: '5' },
  ],
  openDevice: [
    (_, options) =>
      openDevice({ address: HERE, port: 0, progress: 'inline', ...(options as object) }),
    {
      threadsMax: '5',
      sharedArrayBuffer: 'true',
      lending: '{}',
      memoryBytes: '5',
      queuePairsMax: '5',
      completionQueuesMax: '5',
      sharedReceiveQueuesMax: '5',
      addressHandlesMax: '5',
      multicastMax: '5',
      regionsMax: '5',
      protectionDomainsMax: '5',
      poolUsersMax: '5',
      sendBuffers: '5',
      windowPackets: '5',
      initialWindowPackets: '5',
      reorderBytes: '5',
      pkey: '5',
      port: '5',
      spinMicros: '5 1.5',
      socketBufferBytes: '5',
      sendSockets: '5',
      dscp: '5',
      keepsAlive: 'true',
    },
  ],
  'createSocket, rdp': [
    (_, options) => createSocket({ type: 'udp4', rdp: options }),
    { retryMillis: '5', queueBytes: '5', callbackMillis: '5', events: 'true' },
  ],
  joinMesh: [
    (_, options) => joinMesh({ url: 'ws://127.0.0.1:9', timeout: 5, ...(options as object) }),
    {
      room: '"x"',
      memory: '{}',
      link: '{}',
      peersMax: '5',
      frames: '{}',
      memoryBytes: '5',
      sharedArrayBuffer: 'true',
      onJoin: 'function',
      onLeave: 'function',
      timeout: '5 1.5',
    },
  ],
  putFile: [
    (context, options) =>
      putFile(context.local, new Blob(['x']), {
        context,
        name: 'x',
        outageMillis: 5,
        retries: 0,
        ...(options as object),
      }),
    {
      name: '"x"',
      udpPort: '5',
      retries: '5',
      outageMillis: '5 1.5',
      onProgress: 'function',
      onNote: 'function',
    },
  ],
  receiveFiles: [
    (context, options) =>
      receiveFiles({
        context,
        store: { open: () => undefined, expire: () => Promise.resolve() } as never,
        ...(options as object),
      }),
    {
      clientsMax: '5',
      onFile: 'function',
      onProgress: 'function',
      onUnfinished: 'function',
      onRefused: 'function',
    },
  ],
  'RdsNode.of': [
    (context, options) => rds.RdsNode.of(context, options),
    {
      recoveryMicros: '5',
      pathsMax: '5',
      zeroCopyBytes: '5',
      parameters: '{}',
      log: 'function',
      accessFile: '"x" ""',
    },
  ],
  createFmrPool: [
    (context, options) =>
      createFmrPool(context, undefined, { maxLength: 4096, ...(options as object) }),
    {
      maxLength: '5',
      mrsMax: '5',
      mrsMin: '5',
      lowWater: '5',
      growBlock: '5',
      shrinkBlock: '5',
      buckets: '5',
      bucketMrs: '5',
      ulp: '"x"',
      idleMicros: '5',
      demandMicros: '5',
      monitorMicros: '5',
      onEvent: 'function',
    },
  ],
  'pd.heap': [
    (context, options) => context.allocPd().heap(options),
    {
      name: '"x"',
      reserve: '5',
      access: '5',
      quota: '5',
      priority: '5',
      minimum: '5',
      onPressure: 'function',
    },
  ],
  'channel.createId, setOption': [
    (context, options) => createEventChannel(context).createId().setOption(options),
    // A connect refuses 5: it is no multiple of 8.
    { ...CM_OPTIONS, payloadBytes: '5' },
  ],
};

async function namesOf(call: Call, context: Context): Promise<readonly string[]> {
  const error = await outcomeOf(call, context, { notAnOption: 1 });
  const [, names = ''] = /(?:Known:|one of) ([\w, ]*\w)/.exec(String(error)) ?? [];
  return names.split(', ');
}

/** The error of a call; undefined: none. What it opened is closed. */
async function outcomeOf(call: Call, context: Context, options: object): Promise<unknown> {
  try {
    const made = (await call(context, options as never)) as Closable | undefined;
    await (made?.close ?? made?.leave)?.call(made);
    return undefined;
  } catch (error) {
    return error;
  }
}

for (const [name, [call, takes]] of Object.entries(CALLS)) {
  test(`${name}: each option takes its own type only`, async () => {
    const context = await openDevice({ address: HERE, port: 0, progress: 'inline' });
    try {
      const names = await namesOf(call, context);
      assert.ok(names.length > 1, `${name} lists no options`);
      const taken: Record<string, string> = {};
      const strange: string[] = [];
      for (const option of names) {
        const accepted: string[] = [];
        for (const [label, value] of Object.entries(VALUES)) {
          const error = await outcomeOf(call, context, { [option]: value });
          if (error instanceof MisuseError) continue;
          accepted.push(label);
          const isOwn = error === undefined || error instanceof VerbenaError;
          if (!isOwn) strange.push(`${option}: ${label}: ${String((error as Error).stack)}`);
        }
        if (accepted.length > 0) taken[option] = accepted.join(' ');
      }
      assert.equal(strange, []);
      assert.equal(taken, takes);
    } finally {
      await context.close();
    }
  });
}

test('congestionControl is a name, or a target of 20 us to 10 s', async () => {
  const open = (congestionControl: unknown) =>
    openDevice({ address: HERE, port: 0, progress: 'inline', congestionControl } as never);
  const taken = ['auto', 'cubic', undefined, { delayMicros: 20 }, { delayMicros: 1e7 }];
  for (const value of taken) await (await open(value)).close();
  const refused: readonly [unknown, string][] = [
    ['delay', 'congestionControl'],
    ['', 'congestionControl'],
    [500, 'congestionControl'],
    [null, 'congestionControl'],
    [{}, 'congestionControl.delayMicros'],
    [{ delayMicros: '500' }, 'congestionControl.delayMicros'],
    [{ delayMicros: 19 }, 'congestionControl.delayMicros'],
    [{ delayMicros: 20.5 }, 'congestionControl.delayMicros'],
    [{ delayMicros: 1e7 + 1 }, 'congestionControl.delayMicros'],
    [{ delayMicros: 500, delayMillis: 1 }, 'delayMillis'],
  ];
  for (const [value, argument] of refused) {
    const error = await open(value).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    assert.instance(error, MisuseError, JSON.stringify(value));
    assert.is((error as MisuseError).argument, argument);
  }
});

test.run();
