/** Sides of the local path in processes of one device (member.ts). */
import type { Member } from './member.js';

export interface Told {
  readonly address: string;
  readonly port: number;
  readonly qpNum: number;
  readonly addr: bigint | number;
  readonly rkey: number;
}

/** Makes a side in a process. Returns what its peer must know. */
export function open(member: Member): Promise<Told> {
  return member.run(({ context, kept, pair }) => {
    kept.pd = context.allocPd();
    kept.memory = context.alloc(4096);
    kept.mr = kept.pd.regMr(kept.memory, pair.ALL_ACCESS);
    kept.cq = context.createCq(256);
    kept.qp = kept.pd.createQp({ sendCq: kept.cq, recvCq: kept.cq });
    const { gid, port } = context.local;
    const { qpNum } = kept.qp;
    return { address: `${gid}`, port, qpNum, addr: Number(kept.mr.addr), rkey: kept.mr.rkey };
  });
}

export function join(member: Member, told: Told, retryCnt = 2): Promise<void> {
  return member.run(
    ({ kept, pair, verbena }, { address, port, qpNum }, retryCnt) => {
      const peer = { context: { local: verbena.Endpoint.parse(address, port) }, qp: { qpNum } };
      pair.connect(kept.qp, peer as never, 1, 1, { attributes: { timeout: 16, retryCnt } });
    },
    told,
    retryCnt,
  );
}

/** `count` requests of the process, one after another; their statuses, without repetitions. */
export function requests(
  member: Member,
  told: Told,
  opcode: number,
  count: number,
): Promise<string[]> {
  return member.run(
    async ({ kept, verbena }, { addr, rkey }, opcode, count) => {
      const seen = new Set<string>();
      const rdma = { remoteAddr: addr, rkey };
      for (let turn = 0; turn < count; turn++) {
        const sgList = [{ addr: kept.mr.addr, length: 8, lkey: kept.mr.lkey }];
        const isAtomic = opcode === verbena.WrOpcode.ATOMIC_FETCH_AND_ADD;
        const where = isAtomic ? { atomic: { ...rdma, compareAdd: 1n } } : { rdma };
        const sendFlags = verbena.SendFlag.SIGNALED;
        kept.qp.postSend({ opcode, sendFlags, sgList, ...where });
        const [wc] = await kept.cq.wait(1);
        seen.add(verbena.WcStatusName[wc!.status]!);
      }
      return [...seen];
    },
    told,
    opcode,
    count,
  );
}

export function localRequests(member: Member): Promise<number> {
  return member.run(({ context }) => Number(context.counters().localRequests));
}

/** Posts `count` receive requests of 64 bytes at the process. */
export function expect(member: Member, count: number): Promise<void> {
  return member.run(({ kept }, count) => {
    const { addr, lkey } = kept.mr;
    for (let turn = 0; turn < count; turn++) {
      const sgList = [{ addr: addr + BigInt(64 * (turn % 32)), length: 64, lkey }];
      kept.qp.postRecv({ wrId: turn, sgList });
    }
  }, count);
}

/** Completions of `count` receive requests. */
export function received(member: Member, count: number): Promise<number> {
  return member.run(async ({ kept }, count) => {
    let got = 0;
    while (got < count) got += (await kept.cq.wait()).length;
    return got;
  }, count);
}
