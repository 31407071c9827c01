/**
 * Runs in a network namespace of its own (network.ts starts it): a client writes to a server while
 * the network drops long packets to it, and only these. Prints what happened as one line of JSON.
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  explainWcStatus,
  openDevice,
} from '../../host/index.js';
import { freshName, Member } from '../support/member.js';
import { serveMemory } from '../support/serve-memory.js';

const [SERVER, OTHER, CLIENT] = ['127.1.29.1', '127.1.29.3', '127.1.29.2'];
const SERVICE = 7475;
const BYTES = 2 ** 16;
/** Of a UDP datagram: one that drops a path MTU of 4096, then one that drops 1024 as well. */
const LONGEST = [2000, 700];

interface Outcome {
  /** 128 << this are its bytes. */
  readonly mtu: number;
  readonly status: string;
  readonly why: string;
}

const nft = (...words: string[]): string => execFileSync('nft', words).toString();
execFileSync('ip', ['link', 'set', 'lo', 'up']);
nft('add', 'table', 'ip', 'relay');
nft('add', 'chain', 'ip', 'relay', 'output', '{ type filter hook output priority 0 ; }');

const members = [SERVER, OTHER].map((address) => Member.open({ name: freshName(), address }));
// One packet for each system call: the rule sees packets, not runs of them.
const context = await openDevice({ address: CLIENT, progress: 'inline' });

/** A connection of the largest path MTU, and one WRITE. */
async function write(member: Member, address: string): Promise<Outcome> {
  const connection = await connect({ address, port: SERVICE }, { context, ackTimeout: 14 });
  const key = await member.run(async ({ kept }) => {
    while (!kept.mr) await new Promise((resolve) => setTimeout(resolve, 10));
    return { addr: String(kept.mr.addr), rkey: kept.mr.rkey };
  });
  const { qp, pd, sendCq } = connection;
  const mr = pd.regMr(context.alloc(BYTES), AccessFlag.LOCAL_WRITE);
  const mtu = qp.query().pathMtu!;
  qp.postSend({
    opcode: WrOpcode.RDMA_WRITE,
    sendFlags: SendFlag.SIGNALED,
    sgList: [{ addr: mr.addr, length: BYTES, lkey: mr.lkey }],
    rdma: { remoteAddr: BigInt(key.addr), rkey: key.rkey },
  });
  for (let turn = 0; turn < 3000; turn++) {
    const [completion] = sendCq.poll(1);
    if (completion) {
      const { status, vendorErr } = completion;
      await connection.close();
      return { mtu, status: WcStatusName[status]!, why: explainWcStatus(status, vendorErr) };
    }
    await sleep(10);
  }
  return { mtu, status: 'no completion', why: '' };
}

try {
  const [server, other] = (await Promise.all(members)) as [Member, Member];
  await server.run(serveMemory, SERVER, SERVICE, BYTES, '');
  await other.run(serveMemory, OTHER, SERVICE, BYTES, '');
  const outcomes: Outcome[] = [];
  let dropped = 0;
  for (const longest of LONGEST) {
    nft('flush', 'chain', 'ip', 'relay', 'output');
    const rule = `ip daddr ${SERVER} udp length > ${longest} counter drop`;
    nft('add', 'rule', 'ip', 'relay', 'output', ...rule.split(' '));
    outcomes.push(await write(server, SERVER), await write(server, SERVER));
    dropped += Number(/packets (\d+)/.exec(nft('list', 'ruleset'))![1]);
  }
  const beside = await write(other, OTHER);
  console.log(JSON.stringify({ outcomes, beside, dropped }));
} finally {
  await context.close();
  for (const member of await Promise.all(members)) {
    member.kill();
    await member.ended;
  }
}
