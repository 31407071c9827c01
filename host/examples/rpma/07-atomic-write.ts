/**
 * 07: a log at the server, to which the client appends words: write, flush, move the tail by an
 * atomic write, flush. A reader never finds half a word. `server ADDR PORT [PATH]`,
 * `client ADDR PORT WORD…`.
 */
import { rpma } from '../../index.js';
import { COMPLETION_ALWAYS, COMPLETION_ON_ERROR, FlushType, KILOBYTE } from './common.js';
import { MrUsage, clientConnect, clientDevice, completed, decodeCommonData } from './common.js';
import { disconnect, encodeCommonData, listen, main, memory, putText, putU64 } from './common.js';
import { serverAccept, serverDevice, textAt, u64At, waitForClose } from './common.js';
import type { Role } from './common.js';

const SIGNATURE = 'LOG';
/** Of `struct log`: the signature, where the tail is, and the words. */
const USED_AT = 8;
const DATA_AT = 16;
const LOG_SIZE = DATA_AT + KILOBYTE;

const server: Role = async (addr, port, [path]) => {
  await using device = await serverDevice(addr);
  const { buffer, pmem } = await memory(device.context, path, LOG_SIZE);
  if (textAt(buffer) !== SIGNATURE) {
    putU64(buffer, USED_AT, BigInt(DATA_AT));
    await pmem?.flush(USED_AT, 8);
    putText(buffer, 0, SIGNATURE);
    await pmem?.flush(0, USED_AT);
  }
  const flushes = pmem ? MrUsage.FLUSH_TYPE_PERSISTENT : MrUsage.FLUSH_TYPE_VISIBILITY;
  const mr = device.peer.mrReg(buffer, MrUsage.WRITE_DST | MrUsage.READ_SRC | flushes);
  const data = encodeCommonData({ dataOffset: USED_AT, mr: mr.getDescriptor() });
  const ep = await listen(device.peer, addr, port);
  await waitForClose(await serverAccept(ep, data));
  const words = buffer.slice(DATA_AT, Number(u64At(buffer, USED_AT)));
  console.log(new TextDecoder().decode(words).replaceAll('\0', '\n').trimEnd());
  mr.dereg();
};

const client: Role = async (addr, port, words) => {
  await using device = await clientDevice(addr);
  const buffer = device.context.alloc(KILOBYTE);
  const conn = await clientConnect(device, addr, port);
  // The server is taken at its word that its memory persists.
  const pcfg = rpma.peerCfgNew();
  pcfg.setDirectWriteToPmem(true);
  conn.applyRemotePeerCfg(pcfg);
  const local = device.peer.mrReg(buffer, MrUsage.WRITE_SRC | MrUsage.READ_DST);
  const { mr, dataOffset: usedAt } = decodeCommonData(conn.getPrivateData());
  const remote = rpma.mrRemoteFromDescriptor(mr);
  const cq = conn.getCq();
  conn.read(local, 0, remote, usedAt, 8, COMPLETION_ALWAYS);
  await completed(cq);
  let used = Number(u64At(buffer));
  console.log(`used value: ${used}`);
  const isPersistent = (remote.getFlushType() & MrUsage.FLUSH_TYPE_PERSISTENT) !== 0;
  const type = isPersistent ? FlushType.PERSISTENT : FlushType.VISIBILITY;
  const tail = new Uint8Array(8);
  for (const word of words) {
    const size = putText(buffer, 0, word);
    if (used + size > remote.getSize()) throw new Error('the log is full');
    conn.write(remote, used, local, 0, size, COMPLETION_ON_ERROR);
    conn.flush(remote, used, size, type, COMPLETION_ON_ERROR);
    used += size;
    putU64(tail, 0, BigInt(used));
    conn.atomicWrite(remote, usedAt, tail, COMPLETION_ON_ERROR);
    conn.flush(remote, usedAt, 8, type, COMPLETION_ALWAYS);
    await completed(cq);
  }
  await disconnect(conn);
};

await main(import.meta.url, { server, client });
