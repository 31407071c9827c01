/**
 * Every change of state, for every type of queue pair, with every attribute: against a table typed
 * from man ibv_modify_qp and IBA vol. 1 table 91, apart from the engine's own.
 */
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  Mtu,
  QpState,
  QpStateName,
  QpType,
  VirtualClock,
  WrOpcode,
  createLoopbackPair,
  openDevice,
  type QpAttributes,
} from '../../host/index.js';
import { PEER, Wire, onWire } from '../support/wire.js';
import { testsOnWire } from '../support/tests-in.js';

const test = testsOnWire();

const { RESET, INIT, RTR, RTS, SQD, SQE, ERR } = QpState;
const STATES = [RESET, INIT, RTR, RTS, SQD, SQE, ERR];
const TYPES = { RC: QpType.RC, UC: QpType.UC, UD: QpType.UD };

/** Bits of `ibv_qp_attr_mask`, as verbs.h has them. */
const BIT = {
  STATE: 1 << 0,
  CUR_STATE: 1 << 1,
  EN_SQD_ASYNC_NOTIFY: 1 << 2,
  ACCESS_FLAGS: 1 << 3,
  PKEY_INDEX: 1 << 4,
  PORT: 1 << 5,
  QKEY: 1 << 6,
  AV: 1 << 7,
  PATH_MTU: 1 << 8,
  TIMEOUT: 1 << 9,
  RETRY_CNT: 1 << 10,
  RNR_RETRY: 1 << 11,
  RQ_PSN: 1 << 12,
  MAX_QP_RD_ATOMIC: 1 << 13,
  ALT_PATH: 1 << 14,
  MIN_RNR_TIMER: 1 << 15,
  SQ_PSN: 1 << 16,
  MAX_DEST_RD_ATOMIC: 1 << 17,
  PATH_MIG_STATE: 1 << 18,
  CAP: 1 << 19,
  DEST_QPN: 1 << 20,
  RATE_LIMIT: 1 << 25,
};
type Name = keyof typeof BIT;
const NAMES = Object.keys(BIT) as Name[];

interface Row {
  readonly required: readonly Name[];
  readonly optional: readonly Name[];
}

function row(required: string, optional = ''): Row {
  const names = (text: string): Name[] => text.split(' ').filter(Boolean) as Name[];
  return { required: names(required), optional: names(optional) };
}

const MIGRATION = 'ALT_PATH PATH_MIG_STATE';
const CONNECT = 'AV PATH_MTU DEST_QPN RQ_PSN';

/** `TYPE FROM TO`, states in order; what is not here does not exist. RESET and ERR come below. */
const TABLE: { readonly [change: string]: Row } = {
  'RC RESET INIT': row('PKEY_INDEX PORT ACCESS_FLAGS'),
  'UC RESET INIT': row('PKEY_INDEX PORT ACCESS_FLAGS'),
  'UD RESET INIT': row('PKEY_INDEX PORT QKEY'),
  'RC INIT INIT': row('', 'PKEY_INDEX PORT ACCESS_FLAGS'),
  'UC INIT INIT': row('', 'PKEY_INDEX PORT ACCESS_FLAGS'),
  'UD INIT INIT': row('', 'PKEY_INDEX PORT QKEY'),
  'RC INIT RTR': row(
    `${CONNECT} MAX_DEST_RD_ATOMIC MIN_RNR_TIMER`,
    'ALT_PATH ACCESS_FLAGS PKEY_INDEX',
  ),
  'UC INIT RTR': row(CONNECT, 'ALT_PATH ACCESS_FLAGS PKEY_INDEX'),
  'UD INIT RTR': row('', 'PKEY_INDEX QKEY'),
  'RC RTR RTS': row(
    'SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY TIMEOUT',
    `CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ${MIGRATION}`,
  ),
  'UC RTR RTS': row('SQ_PSN', `CUR_STATE ACCESS_FLAGS ${MIGRATION}`),
  'UD RTR RTS': row('SQ_PSN', 'CUR_STATE QKEY'),
  'RC RTS RTS': row('', `CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ${MIGRATION}`),
  'UC RTS RTS': row('', `CUR_STATE ACCESS_FLAGS ${MIGRATION}`),
  'UD RTS RTS': row('', 'CUR_STATE QKEY'),
  'RC RTS SQD': row('', 'EN_SQD_ASYNC_NOTIFY'),
  'UC RTS SQD': row('', 'EN_SQD_ASYNC_NOTIFY'),
  'UD RTS SQD': row('', 'EN_SQD_ASYNC_NOTIFY'),
  'RC SQD RTS': row('', `CUR_STATE ACCESS_FLAGS MIN_RNR_TIMER ${MIGRATION}`),
  'UC SQD RTS': row('', `CUR_STATE ACCESS_FLAGS ${MIGRATION}`),
  'UD SQD RTS': row('', 'CUR_STATE QKEY'),
  'RC SQD SQD': row(
    '',
    'PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ACCESS_FLAGS ' +
      `PKEY_INDEX MIN_RNR_TIMER ${MIGRATION}`,
  ),
  'UC SQD SQD': row('', `AV ACCESS_FLAGS PKEY_INDEX ${MIGRATION}`),
  'UD SQD SQD': row('', 'PKEY_INDEX QKEY'),
  'UC SQE RTS': row('', 'CUR_STATE ACCESS_FLAGS'),
  'UD SQE RTS': row('', 'CUR_STATE QKEY'),
};

function values(from: number): QpAttributes {
  return {
    curQpState: from,
    enSqdAsyncNotify: true,
    qpAccessFlags: AccessFlag.REMOTE_READ,
    pkeyIndex: 0,
    portNum: 1,
    qkey: 0x2222,
    ahAttr: { dgid: PEER.gid, port: 4799 },
    pathMtu: Mtu.MTU_512,
    timeout: 9,
    retryCnt: 3,
    rnrRetry: 2,
    rqPsn: 0x777,
    maxRdAtomic: 4,
    minRnrTimer: 5,
    sqPsn: 0x888,
    maxDestRdAtomic: 8,
    destQpNum: 0x99,
  };
}

/** Takes the queue pair to `state`, whatever it was in. False: a reliable one is never in SQE. */
function enter(wire: Wire, state: number): boolean {
  wire.qp.modify({ qpState: RESET });
  if (state === RESET) return true;
  if (state === INIT || state === RTR) {
    wire.connect({ state });
    return true;
  }
  wire.connect();
  if (state === SQD || state === ERR) wire.qp.modify({ qpState: state });
  if (state !== SQE) return true;
  if (wire.qp.qpType === QpType.RC) return false;
  wire.post(WrOpcode.SEND, 0, { sgList: [{ addr: 0, length: 1, lkey: 0 }] });
  wire.cq.poll(9);
  assert.is(wire.qp.state, SQE);
  return true;
}

function maskOf(names: readonly Name[]): number {
  return names.reduce((mask, name) => mask | BIT[name], 0);
}

/** Tries the change and compares with what the table says. `what` names the case. */
function attempt(wire: Wire, from: number, to: number, names: readonly Name[], allowed: boolean) {
  const { qp } = wire;
  const before = qp.query();
  const what = `${QpStateName[from]} to ${QpStateName[to]} with ${names.join(' ') || 'nothing'}`;
  let error: unknown;
  try {
    qp.modify({ qpState: to, ...values(from) }, maskOf(['STATE', ...names]));
  } catch (thrown) {
    error = thrown;
  }
  if (allowed && names.some((name) => MIGRATION.split(' ').includes(name))) {
    // The table of the specification has it, this device has no second path.
    assert.match(String(error), /RefusalError: .*\(EOPNOTSUPP\)/, what);
    assert.equal(qp.query(), before, `${what}: nothing changes`);
    return;
  }
  if (allowed) {
    assert.is(error, undefined, `${what}: ${(error as Error)?.message}`);
    assert.is(qp.state, to, what);
    enter(wire, from);
    return;
  }
  assert.match(String(error), /RefusalError: .*\(EINVAL\)/, what);
  assert.equal(qp.query(), before, `${what}: nothing changes`);
}

async function attemptAll(typeName: string, qpType: number): Promise<void> {
  const wire = await Wire.open({ qp: { qpType } });
  for (const from of STATES) {
    if (!enter(wire, from)) continue;
    for (const to of STATES) {
      const always = to === RESET || to === ERR;
      const found = TABLE[`${typeName} ${QpStateName[from]} ${QpStateName[to]}`];
      const { required, optional } = always ? row('') : (found ?? row(''));
      const exists = always || found !== undefined;
      attempt(wire, from, to, required, exists);
      const offered = optional.filter((name) => !MIGRATION.split(' ').includes(name));
      attempt(wire, from, to, [...required, ...offered], exists);
      for (const name of NAMES.slice(1)) {
        const changed = required.includes(name)
          ? required.filter((other) => other !== name)
          : [...required, name];
        attempt(wire, from, to, changed, exists && optional.includes(name));
      }
    }
  }
  await wire.close();
}

test('every change of RC, UC and UD takes exactly the attributes of the table, or is refused (S62)', async () => {
  for (const [name, qpType] of Object.entries(TYPES)) await attemptAll(name, qpType);
});

test('a state beyond ERR is refused (S62)', ({ qp }) => {
  for (const qpState of [7, 8, 255, 0xffffffff]) {
    assert.throws(() => qp.modify({ qpState }), /EINVAL/);
  }
  assert.is(qp.state, RTS);
});

test('a value out of range is refused, and nothing changes (S62)', async () => {
  const connected: QpAttributes = {
    ahAttr: { dgid: PEER.gid },
    pathMtu: Mtu.MTU_1024,
    destQpNum: 5,
    rqPsn: 1,
    maxDestRdAtomic: 16,
    minRnrTimer: 31,
  };
  const sending: QpAttributes = {
    sqPsn: 1,
    timeout: 31,
    retryCnt: 7,
    rnrRetry: 7,
    maxRdAtomic: 16,
  };
  const init: QpAttributes = { pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 };
  const wrong: [number, number, QpAttributes, QpAttributes][] = [
    [RESET, INIT, init, { pkeyIndex: 1 }],
    [RESET, INIT, init, { portNum: 0 }],
    [RESET, INIT, init, { portNum: 2 }],
    [RESET, INIT, init, { qpAccessFlags: 1 << 30 }],
    [INIT, RTR, connected, { pathMtu: 0 as Mtu }],
    [INIT, RTR, connected, { pathMtu: 6 as Mtu }],
    [INIT, RTR, connected, { destQpNum: 0x1000000 }],
    [INIT, RTR, connected, { maxDestRdAtomic: 17 }],
    [INIT, RTR, connected, { minRnrTimer: 32 }],
    [RTR, RTS, sending, { timeout: 32 }],
    [RTR, RTS, sending, { retryCnt: 8 }],
    [RTR, RTS, sending, { rnrRetry: 8 }],
    [RTR, RTS, sending, { maxRdAtomic: 17 }],
  ];
  await onWire({}, (wire) => {
    for (const [from, qpState, good, bad] of wrong) {
      enter(wire, from);
      const before = wire.qp.query();
      const what = `${QpStateName[qpState]} ${JSON.stringify(bad)}`;
      assert.throws(() => wire.qp.modify({ qpState, ...good, ...bad }), /EINVAL/, what);
      assert.equal(wire.qp.query(), before, what);
      wire.qp.modify({ qpState, ...good });
      assert.is(wire.qp.state, qpState);
    }
  });
});

test('CUR_STATE that is not the state refuses the change: belief opens no way round the table (S67)', (wire) => {
  const sending: QpAttributes = {
    sqPsn: 1,
    timeout: 9,
    retryCnt: 1,
    rnrRetry: 1,
    maxRdAtomic: 1,
  };
  for (const from of [RESET, INIT, RTR, RTS, SQD, ERR]) {
    for (const curQpState of [RTR, RTS, SQD]) {
      if (curQpState === from) continue;
      enter(wire, from);
      const attributes = curQpState === RTR ? sending : {};
      const what = `${QpStateName[from]}, believed ${QpStateName[curQpState]}`;
      assert.throws(
        () => wire.qp.modify({ qpState: RTS, curQpState, ...attributes }),
        /EINVAL/,
        what,
      );
      assert.is(wire.qp.state, from, what);
    }
  }
});

test('a path MTU whose packets the link does not carry is refused (S68)', async () => {
  const { a } = createLoopbackPair({ auto: false, packetSizeMax: 1500 - 28 });
  await using context = await openDevice({
    link: a,
    clock: new VirtualClock(),
    memoryBytes: 8 << 20,
  });
  assert.is(context.queryPort().activeMtu, Mtu.MTU_1024);
  const cq = context.createCq(4);
  const qp = context.allocPd().createQp({ sendCq: cq, recvCq: cq });
  qp.modify({ qpState: INIT, pkeyIndex: 0, portNum: 1, qpAccessFlags: 0 });
  const rtr = { ahAttr: { dgid: PEER.gid }, destQpNum: 1, rqPsn: 0, maxDestRdAtomic: 1 };
  const at = (pathMtu: number) => () =>
    qp.modify({ qpState: RTR, ...rtr, minRnrTimer: 1, pathMtu });
  assert.throws(at(Mtu.MTU_2048), /EINVAL/);
  assert.throws(at(Mtu.MTU_4096), /EINVAL/);
  at(Mtu.MTU_1024)();
  assert.is(qp.state, RTR);
});

test.run();
