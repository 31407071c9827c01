/**
 * Runs in a network namespace of its own (network.ts starts it): a client writes to a server while
 * forged ICMP messages say that fragmentation is needed. Prints what happened as one line of JSON.
 */
import { execFileSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  AccessFlag,
  SendFlag,
  WcStatusName,
  WrOpcode,
  connect,
  openDevice,
} from '../../host/index.js';
import { LEAST_PATH_MTU, forgeFragmentationNeeded } from '../support/forged-icmp.js';
import { freshName, Member } from '../support/member.js';
import { serveMemory } from '../support/serve-memory.js';

const [SERVER, CLIENT] = ['127.1.29.1', '127.1.29.2'];
const PORT = 4791;
const SERVICE = 7475;
const BYTES = 2 ** 20;
const FORGERIES = 50;

execFileSync('ip', ['link', 'set', 'lo', 'up']);
const server = await Member.open({ name: freshName(), address: SERVER });
const context = await openDevice({ address: CLIENT });
try {
  await server.run(serveMemory, SERVER, SERVICE, BYTES, '');
  const { qp, pd, sendCq } = await connect({ address: SERVER, port: SERVICE }, { context });
  const key = await server.run(async ({ kept }) => {
    while (!kept.mr) await new Promise((resolve) => setTimeout(resolve, 10));
    return { addr: String(kept.mr.addr), rkey: kept.mr.rkey };
  });
  const mr = pd.regMr(context.alloc(BYTES), AccessFlag.LOCAL_WRITE);
  const write = async (): Promise<string> => {
    qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sendFlags: SendFlag.SIGNALED,
      sgList: [{ addr: mr.addr, length: BYTES, lkey: mr.lkey }],
      rdma: { remoteAddr: BigInt(key.addr), rkey: key.rkey },
    });
    for (let turn = 0; turn < 3000; turn++) {
      const [completion] = sendCq.poll(1);
      if (completion) return WcStatusName[completion.status]!;
      await sleep(10);
    }
    return 'no completion';
  };
  const before = await write();
  const [victim, peer] = [CLIENT, SERVER].map((address) => ({ address, port: PORT }));
  forgeFragmentationNeeded(victim!, peer!, FORGERIES);
  await sleep(100);
  const route = execFileSync('ip', ['route', 'get', SERVER, 'from', CLIENT]).toString();
  const began = performance.now();
  const after = await write();
  const seconds = (performance.now() - began) / 1000;
  const isBelieved = route.includes(`mtu ${LEAST_PATH_MTU}`);
  console.log(JSON.stringify({ before, after, seconds, isBelieved, forged: FORGERIES }));
} finally {
  await context.close();
  server.kill();
  await server.ended;
}
