/**
 * 09: the general-purpose method: the client writes, asks by a message for these bytes to be made
 * persistent, and the server does that and answers. Nothing but SEND and WRITE is needed for it.
 * `server ADDR PORT [PATH] [scch]`.
 */
import { rpma } from '../../index.js';
import { COMPLETION_ON_ERROR, HELLO_STR_OFFSET, HELLO_STR_SIZE, HELLO_T_SIZE } from './common.js';
import { MrUsage, clientConnect, clientDevice, completed, decodeCommonData } from './common.js';
import { disconnect, encodeCommonData, established, firstHello, listen, main } from './common.js';
import { memory, serverDevice, textAt, translate, waitForClose, type Role } from './common.js';

const { GPSPM_MESSAGE_BYTES } = rpma;
const SEND_OFFSET = 0;
const RECV_OFFSET = GPSPM_MESSAGE_BYTES;

const server: Role = async (addr, port, [path, channel]) => {
  await using device = await serverDevice(addr);
  const { peer, context } = device;
  const { buffer, pmem } = await memory(context, path, HELLO_STR_SIZE);
  if (buffer[0] !== 0) console.log(`Old value: ${textAt(buffer)}`);
  const mr = peer.mrReg(buffer, MrUsage.WRITE_DST | MrUsage.FLUSH_TYPE_VISIBILITY);
  const messages = context.alloc(2 * GPSPM_MESSAGE_BYTES);
  const messageMr = peer.mrReg(messages, MrUsage.SEND | MrUsage.RECV);
  const cfg = rpma.connCfgNew();
  cfg.setRcqSize(1);
  if (channel === 'scch') cfg.setComplChannel(true);
  const ep = await listen(peer, addr, port);
  const request = await ep.nextConnReq(cfg);
  request.recv(messageMr, RECV_OFFSET, GPSPM_MESSAGE_BYTES);
  const conn = await established(request.connect(encodeCommonData({ mr: mr.getDescriptor() })));
  const rcq = channel === 'scch' ? (await conn.wait()).cq : conn.getRcq()!;
  const { byteLen } = await completed(rcq);
  const received = messages.slice(RECV_OFFSET, RECV_OFFSET + byteLen);
  const places = { mr: messageMr, sendOffset: SEND_OFFSET, recvOffset: RECV_OFFSET };
  const persist = async (offset: number, length: number) => pmem?.flush(offset, length);
  const { offset, length, opContext } = await rpma.answerFlushRequest(
    conn,
    places,
    received,
    buffer.length,
    persist,
  );
  console.log(`Flushed ${length} bytes at ${offset} for 0x${opContext.toString(16)}`);
  await waitForClose(conn);
  console.log(`New value: ${textAt(buffer)}`);
  mr.dereg();
};

const client: Role = async (addr, port, [path]) => {
  await using device = await clientDevice(addr);
  const { peer, context } = device;
  const { buffer, pmem } = await memory(context, path, HELLO_T_SIZE);
  firstHello(buffer);
  console.log(`Next value: ${textAt(buffer, HELLO_STR_OFFSET)}`);
  const src = peer.mrReg(buffer, MrUsage.WRITE_SRC);
  const mr = peer.mrReg(context.alloc(2 * GPSPM_MESSAGE_BYTES), MrUsage.SEND | MrUsage.RECV);
  const cfg = rpma.connCfgNew();
  cfg.setRcqSize(1);
  const conn = await clientConnect(device, addr, port, undefined, cfg);
  const data = decodeCommonData(conn.getPrivateData());
  const dst = rpma.mrRemoteFromDescriptor(data.mr);
  const at = data.dataOffset;
  conn.write(dst, at, src, HELLO_STR_OFFSET, HELLO_STR_SIZE, COMPLETION_ON_ERROR);
  const places = { mr, sendOffset: SEND_OFFSET, recvOffset: RECV_OFFSET };
  await rpma.requestFlush(conn, places, at, HELLO_STR_SIZE, 0xf01dn);
  console.log(`Translation: ${translate(buffer)}`);
  await pmem?.flush();
  await disconnect(conn);
  src.dereg();
};

await main(import.meta.url, { server, client });
