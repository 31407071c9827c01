/** Every operation of RC, UC and UD between Linux rxe and us, each side in both roles. */
import { QpType } from '../../host/index.js';
import type { GuestGroup, Report } from './group.js';
import { guestTools } from './rxe/image.js';
import type { Lab } from './rxe/lab.js';
import { LinuxPeer, startRemoteVerbs } from './rxe/linux-peer.js';
import { reliable, unreliable } from './rxe/loss.js';
import { OurPeer } from './rxe/our-peer.js';
import type { ConnectOptions, Peer } from './rxe/peer.js';
import { RC_SCENARIOS } from './rxe/rc.js';
import type { Pair, Scenario } from './rxe/scenario.js';
import { UC_SCENARIOS, UD_SCENARIOS } from './rxe/unreliable.js';

interface Setting {
  readonly isIpv6: boolean;
  readonly mtuBytes: number;
}

const SETTINGS: readonly Setting[] = [
  { isIpv6: false, mtuBytes: 1024 },
  { isIpv6: true, mtuBytes: 1024 },
  { isIpv6: false, mtuBytes: 4096 },
  { isIpv6: true, mtuBytes: 4096 },
];
const SERVICES = [
  { name: 'RC', qpType: QpType.RC, scenarios: RC_SCENARIOS },
  { name: 'UC', qpType: QpType.UC, scenarios: UC_SCENARIOS },
  { name: 'UD', qpType: QpType.UD, scenarios: UD_SCENARIOS },
];
/** Wraps around within a scenario. */
const REQUESTER_PSN = 0xfffff8;
const RESPONDER_PSN = 0x200;
/** 4.096 us * 2^14: 67 ms, far more than the guest takes for anything. */
const TIMEOUT = 14;
/** 4.096 us * 2^17: half a second, for the way of FAR_MILLIS. */
const FAR_TIMEOUT = 17;
/** A round trip between continents. */
const FAR_MILLIS = 50;
/** 0.64 ms. */
const MIN_RNR_TIMER = 12;

/** Two connected peers, for as long as `use` runs. */
export async function withPair<T>(
  lab: Lab,
  options: Setting & {
    qpType: number;
    linuxRequests: boolean;
    scenario?: Partial<Scenario>;
    rttMillis?: number;
  },
  use: (pair: Pair) => Promise<T>,
): Promise<T> {
  const { qpType, isIpv6, mtuBytes, linuxRequests, scenario = {} } = options;
  const { rttMillis = 0 } = options;
  const peerOptions = { qpType, isIpv6, rttMillis, sgesMax: scenario.sgesMax ?? 4 };
  const ours = await OurPeer.open(isIpv6 ? lab.ipv6 : lab.ipv4, peerOptions);
  let linux: Peer | undefined;
  try {
    linux = await LinuxPeer.open(lab.guest, peerOptions);
    const [requester, responder] = linuxRequests ? [linux, ours] : [ours, linux];
    const common: Omit<ConnectOptions, 'sqPsn' | 'rqPsn'> = {
      mtuBytes,
      timeout: rttMillis === 0 ? TIMEOUT : FAR_TIMEOUT,
      retryCnt: scenario.retryCnt ?? 7,
      rnrRetry: scenario.rnrRetry ?? 7,
      minRnrTimer: MIN_RNR_TIMER,
      doubledFlushIcrc: scenario.doubledFlushIcrc ?? true,
    };
    const ahead = scenario.psnAhead ?? 0;
    await responder.connect(requester, {
      ...common,
      sqPsn: RESPONDER_PSN,
      rqPsn: (REQUESTER_PSN - ahead) & 0xffffff,
    });
    await requester.connect(responder, { ...common, sqPsn: REQUESTER_PSN, rqPsn: RESPONDER_PSN });
    return await use({ requester, responder, mtuBytes });
  } finally {
    await linux?.close();
    await ours.close();
  }
}

async function runScenarios(report: Report, lab: Lab): Promise<void> {
  for (const setting of SETTINGS) {
    for (const linuxRequests of [false, true]) {
      for (const { name: service, qpType, scenarios } of SERVICES) {
        for (const scenario of scenarios) {
          const requests = linuxRequests ? 'Linux' : 'Verbena';
          if ((scenario.requester ?? requests) !== requests) continue;
          await report.check(
            `${describe(setting, linuxRequests)}: ${service} ${scenario.name}`,
            () =>
              withPair(lab, { ...setting, qpType, linuxRequests, scenario }, (pair) =>
                scenario.run(pair),
              ),
          );
        }
      }
    }
  }
}

const FAR_BATCHES = 20;
const LOSSES = [
  { percent: 1, batches: 20, settings: SETTINGS.slice(1, 3) },
  { percent: 5, batches: 15, settings: [SETTINGS[0]!, SETTINGS[3]!] },
];

async function runLosses(report: Report, lab: Lab): Promise<void> {
  for (const { percent, batches, settings } of LOSSES) {
    for (const setting of settings) {
      for (const linuxRequests of [false, true]) {
        for (const { name: service, qpType } of SERVICES) {
          // Loss on UC and UD has the same effect on every wire.
          if (qpType !== QpType.RC && setting !== settings[0]) continue;
          const what = `${percent} % lost: ${describe(setting, linuxRequests)}: ${service}`;
          await report.check(what, () =>
            withPair(lab, { ...setting, qpType, linuxRequests }, async (pair) => {
              const { result, lost } = await lab.withLoss(percent, () =>
                qpType === QpType.RC ? reliable(pair, batches) : unreliable(pair, batches),
              );
              if (qpType !== QpType.RC && result === 0) throw new Error('every message arrived');
              report.note(`${lost} packets were lost, and ${result} messages`);
            }),
          );
        }
      }
    }
  }
}

/** Everything of RC once, and batches with and without losses; UC and UD know no round trip. */
async function runFar(report: Report, lab: Lab): Promise<void> {
  const setting = SETTINGS[0]!;
  for (const linuxRequests of [false, true]) {
    const common = { ...setting, qpType: QpType.RC, linuxRequests, rttMillis: FAR_MILLIS };
    const what = `${FAR_MILLIS} ms away: ${describe(setting, linuxRequests)}: RC`;
    const requests = linuxRequests ? 'Linux' : 'Verbena';
    for (const scenario of RC_SCENARIOS) {
      if ((scenario.requester ?? requests) !== requests) continue;
      await report.check(`${what} ${scenario.name}`, () =>
        withPair(lab, { ...common, scenario }, (pair) => scenario.run(pair)),
      );
    }
    for (const percent of [0, 1]) {
      await report.check(`${what}, ${percent} % lost`, () =>
        withPair(lab, common, async (pair) => {
          if (percent === 0) return void (await reliable(pair, FAR_BATCHES));
          const { lost } = await lab.withLoss(percent, () => reliable(pair, FAR_BATCHES));
          report.note(`${lost} packets were lost`);
        }),
      );
    }
  }
}

function describe({ isIpv6, mtuBytes }: Setting, linuxRequests: boolean): string {
  const wire = `${isIpv6 ? 'IPv6' : 'IPv4'}, MTU ${mtuBytes}`;
  return `${wire}: ${linuxRequests ? 'Linux to Verbena' : 'Verbena to Linux'}`;
}

export const rxeGroup: GuestGroup = {
  name: 'rxe',
  tools: guestTools,
  guests: 1,
  async run(report, lab) {
    await startRemoteVerbs(lab, lab.guest);
    await runScenarios(report, lab);
    await runLosses(report, lab);
    await runFar(report, lab);
  },
};
