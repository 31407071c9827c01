/** Unknown options: every public function with options refuses them. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { checkKeys } from '../../../host/base/options.js';
import { RdmaListener, RdmaRequest } from '../../../host/cm/connect.js';
import * as verbena from '../../../host/index.js';
import { Roots } from '../../../host/verbs/domains/roots.js';
import { publicSurface } from '../../support/public-surface.js';

test('the error for an unknown key names the call, the key and the nearest name', () => {
  const options = { privateDate: 1, context: 2 } as object;
  const refuse = () => checkKeys('accept', options, 'privateData context' as string);
  assert.throws(refuse, (error: verbena.MisuseError) => {
    assert.equal([error.name, error.argument], ['MisuseError', 'privateDate']);
    const rule = 'accept has no option of this name; is privateData meant?';
    return error.message === `privateDate: ${rule} Known: privateData, context`;
  });
  // An undefined value counts as absent.
  checkKeys('accept', { bogus: undefined, context: 2 }, 'context' as string);
});

/** The default table of queue pairs takes a third of the time of an open. */
const openSmall = (link: verbena.Link): Promise<verbena.Context> =>
  verbena.openDevice({ link, memoryBytes: 8 * 2 ** 20, queuePairsMax: 64 });

interface World {
  readonly context: verbena.Context;
  readonly pd: verbena.ProtectionDomain;
  readonly cq: verbena.CompletionQueue;
  readonly link: verbena.Link;
}
type Call = (world: World, odd: never) => unknown;

/** Calls by the type of their options. */
const CALLS: Readonly<Record<string, readonly Call[]>> = {
  OpenOptions: [(_, odd) => verbena.openDevice(odd)],
  UdpOpenOptions: [
    (_, odd) => verbena.listen('127.0.0.1:0', { device: odd }),
    (_, odd) => verbena.connect('127.0.0.1:1', { device: odd }),
  ],
  PmemOptions: [({ context }, odd) => context.openPmem('/nowhere', odd)],
  RegisterOptions: [({ context, pd }, odd) => pd.regMr(context.alloc(64), 0, odd)],
  LayoutOptions: [({ pd }, odd) => pd.regMr(null, 0, 0).setLayoutSg(0, [], odd)],
  QpAttributes: [({ pd, cq }, odd) => pd.createQp({ sendCq: cq, recvCq: cq }).modify(odd)],
  QpInitAttributes: [
    ({ pd, cq }, odd) => pd.createQp({ sendCq: cq, recvCq: cq, ...(odd as object) }),
    ({ pd, cq }, odd) => pd.createQp({ sendCq: cq, recvCq: cq, cap: odd }),
  ],
  QpInitAttributesEx: [
    ({ context, pd, cq }, odd) =>
      context.createQpEx({ pd, sendOpsFlags: 0, sendCq: cq, recvCq: cq, ...(odd as object) }),
  ],
  SrqInitAttributes: [({ pd }, odd) => pd.createSrq(odd)],
  MrInitAttributes: [({ pd }, odd) => pd.regMrEx(odd)],
  CqInitAttributesEx: [({ context }, odd) => context.createCqEx(odd)],
  AllocDmAttributes: [({ context }, odd) => context.allocDm(odd)],
  DmahInitAttributes: [({ context }, odd) => context.allocDmah(odd)],
  ParentDomainInitAttributes: [({ context }, odd) => context.allocParentDomain(odd)],
  CompCntrInitAttributes: [({ context }, odd) => context.createCompCntr(odd)],
  AddressAttributes: [({ pd }, odd) => pd.createAh({ dgid: '10.0.0.1', ...(odd as object) })],
  ShareOptions: [({ context }, odd) => context.share(odd)],
  CacheModelOptions: [({ link }, odd) => verbena.openDevice({ link, cacheModel: odd })],
  CrashStoreOptions: [(_, odd) => new verbena.CrashStore(new Uint8Array(64), odd)],
  UdpOptions: [
    (_, odd) => new verbena.UdpLink({ address: '127.0.0.1', port: 0, ...(odd as object) }),
  ],
  FaultOptions: [({ link }, odd) => verbena.faultLink(link, odd)],
  TraceOptions: [({ link }, odd) => verbena.traceLink(link, () => {}, odd)],
  PcapOptions: [({ link }, odd) => verbena.pcapLink(link, { write: () => {} } as never, odd)],
  ReadPcapOptions: [(_, odd) => verbena.readPcap(new Uint8Array(24), odd)],
  LoopbackOptions: [
    (_, odd) => verbena.createLoopbackPair(odd),
    (_, odd) => new verbena.LoopbackNetwork(odd),
  ],
  DataChannelOptions: [(_, odd) => new verbena.DataChannelLink(odd)],
  WebSocketOptions: [(_, odd) => new verbena.WebSocketLink(odd)],
  AnswerOptions: [(_, odd) => verbena.answerRequest({} as never, {} as never, {} as never, odd)],
  UpgradeOptions: [(_, odd) => verbena.acceptUpgrades({} as never, {} as never, '/', odd)],
  FmrPoolParams: [
    ({ context }, odd) =>
      verbena.createFmrPool(context, undefined, { maxLength: 64, ...(odd as object) }),
  ],
  PublishOptions: [({ pd }, odd) => pd.publish('a', odd)],
  HeapOptions: [({ pd }, odd) => pd.heap(odd)],
  HeapAllocOptions: [({ pd }, odd) => pd.heap({ reserve: 65536 }).alloc(8, odd)],
  RootOptions: [(_, odd) => Roots.prototype.put.call(undefined as never, 'a', odd)],
  FmrPoolUserOptions: [
    ({ context }, odd) =>
      verbena.createFmrPool(context, undefined, { maxLength: 64 }).createUser(1, odd),
  ],
  AuthOptions: [
    (_, odd) => verbena.connectNvme('127.0.0.1', { nqn: 'nqn.test', auth: odd }),
    ({ context }, odd) => verbena.createEventChannel(context).createId().setOption({ auth: odd }),
    (_, odd) => verbena.rpma.connCfgNew().setAuth(odd),
    ({ context }, odd) => verbena.rds.RdsNode.of(context, { auth: odd }),
  ],
  CmOptions: [({ context }, odd) => verbena.createEventChannel(context).createId().setOption(odd)],
  ConnParam: [
    ({ context }, odd) => verbena.createEventChannel(context).createId().connect(odd),
    ({ context }, odd) => verbena.createEventChannel(context).createId().accept(odd),
  ],
  EpInitAttributes: [
    ({ context }, odd) => verbena.createEventChannel(context).createId().createQp(odd),
  ],
  JoinMcAttributes: [
    ({ context }, odd) =>
      verbena.createEventChannel(context).createId(verbena.PortSpace.UDP).joinMulticastEx(odd),
  ],
  CommonOptions: [
    (_, odd) => verbena.connect('rdma://127.0.0.1:1', odd),
    (_, odd) => verbena.share('rdma://127.0.0.1:0', {}, odd),
  ],
  RemoteOptions: [(_, odd) => verbena.connect('rdma://127.0.0.1:1', odd)],
  ServerOptions: [(_, odd) => verbena.share('rdma://127.0.0.1:0', {}, odd)],
  ReconnectOptions: [(_, odd) => verbena.connect('rdma://127.0.0.1:1', { reconnect: odd })],
  RegionOptions: [(_, odd) => verbena.share('rdma://127.0.0.1:0', { region: odd })],
  ConnectOptions: [(_, odd) => verbena.connect('127.0.0.1:1', odd)],
  EndOptions: [
    // The options are checked before the request.
    (_, odd) => RdmaRequest.prototype.accept.call(undefined as never, odd),
  ],
  AcceptOptions: [(_, odd) => RdmaRequest.prototype.accept.call(undefined as never, odd)],
  WaitLimits: [
    (_, odd) => RdmaListener.prototype.getRequest.call(undefined as never, odd),
    ({ context }, odd) => context.openDomain('a', 1, odd),
    ({ context }, odd) => context.roots.wait('a', odd),
    ({ pd }, odd) => pd.publish('a', { shareKey: 1 }).waitUnowned(odd),
    ({ pd }, odd) => pd.heap({ reserve: 65536 }).waitPressure(odd),
    ({ pd }, odd) => {
      const heap = pd.heap({ reserve: 65536 });
      return heap.wait(heap.address, 0, odd);
    },
  ],
  ConnectionsOptions: [
    (_, odd) => RdmaListener.prototype.connections.call(undefined as never, odd).next(),
  ],
  ListenOptions: [(_, odd) => verbena.listen('127.0.0.1:0', odd)],
  NvmeTargetOptions: [({ context }, odd) => verbena.NvmeTarget.open(context, odd)],
  ConnectNvmeOptions: [(_, odd) => verbena.connectNvme('127.0.0.1', odd)],
  NvmeHostOptions: [(_, odd) => verbena.discoverNvme('127.0.0.1', odd)],
  'rpma.EpOptions': [
    ({ context }, odd) => verbena.rpma.peerNew(context).epListen('127.0.0.1', 1, odd),
  ],
  'rpma.LogOptions': [(_, odd) => new verbena.rpma.ReplicatedLog({} as never, [], odd)],
  'rds.RdsNodeOptions': [({ context }, odd) => verbena.rds.RdsNode.of(context, odd)],
  'rds.AddDeviceOptions': [
    ({ context }, odd) => verbena.rds.RdsNode.of(context).addDevice(context, odd),
  ],
};
/** Types that calls return, or that another row covers. */
const OTHERS = [
  // remote.test.ts: its calls need a connection.
  'RequestOptions',
  'DeviceAttributes',
  'DeviceAttributesEx',
  'PortAttributes',
  'CheckedParams',
  'SiteOptions',
  'UdParam',
];

test('every public call with options refuses an unknown option', async () => {
  const isOptions = /(Options|Attributes|AttributesEx|Params?)$/;
  for (const { name } of publicSurface('host/index.d.ts')) {
    if (!isOptions.test(name) || OTHERS.includes(name)) continue;
    assert.ok(name in CALLS, `${name}: no call of this test takes it`);
  }
  for (const [type, calls] of Object.entries(CALLS)) {
    for (const [index, call] of calls.entries()) {
      const { a: link, b } = verbena.createLoopbackPair();
      const context = await openSmall(b);
      const world = { context, pd: context.allocPd(), cq: context.createCq(8), link };
      let told: unknown = 'nothing';
      try {
        await call(world, { bogus: 1 } as never);
      } catch (error) {
        told = error;
      }
      assert.instance(told, verbena.MisuseError, `${type} ${index}: ${String(told)}`);
      assert.is((told as verbena.MisuseError).argument, 'bogus', `${type} ${index}: ${told}`);
      assert.match((told as Error).message, /has no option of this name; is \w+ meant\? Known: /);
    }
  }
});

/** Objects that are no options: the same rule. */
const OBJECTS: readonly Call[] = [
  (_, odd) => verbena.explainPacket(odd),
  (_, odd) => verbena.explainFields(odd),
  (_, odd) => verbena.createEventChannel(odd),
  (_, odd) => verbena.createEp(odd, {} as never),
  (_, odd) => verbena.createFmrPool(odd, undefined, { maxLength: 64 }),
  (_, odd) => verbena.connect(odd),
  (_, odd) => verbena.listen(odd),
  (_, odd) => verbena.share(odd, {}),
  ({ context }, odd) => context.createQpEx(odd),
  ({ cq }, odd) => cq.modify(odd),
  ({ pd }, odd) => pd.createQp(odd),
  ({ pd }, odd) => pd.createSrq({ maxWr: 8, maxSge: 1 }).modify(odd),
];
/** A number is the address of a region there, and the size of a region. */
const NUMBERS = ['RegisterOptions', 'RegionOptions'];

test('every public call with options refuses null, a number and a text in their place', async () => {
  // A row with `...odd` puts one key among options of its own.
  const rows = Object.entries({ ...CALLS, objects: OBJECTS }).flatMap(([type, calls]) =>
    calls.filter((call) => !/\.\.\.odd\b/.test(String(call))).map((call) => ({ type, call })),
  );
  for (const { type, call } of rows) {
    for (const odd of NUMBERS.includes(type) ? [null, 'x'] : [null, 5, 'x']) {
      const { a: link, b } = verbena.createLoopbackPair();
      const context = await openSmall(b);
      const world = { context, pd: context.allocPd(), cq: context.createCq(8), link };
      let told: unknown = 'nothing';
      try {
        await call(world, odd as never);
      } catch (error) {
        told = error;
      }
      assert.instance(told, verbena.MisuseError, `${type} ${String(call)} ${odd}: ${told}`);
    }
  }
});

test.run();
