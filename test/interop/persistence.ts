/**
 * FLUSH and ATOMIC WRITE between Linux rxe and us, in both roles: of ours persistent on the guest's
 * /dev/dax0.0, of Linux's in a file of ours; and three faults of rxe 6.12, each with the few lines
 * that show it (rxe/flush-faults.md).
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import {
  AccessFlag,
  PlacementType,
  QpType,
  SelectivityLevel,
  WrOpcode,
  type SendWorkRequest,
} from '../../host/index.js';
import { DATA_OFFSET } from '../../host/pmem/header.js';
import { Workspace, noise } from '../support/processes.js';

import type { GuestGroup, Report } from './group.js';
import { withPair } from './rxe.js';
import { diskTool, guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';
import { LinuxPeer, startRemoteVerbs } from './rxe/linux-peer.js';
import { runPowerCuts } from './rxe/power-cuts.js';
import type { OurPeer } from './rxe/our-peer.js';
import type { Peer, Region } from './rxe/peer.js';
import {
  SEND_OFFSET,
  TARGET_OFFSET,
  at,
  perform,
  sge,
  statusOf,
  type Scenario,
} from './rxe/scenario.js';

const { GLOBAL, PERSISTENT } = PlacementType;
const { RANGE, MR } = SelectivityLevel;
const SETTINGS = [
  { isIpv6: false, mtuBytes: 1024 },
  { isIpv6: true, mtuBytes: 4096 },
];
const ACCESS =
  AccessFlag.LOCAL_WRITE |
  AccessFlag.REMOTE_WRITE |
  AccessFlag.REMOTE_READ |
  AccessFlag.FLUSH_GLOBAL;
const BYTES = 4096;
const WORD = Buffer.from('1122334455667788', 'hex');
/** Every FLUSH response: READ RESPONSE ONLY, with nothing behind its AETH. */
const EMPTY_RESPONSE = 'udp dport 4791 udp length 28 @th,64,8 0x10 counter drop';

/** The first request of an opcode. */
function firstOf(opcode: number): string {
  return `udp dport 4791 @th,64,8 ${opcode} numgen inc mod 1000000 < 1 counter drop`;
}

function flush(region: Region, type: number, level: number = RANGE, length = 100): SendWorkRequest {
  const opcode = WrOpcode.FLUSH;
  return { opcode, flush: { ...at(region, 0), length, type, level } };
}

function write(ours: Peer, region: Region): SendWorkRequest {
  const sgList = [sge(ours, SEND_OFFSET, 100)];
  return { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: at(region, 0) };
}

function word(ours: Peer, region: Region, offset: number): SendWorkRequest {
  const sgList = [sge(ours, SEND_OFFSET, 8)];
  return { opcode: WrOpcode.ATOMIC_WRITE, sgList, rdma: at(region, offset) };
}

function visible(linux: Peer): Promise<Region> {
  return linux.regMr(ACCESS, TARGET_OFFSET, BYTES);
}

function persistent(linux: Peer): Promise<Region> {
  if (!(linux instanceof LinuxPeer)) throw new Error('only Linux has /dev/dax0.0');
  return linux.regDax(ACCESS | AccessFlag.FLUSH_PERSISTENT, BYTES);
}

type Run = (ours: Peer, linux: Peer, lab: Lab) => Promise<void>;

const SCENARIOS: readonly [name: string, run: Run, scenario?: Partial<Scenario>][] = [
  [
    'FLUSH for global visibility: a range, the whole region',
    async (ours, linux) => {
      const region = await visible(linux);
      await perform(ours, write(ours, region), flush(region, GLOBAL), flush(region, GLOBAL, MR, 0));
    },
  ],
  [
    'ATOMIC WRITE, eight bytes as they lie in memory',
    async (ours, linux) => {
      await ours.write(SEND_OFFSET, WORD);
      const region = await visible(linux);
      await perform(ours, word(ours, region, 16));
      assert.deepEqual(await linux.read(TARGET_OFFSET + 16, 8), WORD);
    },
  ],
  [
    'FLUSH for persistence of /dev/dax0.0: a range, the whole region, both placements',
    async (ours, linux) => {
      const region = await persistent(linux);
      await perform(
        ours,
        write(ours, region),
        flush(region, PERSISTENT),
        flush(region, PERSISTENT, MR, 0),
        flush(region, PERSISTENT | GLOBAL),
      );
    },
  ],
  [
    'two-phase commits, pipelined: WRITE, FLUSH, ATOMIC WRITE, FLUSH',
    async (ours, linux) => {
      const region = await persistent(linux);
      const commit = [
        write(ours, region),
        flush(region, PERSISTENT),
        word(ours, region, 128),
        flush(region, PERSISTENT),
      ];
      await perform(ours, ...Array.from({ length: 8 }, () => commit).flat());
    },
  ],
  [
    'volatile memory is not flushed for persistence',
    async (ours, linux) => {
      const region = await visible(linux);
      assert.equal(await statusOf(ours, flush(region, PERSISTENT)), 'REM_ACCESS_ERR');
    },
  ],
  [
    'beyond the region a FLUSH is refused',
    async (ours, linux) => {
      const region = await visible(linux);
      assert.equal(await statusOf(ours, flush(region, GLOBAL, RANGE, BYTES + 1)), 'REM_ACCESS_ERR');
    },
  ],
  [
    'a misaligned ATOMIC WRITE fails here',
    async (ours, linux) => {
      const region = await visible(linux);
      assert.equal(await statusOf(ours, word(ours, region, 4)), 'LOC_QP_OP_ERR');
    },
  ],
  [
    'fault 1 of rxe: a FLUSH with the ICRC of the standard vanishes',
    async (ours, linux) => {
      const region = await visible(linux);
      assert.equal(await statusOf(ours, flush(region, GLOBAL)), 'RETRY_EXC_ERR');
    },
    { doubledFlushIcrc: false, retryCnt: 3 },
  ],
  [
    'fault 2 of rxe: a FLUSH that is repeated is not answered',
    async (ours, linux, lab) => {
      const region = await visible(linux);
      const first = EMPTY_RESPONSE.replace('@th', 'numgen inc mod 1000000 < 1 @th');
      const { result } = await lab.withDrops([first], () => statusOf(ours, flush(region, GLOBAL)));
      assert.equal(result, 'RETRY_EXC_ERR');
    },
    { retryCnt: 3 },
  ],
  [
    'fault 2 does no harm where something follows the FLUSH',
    async (ours, linux, lab) => {
      const region = await visible(linux);
      const first = EMPTY_RESPONSE.replace('@th', 'numgen inc mod 1000000 < 1 @th');
      await lab.withDrops([first], () => perform(ours, flush(region, GLOBAL), write(ours, region)));
    },
  ],
];

/** Linux asks, and we keep. `path`: of the file in which it is, when it is kept. */
type LinuxRun = (linux: Peer, ours: OurPeer, path: string, lab: Lab) => Promise<void>;

function kept(ours: OurPeer, path: string): Promise<Region> {
  return ours.regPmem(path, ACCESS | AccessFlag.FLUSH_PERSISTENT, BYTES);
}

function inFile(path: string, offset: number, length: number): Buffer {
  return readFileSync(path).subarray(DATA_OFFSET + offset, DATA_OFFSET + offset + length);
}

const LINUX_SCENARIOS: readonly [name: string, run: LinuxRun][] = [
  [
    'FLUSH for global visibility: a range, the whole region',
    async (linux, ours) => {
      await linux.fill(SEND_OFFSET, 100, 1);
      const region = await visible(ours);
      await perform(
        linux,
        write(linux, region),
        flush(region, GLOBAL),
        flush(region, GLOBAL, MR, 0),
      );
      assert.equal(await ours.same(TARGET_OFFSET, 100, 1), -1);
    },
  ],
  [
    'ATOMIC WRITE, eight bytes as they lie in memory',
    async (linux, ours) => {
      await linux.write(SEND_OFFSET, WORD);
      const region = await visible(ours);
      await perform(linux, word(linux, region, 16));
      assert.deepEqual(await ours.read(TARGET_OFFSET + 16, 8), WORD);
    },
  ],
  [
    'FLUSH for persistence: a range is in the file when it completes, and nothing beside it',
    async (linux, ours, path) => {
      await linux.fill(SEND_OFFSET, 100, 2);
      const region = await kept(ours, path);
      const sgList = [sge(linux, SEND_OFFSET, 100)];
      const beside = { opcode: WrOpcode.RDMA_WRITE, sgList, rdma: at(region, 200) };
      await perform(linux, write(linux, region), beside, flush(region, PERSISTENT));
      assert.deepEqual(inFile(path, 0, 100), Buffer.from(noise(100, 2)));
      assert.deepEqual(inFile(path, 200, 100), Buffer.alloc(100));
      await perform(linux, flush(region, PERSISTENT, MR, 0));
      assert.deepEqual(inFile(path, 200, 100), Buffer.from(noise(100, 2)));
    },
  ],
  [
    'FLUSH for both placements in one',
    async (linux, ours, path) => {
      await linux.fill(SEND_OFFSET, 100, 3);
      const region = await kept(ours, path);
      await perform(linux, write(linux, region), flush(region, PERSISTENT | GLOBAL));
      assert.deepEqual(inFile(path, 0, 100), Buffer.from(noise(100, 3)));
    },
  ],
  [
    'two-phase commits, pipelined: WRITE, FLUSH, ATOMIC WRITE, FLUSH',
    async (linux, ours, path) => {
      await linux.fill(SEND_OFFSET, 100, 4);
      const region = await kept(ours, path);
      const commit = [
        write(linux, region),
        flush(region, PERSISTENT),
        word(linux, region, 128),
        {
          ...flush(region, PERSISTENT),
          flush: { ...at(region, 128), length: 8, type: PERSISTENT },
        },
      ];
      await perform(linux, ...Array.from({ length: 8 }, () => commit).flat());
      assert.deepEqual(inFile(path, 0, 100), Buffer.from(noise(100, 4)));
      assert.deepEqual(inFile(path, 128, 8), Buffer.from(noise(8, 4)));
    },
  ],
  [
    'a FLUSH that Linux repeats, since its answer was lost, is answered',
    async (linux, ours, path, lab) => {
      const region = await kept(ours, path);
      const first = EMPTY_RESPONSE.replace('@th', 'numgen inc mod 1000000 < 1 @th');
      await lab.withDrops([first], () => perform(linux, flush(region, PERSISTENT)));
    },
  ],
  [
    'fault 3 of rxe: a FLUSH that it sends again has lost its address, and is one of the region',
    async (linux, ours, path, lab) => {
      await linux.fill(SEND_OFFSET, 100, 5);
      const region = await kept(ours, path);
      const requests = [write(linux, region), flush(region, PERSISTENT), write(linux, region)];
      await lab.withDrops([firstOf(0x1c)], () => perform(linux, ...requests));
      assert.deepEqual(inFile(path, 0, 100), Buffer.from(noise(100, 5)));
    },
  ],
  [
    'fault 3 of rxe: an ATOMIC WRITE that it sends again has lost its address, and is refused',
    async (linux, ours, _, lab) => {
      const region = await visible(ours);
      const { result } = await lab.withDrops([firstOf(0x1d)], () =>
        statusOf(linux, word(linux, region, 16)),
      );
      assert.equal(result, 'REM_ACCESS_ERR');
    },
  ],
  [
    'an ATOMIC WRITE that Linux repeats is answered, and not executed again',
    async (linux, ours, _, lab) => {
      await linux.write(SEND_OFFSET, WORD);
      const region = await visible(ours);
      const first = EMPTY_RESPONSE.replace('@th', 'numgen inc mod 1000000 < 1 @th');
      await lab.withDrops([first], () => perform(linux, word(linux, region, 16)));
      assert.deepEqual(await ours.read(TARGET_OFFSET + 16, 8), WORD);
    },
  ],
  [
    'volatile memory is not flushed for persistence',
    async (linux, ours) => {
      const region = await visible(ours);
      assert.equal(await statusOf(linux, flush(region, PERSISTENT)), 'REM_ACCESS_ERR');
    },
  ],
  [
    'a placement that the region does not grant is refused',
    async (linux, ours, path) => {
      const access = AccessFlag.LOCAL_WRITE | AccessFlag.FLUSH_PERSISTENT;
      const region = await ours.regPmem(path, access, BYTES);
      assert.equal(await statusOf(linux, flush(region, PERSISTENT | GLOBAL)), 'REM_ACCESS_ERR');
    },
  ],
  [
    'beyond the region a FLUSH is refused',
    async (linux, ours) => {
      const region = await visible(ours);
      assert.equal(
        await statusOf(linux, flush(region, GLOBAL, RANGE, BYTES + 1)),
        'REM_ACCESS_ERR',
      );
    },
  ],
  [
    'a misaligned ATOMIC WRITE is refused, and writes nothing',
    async (linux, ours) => {
      await linux.write(SEND_OFFSET, WORD);
      const region = await visible(ours);
      assert.equal(await statusOf(linux, word(linux, region, 4)), 'REM_INV_REQ_ERR');
      assert.deepEqual(await ours.read(TARGET_OFFSET, 16), Buffer.alloc(16));
    },
  ],
];

async function runLinux(report: Report, lab: Lab): Promise<void> {
  for (const setting of SETTINGS) {
    const wire = `${setting.isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${setting.mtuBytes}`;
    for (const [name, run] of LINUX_SCENARIOS) {
      const options = { ...setting, qpType: QpType.RC, linuxRequests: true };
      await report.check(`${wire}: Linux asks: ${name}`, () =>
        Workspace.use((workspace) =>
          withPair(lab, options, ({ requester, responder }) =>
            run(requester, responder as OurPeer, workspace.path('kept.pmem'), lab),
          ),
        ),
      );
    }
  }
}

async function runAll(report: Report, lab: Lab): Promise<void> {
  for (const setting of SETTINGS) {
    const wire = `${setting.isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${setting.mtuBytes}`;
    for (const [name, run, scenario = {}] of SCENARIOS) {
      const options = { ...setting, qpType: QpType.RC, linuxRequests: false, scenario };
      await report.check(`${wire}: ${name}`, () =>
        withPair(lab, options, ({ requester, responder }) => run(requester, responder, lab)),
      );
    }
  }
}

export const persistenceGroup: GuestGroup = {
  name: 'persistence',
  tools: [...guestTools, diskTool],
  guests: 1,
  async run(report, lab) {
    await lab.guest.run('persistent-memory');
    await startRemoteVerbs(lab, lab.guest);
    await runAll(report, lab);
    await runLinux(report, lab);
    await runPowerCuts(report, lab);
  },
};
