/** The texts of /proc/driver/rds, as seed 003 prints them. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  PARAMETERS,
  configText,
  parametersOf,
  writeConfig,
  type RdsParameters,
} from '../../../host/rds/protocol/config.js';
import { infoText } from '../../../host/rds/info.js';
import { noStatistics, statsText } from '../../../host/rds/protocol/statistics.js';
import { expectCode } from '../../support/refusal.js';

/** But for its first three lines, which name another software. */
const CONFIG = `Usage Information:
To change a parameter echo a line of the form 'parameter=value' to this file.
Only 1 parameter can be specified per write
RdsDbgLvl - Logging for Rds
    Bit masks are as follows:
    0x80000000 - Serious Errors      0x40000000 - Errors
    0x20000000 - Warnings            0x10000000 - Informational messages
    0x01000000 - Function call trace
    0x00000004 - CM                  0x00000002 - States
    0x00000001 - Session             0x00000008 - Control Block
    0x00000010 - Sends               0x00000020 - Receives
    0x00000100 - QP                  0x00000080 - ULP interface
RdsTraceLvl - Time tracing for Rds
    Bit masks are as follows:
    0x80000000 - Trace All
    0x00001000 - Trace Sends          0x00002000 - Trace Recvs
    0x00004000 - Trace Poll           0x00008000 - Trace Ctrl
UserBufferSize     - User buffer size
MaxDataRecvBuffers - Max data recv buffers per socket
MaxDataSendBuffers - Max data send buffers per socket
MaxCtrlRecvBuffers - Max ctrl recv buffers
MaxCtrlSendBuffers - Max ctrl send buffers
DataRecvBufferLVM  - Recv buffer Low Water Mark (percentage)
PerfCounters - Performance Counters ON/OFF
MaxRecvMemory - Maximum memory allocated for Receives in KBytes
PendingRxPktsHWM - Pending Rx buffers High Water Mark (percentage)
Heartbeat - Heartbeat ON/OFF
Parameter Values:
RdsDbgLvl=0xe0000000
DataRecvBufferLVM=50
MinRnrTimer=10
PerfCounters=1
PendingRxPktsHWM=75
Heartbeat=1
Read Only Parameters (set at module load time):
UserBufferSize=4096
MaxDataRecvBuffers=500
MaxDataSendBuffers=500
MaxCtrlRecvBuffers=100
MaxCtrlSendBuffers=50
MaxRecvMemory=128000
`;

const STATS = `Rds Statistics:
    Sockets open:        0
    End Nodes connected: 1
    Performance Counters: ON
    Transmit:
      Xmit bytes                   728737096912
      Xmit packets                 275131636
      Loopback packets dropped     0
    Receive:
      Recv bytes                   42947350348
      Recv packets                 51787812
      Recv packets pending         0
      Recv packets dropped         5
    Stalled Ports:                 0
      Stalls   Sent                0
      Unstalls Sent                0
      Stalls   Recvd               0
      Unstalls Recvd               0
    Debug Stats:
      ENOBUFs (105) returned       0
      EWOULDBLOCKs(11) returned    0
      Rx alloc memory              2603184
      Rx cache miss                112
      Rx pkts pending HWM          23554
      Stall events ignored         0
`;

const INFO = `Session Info:
IP                State          Rx bufs   Rx Cache
10.0.0.9          ACTIVE         500       112
---------------------
Socket Info:
Port  Rx pending    State
`;

test('config is the seed’s, except its owner', () => {
  const lines = configText(PARAMETERS, '1.2.3', 'Node v24').split('\n');
  assert.equal(lines.slice(0, 3), [
    'rds debug version 1.2.3',
    'for Verbena Rds , debug version 1.2.3',
    'Built for Node v24',
  ]);
  assert.is(lines.slice(3).join('\n'), CONFIG);
});

test('stats are the seed’s, with its numbers', () => {
  const statistics = {
    ...noStatistics(),
    xmitBytes: 728737096912,
    xmitPackets: 275131636,
    recvBytes: 42947350348,
    recvPackets: 51787812,
    recvPacketsDropped: 5,
    rxCacheMiss: 112,
    recvPendingMost: 23554,
  };
  const gauges = {
    socketsOpen: 0,
    nodesConnected: 1,
    isCounting: true,
    recvPending: 0,
    stalledPorts: 0,
    rxMemory: 2603184,
  };
  assert.is(statsText(statistics, gauges), STATS);
  assert.match(statsText(statistics, { ...gauges, isCounting: false }), /Counters: OFF\n/);
});

test('each number of stats stands behind its own name', () => {
  const names = Object.keys(noStatistics());
  const numbers = Object.fromEntries(names.map((name, index) => [name, 100 + index]));
  const gauges = {
    socketsOpen: 1,
    nodesConnected: 2,
    isCounting: true,
    recvPending: 3,
    stalledPorts: 4,
    rxMemory: 5,
  };
  const text = statsText({ ...noStatistics(), ...numbers }, gauges);
  assert.equal(
    text.match(/\d+$/gm)?.map(Number),
    [1, 2, 100, 101, 102, 103, 104, 3, 105, 4, 106, 107, 108, 109, 110, 111, 5, 113, 112, 114],
  );
});

test('info is the seed’s; sockets stand below their titles', () => {
  const sessions = [{ ip: '10.0.0.9', state: 'ACTIVE', rxBufs: 500, rxCache: 112 }];
  assert.is(infoText(sessions, []), INFO);
  const sockets = [{ port: 65535, rxPending: 375, state: 'STALLED' }];
  assert.is(infoText(sessions, sockets), `${INFO}65535 375           STALLED\n`);
});

test('each writable parameter can be set, one at a time, and all others are refused', () => {
  const parameters = { ...PARAMETERS };
  for (const [line, name, value] of [
    ['RdsDbgLvl=0xffffffff', 'RdsDbgLvl', 0xffffffff],
    ['RdsTraceLvl=4096\n', 'RdsTraceLvl', 4096],
    [' DataRecvBufferLVM = 0', 'DataRecvBufferLVM', 0],
    ['PendingRxPktsHWM=100', 'PendingRxPktsHWM', 100],
    ['MinRnrTimer=31', 'MinRnrTimer', 31],
    ['PerfCounters=0', 'PerfCounters', 0],
    ['Heartbeat=0', 'Heartbeat', 0],
  ] as const) {
    writeConfig(parameters, line);
    assert.is(parameters[name], value);
  }
  const before = { ...parameters };
  for (const [code, lines] of [
    [
      'EACCES',
      [
        'UserBufferSize=1',
        'MaxDataRecvBuffers=1',
        'MaxDataSendBuffers=1',
        'MaxCtrlRecvBuffers=1',
        'MaxCtrlSendBuffers=1',
        'MaxRecvMemory=1',
      ],
    ],
    [
      'MisuseError',
      [
        'RdsDbgLvl=0x100000000',
        'RdsDbgLvl=4294967296',
        'DataRecvBufferLVM=101',
        'MinRnrTimer=32',
        'Heartbeat=-1',
        'Heartbeat=1.5',
        'Heartbeat=',
        'heartbeat=1',
        'toString=1',
        'Heartbeat=1\nPerfCounters=1',
        'Heartbeat=1,PerfCounters=1',
      ],
    ],
  ] as const) {
    for (const line of lines) {
      expectCode(() => writeConfig(parameters, line), code, line);
    }
  }
  assert.equal(parameters, before);
});

test('the options of a node are checked as well', () => {
  const given = { MaxDataRecvBuffers: 8, RdsDbgLvl: 0, UserBufferSize: 4096 };
  assert.equal(parametersOf(given), { ...PARAMETERS, ...given });
  for (const wrong of [
    { UserBufferSize: 8192 },
    { MaxCtrlSendBuffers: 51 },
    { MaxDataRecvBuffers: 0 },
    { MaxRecvMemory: NaN },
    { PendingRxPktsHWM: 49 },
    { DataRecvBufferLVM: 76 },
    { Heartbeat: 2 },
    { Nonsense: 1 },
  ] as Partial<RdsParameters>[]) {
    expectCode(() => parametersOf(wrong), 'MisuseError', JSON.stringify(wrong));
  }
});

test.run();
