/** Data structures of commands and messages besides the command itself. */
import { CNTLID_DYNAMIC } from './constants.js';
import { Structure, bytes, text, u16, u32, u64, u8, writeNumber } from './structure.js';

/** Private data of a REQ (RDMA transport 1.0 figure 4). */
export const RdmaRequestData = new Structure(32, {
  recfmt: u16(0),
  qid: u16(2),
  /** Receives, and sends, of the host's queue pair; the latter 0's based. */
  hrqsize: u16(4),
  hsqsize: u16(6),
  cntlid: u16(8),
});

/** Private data of a REP. */
export const RdmaAcceptData = new Structure(32, { recfmt: u16(0), crqsize: u16(2) });

/** Private data of a REJ. */
export const RdmaRejectData = new Structure(4, { recfmt: u16(0), sts: u16(2) });

/** Data of the Connect command (Fabrics 1.1 figure 20). */
export const ConnectData = new Structure(1024, {
  hostid: bytes(0, 16),
  cntlid: u16(16),
  subnqn: text(256, 256),
  hostnqn: text(512, 256),
});

/** Base 1.4 figure 247, with what Fabrics add. */
export const IdentifyController = new Structure(4096, {
  vid: u16(0),
  ssvid: u16(2),
  sn: text(4, 20, ' '),
  mn: text(24, 40, ' '),
  fr: text(64, 8, ' '),
  rab: u8(72),
  cmic: u8(76),
  mdts: u8(77),
  cntlid: u16(78),
  ver: u32(80),
  oaes: u32(92),
  ctratt: u32(96),
  cntrltype: u8(111),
  oacs: u16(256),
  acl: u8(258),
  aerl: u8(259),
  frmw: u8(260),
  lpa: u8(261),
  elpe: u8(262),
  npss: u8(263),
  kas: u16(320),
  sqes: u8(512),
  cqes: u8(513),
  maxcmd: u16(514),
  nn: u32(516),
  oncs: u16(520),
  fuses: u16(522),
  vwc: u8(525),
  awun: u16(526),
  awupf: u16(528),
  sgls: u32(536),
  mnan: u32(540),
  subnqn: text(768, 256),
  ioccsz: u32(1792),
  iorcsz: u32(1796),
  icdoff: u16(1800),
  fcatt: u8(1802),
  msdbd: u8(1803),
  ofcs: u16(1804),
});

/** Base 1.4 figure 245. */
export const IdentifyNamespace = new Structure(4096, {
  nsze: u64(0),
  ncap: u64(8),
  nuse: u64(16),
  nsfeat: u8(24),
  nlbaf: u8(25),
  flbas: u8(26),
  nmic: u8(30),
  dlfeat: u8(33),
  nguid: bytes(104, 16),
  eui64: bytes(120, 8),
  /** Of LBA format 0: bytes of metadata, and log2 of those of a block. */
  ms: u16(128),
  lbads: u8(130),
});

/** Fabrics 1.1 figure 35: what a discovery log begins with. */
export const DiscoveryHeader = new Structure(1024, {
  genctr: u64(0),
  numrec: u64(8),
  recfmt: u16(16),
});

/** One subsystem at one address. */
export const DiscoveryEntry = new Structure(1024, {
  /** 1: RDMA. */
  trtype: u8(0),
  /** 1: IPv4, 2: IPv6. */
  adrfam: u8(1),
  /** 2: an NVM subsystem. */
  subtype: u8(2),
  treq: u8(3),
  portid: u16(4),
  cntlid: u16(6),
  asqsz: u16(8),
  trsvcid: text(32, 32),
  subnqn: text(256, 256),
  traddr: text(512, 256),
  /** 1: reliable connected. */
  rdmaQptype: u8(768),
  /** 4: RoCEv2. */
  rdmaPrtype: u8(769),
  /** 1: RDMA_CM. */
  rdmaCms: u8(770),
});

/** Base 1.4 figure 196; what counts is 128 bits wide there, and 64 are enough. */
export const HealthLog = new Structure(512, {
  criticalWarning: u8(0),
  temperature: u16(1),
  availableSpare: u8(3),
  availableSpareThreshold: u8(4),
  dataUnitsRead: u64(32),
  dataUnitsWritten: u64(48),
  hostReads: u64(64),
  hostWrites: u64(80),
  mediaErrors: u64(160),
});

/** Descriptors that name a namespace (CNS 03h): a type, a length, the name itself. */
export function namespaceDescriptors(
  list: readonly { readonly nidt: number; readonly nid: Uint8Array }[],
): Uint8Array {
  const whole = new Uint8Array(4096);
  let at = 0;
  for (const { nidt, nid } of list) {
    whole[at] = nidt;
    whole[at + 1] = nid.length;
    whole.set(nid, at + 4);
    at += 4 + nid.length;
  }
  return whole;
}

/** Namespaces behind `after`, in order (CNS 02h). */
export function namespaceList(namespaces: readonly number[], after: number): Uint8Array {
  const whole = new Uint8Array(4096);
  namespaces
    .filter((nsid) => nsid > after)
    .forEach((nsid, index) => writeNumber(whole, index * 4, 4, nsid));
  return whole;
}

export interface DiscoveredSubsystem {
  readonly subnqn: string;
  readonly traddr: string;
  readonly trsvcid: string;
  readonly isIpv4: boolean;
  readonly portid: number;
  /** Entries of an admin queue. */
  readonly asqsz: number;
}

/** Builds a whole discovery log page. */
export function discoveryLog(
  subsystems: readonly DiscoveredSubsystem[],
  genctr: bigint,
): Uint8Array {
  const whole = new Uint8Array(1024 * (1 + subsystems.length));
  DiscoveryHeader.build({ genctr, numrec: BigInt(subsystems.length) }, whole);
  subsystems.forEach(({ isIpv4, ...subsystem }, index) => {
    const fixed = { trtype: 1, adrfam: isIpv4 ? 1 : 2, subtype: 2, cntlid: CNTLID_DYNAMIC };
    const rdma = { rdmaQptype: 1, rdmaPrtype: 4, rdmaCms: 1 };
    DiscoveryEntry.build({ ...fixed, ...rdma, ...subsystem }, whole.subarray(1024 * (1 + index)));
  });
  return whole;
}
