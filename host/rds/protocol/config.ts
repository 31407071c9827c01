/** Parameters of a node, and the text of them (seed 003, /proc/driver/rds/config). */
import { checkObject } from '../../base/options.js';
import { checkWhole, mustBe } from '../../errors/check-whole.js';
import { MisuseError, RefusalError } from '../../errors/errors.js';

/** The seed's parameters, by its names. */
export interface RdsParameters {
  RdsDbgLvl: number;
  RdsTraceLvl: number;
  /** Percent of a socket's receive limit at which a stalled port is unstalled. */
  DataRecvBufferLVM: number;
  /**
   * How long a peer waits when there was no receive for its message, as `ibv_qp_attr` has it (10:
   * 0.32 ms); of connections from now on.
   */
  MinRnrTimer: number;
  /** Are messages and bytes counted? */
  PerfCounters: number;
  /** Percent of a socket's receive limit at which its port is stalled. */
  PendingRxPktsHWM: number;
  Heartbeat: number;
  /** Bytes of a receive of the kind that Linux fills. */
  readonly UserBufferSize: number;
  /** Messages that may wait in a socket before it counts as slow for good; SO_RCVBUF raises it. */
  readonly MaxDataRecvBuffers: number;
  /** Messages of a socket that may be on their way. */
  readonly MaxDataSendBuffers: number;
  readonly MaxCtrlRecvBuffers: number;
  readonly MaxCtrlSendBuffers: number;
  /** KBytes of receives of the node. */
  readonly MaxRecvMemory: number;
}

export const PARAMETERS: RdsParameters = {
  RdsDbgLvl: 0xe0000000,
  RdsTraceLvl: 0,
  DataRecvBufferLVM: 50,
  MinRnrTimer: 10,
  PerfCounters: 1,
  PendingRxPktsHWM: 75,
  Heartbeat: 1,
  UserBufferSize: 4096,
  MaxDataRecvBuffers: 500,
  MaxDataSendBuffers: 500,
  MaxCtrlRecvBuffers: 100,
  MaxCtrlSendBuffers: 50,
  MaxRecvMemory: 128000,
};

type Name = keyof RdsParameters;

/** Shown as the seed has them; nothing else would be so. */
const FIXED: readonly Name[] = ['UserBufferSize', 'MaxCtrlRecvBuffers', 'MaxCtrlSendBuffers'];
const MOST = 2 ** 31 - 1;

/** Those that can be set while a node runs, with the largest value of each. */
const SETTABLE: { readonly [Key in Name]?: number } = {
  RdsDbgLvl: 0xffffffff,
  RdsTraceLvl: 0xffffffff,
  DataRecvBufferLVM: 100,
  MinRnrTimer: 31,
  PerfCounters: 1,
  PendingRxPktsHWM: 100,
  Heartbeat: 1,
};
const SHOWN: readonly Name[] = [
  'RdsDbgLvl',
  'DataRecvBufferLVM',
  'MinRnrTimer',
  'PerfCounters',
  'PendingRxPktsHWM',
  'Heartbeat',
];
const READ_ONLY: readonly Name[] = [
  'UserBufferSize',
  'MaxDataRecvBuffers',
  'MaxDataSendBuffers',
  'MaxCtrlRecvBuffers',
  'MaxCtrlSendBuffers',
  'MaxRecvMemory',
];

/** Completes and checks the parameters of a new node. Throws MisuseError. */
export function parametersOf(given: Partial<RdsParameters> = {}): RdsParameters {
  checkObject('RdsNode.of', given, 'parameters');
  const parameters = { ...PARAMETERS };
  for (const [name, value] of Object.entries(given) as [Name, number][]) {
    if (!Object.hasOwn(PARAMETERS, name))
      throw new MisuseError(
        name,
        `is not an RDS parameter: use one of ${Object.keys(PARAMETERS).join(', ')}`,
      );
    const [least, most] = FIXED.includes(name)
      ? [PARAMETERS[name], PARAMETERS[name]]
      : name in SETTABLE
        ? [0, SETTABLE[name]!]
        : [1, MOST];
    checkWhole(name, value, least, most);
    (parameters as { [Key in Name]: number })[name] = value;
  }
  const { DataRecvBufferLVM, PendingRxPktsHWM } = parameters;
  checkThresholds('DataRecvBufferLVM', DataRecvBufferLVM, PendingRxPktsHWM);
  return parameters;
}

function checkThresholds(name: Name, lowest: number, highest: number): void {
  if (lowest <= highest) return;
  throw new MisuseError(name, `unstall at ${lowest} % must not exceed stall at ${highest} %`);
}

/**
 * `echo parameter=value > config`: sets one parameter. Throws MisuseError (not of that form, no
 * such parameter, a value out of range), RefusalError EACCES (read only).
 */
export function writeConfig(parameters: RdsParameters, line: string): void {
  const found = /^\s*(\w+)\s*=\s*(0x[0-9a-f]{1,8}|\d{1,10})\s*$/i.exec(line);
  if (!found) throw new MisuseError('line', `must be one parameter=value, got "${line}"`);
  const name = found[1] as Name;
  const value = Number(found[2]);
  if (!Object.hasOwn(PARAMETERS, name)) throw new MisuseError('line', `unknown parameter ${name}`);
  const most = SETTABLE[name];
  if (most === undefined) {
    throw new RefusalError('EACCES', `config: ${name} is read-only; set it in RdsNodeOptions`);
  }
  if (value > most) throw mustBe(name, `at most ${most}`, value);
  const lowest = name === 'DataRecvBufferLVM' ? value : parameters.DataRecvBufferLVM;
  const highest = name === 'PendingRxPktsHWM' ? value : parameters.PendingRxPktsHWM;
  checkThresholds(name, lowest, highest);
  (parameters as { [Key in Name]: number })[name] = value;
}

function valueOf(parameters: RdsParameters, name: Name): string {
  const value = parameters[name];
  return name.endsWith('Lvl') ? `0x${value.toString(16).padStart(8, '0')}` : `${value}`;
}

/** The text of /proc/driver/rds/config. `version`: of this software; `platform`: what it runs on. */
export function configText(parameters: RdsParameters, version: string, platform: string): string {
  const lines = (names: readonly Name[]): string[] =>
    names.map((name) => `${name}=${valueOf(parameters, name)}`);
  return [
    `rds debug version ${version}`,
    `for Verbena Rds , debug version ${version}`,
    `Built for ${platform}`,
    USAGE,
    'Parameter Values:',
    ...lines(SHOWN),
    'Read Only Parameters (set at module load time):',
    ...lines(READ_ONLY),
    '',
  ].join('\n');
}

const USAGE = `Usage Information:
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
Heartbeat - Heartbeat ON/OFF`;
