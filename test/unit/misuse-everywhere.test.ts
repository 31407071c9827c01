/** Values of wrong types in public functions are MisuseErrors, which name the argument. */
import { setTimeout as sleep } from 'node:timers/promises';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import * as library from '../../host/index.js';
import { rpma } from '../../host/index.js';

type Call = (value: never) => unknown;

/** Of each wrong value; some of them are right for some functions. */
/** As a path it names no file that can be made: calls that make files leave none. */
const TEXT = '/dev/null/x';
const WRONG: readonly unknown[] = [undefined, null, 5, TEXT, true, () => undefined, NaN];

/** An object without the members that the function reads is wrong as well. */
const CALLS: Readonly<Record<string, readonly [call: Call, argument: string]>> = {
  'rpma.peerNew': [rpma.peerNew, 'context'],
  'rpma.utilsIbvContextIsOdpCapable': [rpma.utilsIbvContextIsOdpCapable, 'context'],
  'rpma.encodeFlushRequest': [rpma.encodeFlushRequest, 'request'],
  'rpma.decodeFlushRequest': [rpma.decodeFlushRequest, 'bytes'],
  'rpma.decodeFlushResponse': [rpma.decodeFlushResponse, 'bytes'],
  'rpma.mrRemoteFromDescriptor': [rpma.mrRemoteFromDescriptor, 'descriptor'],
  'rpma.peerCfgFromDescriptor': [rpma.peerCfgFromDescriptor, 'descriptor'],
  'rpma.recoverLog': [rpma.recoverLog, 'image'],
  'rpma.newestLog': [rpma.newestLog, 'images'],
  fmrPools: [library.fmrPools, 'context'],
  regionsFor: [library.regionsFor, 'workload'],
  readPcap: [library.readPcap, 'bytes'],
  NvmeRamStore: [(value) => new library.NvmeRamStore(value, 4096), 'context'],
  createEventChannel: [library.createEventChannel, 'context'],
};

for (const [name, [call, argument]] of Object.entries(CALLS)) {
  test(`${name}: values of wrong types are misuse of ${argument}`, () => {
    for (const value of WRONG) {
      assert.throws(
        () => call(value as never),
        (error: unknown) => error instanceof library.MisuseError && error.argument === argument,
        String(value),
      );
    }
  });
}

/** Numbers, strings and objects that no function and no method wants. */
const ODD: readonly unknown[] = [undefined, null, 5, TEXT, true, () => undefined, NaN, {}, [], -1];
/** Time for calls that wait, before they are left alone. */
const WAIT_MILLIS = 20;
/** Nothing else reads them: errors of the library, and constructors that are internal. */
const INTERNAL = /Error$|^(?:NvmeFileStore|NvmePmemStore|NvmeTarget|RealClock)$/;

interface Closable {
  close?(): unknown;
}

/** The first call that fails with an error that names neither argument nor rule. */
async function firstBareError(
  name: string,
  call: (value: unknown) => unknown,
): Promise<string | undefined> {
  for (const value of ODD) {
    try {
      const made = Promise.resolve(call(value));
      // Objects that open late are closed late.
      const closed = made.then((opened) => (opened as Closable | undefined)?.close?.());
      closed.catch(() => undefined);
      await Promise.race([made, sleep(WAIT_MILLIS, undefined, { ref: false })]);
    } catch (error) {
      // Others have a code: of Node, for its own arguments.
      if (error instanceof library.VerbenaError || 'code' in (error as object)) continue;
      return `${name}(${String(value)}): ${String((error as Error).stack?.slice(0, 300))}`;
    }
  }
  return undefined;
}

test('no exported function answers odd values with an error of the language', async () => {
  const found: (string | undefined)[] = [];
  for (const [name, member] of Object.entries({ ...library, ...library.rpma })) {
    if (typeof member !== 'function' || INTERNAL.test(name)) continue;
    const callable = member as unknown as ((value: unknown) => unknown) & Record<string, Call>;
    if (!String(member).startsWith('class')) found.push(await firstBareError(name, callable));
    for (const key of Object.getOwnPropertyNames(member)) {
      const method = callable[key];
      if (typeof method !== 'function' || key === 'prototype') continue;
      found.push(await firstBareError(`${name}.${key}`, (value) => method(value as never)));
    }
  }
  assert.equal(found.filter(Boolean), []);
});

/** Methods of the library's own classes for each other (@internal). */
const OWN: ReadonlySet<string> = new Set(
  'addDurable removeQueue peerGone waitInto nextBinding push take request connectionEvent'.split(
    ' ',
  ),
);

test('no method of an object answers odd values with an error of the language', async () => {
  const cap = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1 };
  const found: (string | undefined)[] = [];
  const create = async (): Promise<Record<string, object>> => {
    const context = await library.openDevice({ address: '127.0.0.1', port: 0 });
    const pd = context.allocPd();
    const cq = context.createCq(16);
    const mr = pd.regMr(context.alloc(4096), library.AccessFlag.LOCAL_WRITE);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, cap });
    const srq = pd.createSrq({ maxWr: 4, maxSge: 1 });
    const channel = library.createEventChannel(context);
    const id = channel.createId();
    return { context, pd, cq, mr, qp, srq, mw: pd.allocMw(1), channel, id };
  };
  for (const kind of ['context', 'pd', 'cq', 'mr', 'qp', 'srq', 'mw', 'channel', 'id']) {
    const objects = await create();
    const object = objects[kind] as Record<string, Call>;
    const names = Object.getOwnPropertyNames(Object.getPrototypeOf(object));
    for (const name of names) {
      const { value } = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(object), name)!;
      if (typeof value !== 'function' || OWN.has(name) || name === 'constructor') continue;
      // These end the object, or create a file of any name.
      if (/^(?:close|destroy|dealloc|dereg|openPmem)/.test(name)) continue;
      const call = (first: unknown): unknown => object[name]!(first as never);
      found.push(await firstBareError(`${kind}.${name}`, call));
    }
    await (objects.context as library.Context).close();
  }
  assert.equal(found.filter(Boolean), []);
});

/** Calls with one wrong member or argument, each with the argument that the error names. */
function wrongCalls(context: library.Context): readonly (readonly [string, () => unknown])[] {
  const pd = context.allocPd();
  const cq = context.createCq(4);
  const queues = { sendCq: cq, recvCq: cq };
  const qp = pd.createQp(queues);
  const wrong = (value: unknown) => value as never;
  const read = library.AccessFlag.REMOTE_READ;
  const shape = { rows: 2, columns: 2, elementBytes: 8 };
  return [
    ['srq', () => pd.createQp({ ...queues, srq: wrong({}) })],
    ['srq', () => pd.createQp({ ...queues, srq: wrong(null) })],
    ['sqSigAll', () => pd.createQp({ ...queues, sqSigAll: wrong('no') })],
    ['qpType', () => pd.createQp({ ...queues, qpType: wrong('RC') })],
    ['cap.maxSendWr', () => pd.createQp({ ...queues, cap: { maxSendWr: wrong('x') } })],
    ['options', () => pd.regMr(context.alloc(8), read, wrong(5))],
    ['mw', () => qp.bindMw(wrong({}), wrong({}))],
    ['bind', () => qp.bindMw(pd.allocMw(library.MwType.TYPE_1), wrong(5))],
    ['bindInfo', () => qp.bindMw(pd.allocMw(library.MwType.TYPE_1), wrong({}))],
    ['sgList', () => pd.regMr(null, 0, read).setLayoutSg(0, wrong(undefined))],
    ['ilvList', () => pd.regMr(null, 0, read).setLayoutInterleaved(0, wrong(5))],
    ['base', () => library.matrixColumn(wrong(null), shape, 0)],
    ['store', () => library.NvmeTarget.open(context, wrong({}))],
    ['store', () => library.NvmeTarget.open(context, { store: wrong({ length: 4096 }) })],
    ['cfg', () => rpma.peerNew(context).connReqNew('127.0.0.1', 1, wrong({}))],
    ['srq', () => rpma.connCfgNew().setSrq(wrong(5))],
    ['sink', () => library.pcapLink(library.createLoopbackPair().a, wrong({}))],
    ['volatile', () => context.openPmem('/dev/null/x', { volatile: wrong('x') })],
  ];
}

test('a wrong member of an object, or a wrong second argument, is named', async () => {
  const { a } = library.createLoopbackPair();
  const context = await library.openDevice({ link: a });
  for (const [argument, call] of wrongCalls(context)) {
    const error = await Promise.resolve()
      .then(call)
      .then(String, (reason: unknown) => reason);
    assert.instance(error, library.MisuseError, `${argument}: ${String(error)}`);
    assert.is((error as library.MisuseError).argument, argument);
  }
  await context.close();
});

test('the key of a shared domain is in no error', async () => {
  const { a } = library.createLoopbackPair();
  const context = await library.openDevice({ link: a });
  const pd = context.allocPd();
  const key = 'swordfish' as never;
  for (const call of [() => pd.allocShpd(key), () => context.sharePd(new Uint8Array(64), key)]) {
    assert.throws(call, (error: unknown) => {
      assert.instance(error, library.MisuseError);
      const { argument, message } = error as library.MisuseError;
      assert.is(argument, 'shareKey');
      return !message.includes('swordfish');
    });
  }
  await context.close();
});

test('a value without a text of its own is misuse as well', async () => {
  const silent = Object.create(null) as never;
  const throwing = {
    toString(): string {
      throw new Error('no text');
    },
  } as never;
  for (const value of [silent, throwing]) {
    assert.throws(
      () => library.matrixColumn({ addr: 0, lkey: 0 }, value, 0),
      (error: unknown) => error instanceof library.MisuseError,
    );
    const waiting = library.connect('127.0.0.1:9', { signal: value });
    const reason = await waiting.then(String, (error: unknown) => error);
    assert.instance(reason, library.MisuseError);
  }
});

test.run();
