/** Unreliable datagrams: one queue pair talks to all; the completion names the sender. */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  CmEventType,
  PortSpace,
  SendFlag,
  WrOpcode,
  createEventChannel,
  openDevice,
  type CmEvent,
  type EventChannel,
} from '../index.js';
import { completed, register } from './end.js';
import { announce, play } from './roles.js';
import { decode, encode } from './private-data.js';

/** In front of what was received: the network's header. */
const GRH_BYTES = 40;
const BYTES = 64;
const TIMEOUT_SECONDS = 10;

async function next(channel: EventChannel, wanted: number): Promise<CmEvent> {
  const event = (await channel.getEvent())!;
  if (event.event !== wanted) throw new Error(`${event.name} (${event.status}) came instead`);
  return event;
}

await play(
  async ({ target, udpPort }) => {
    const [address = '', port = ''] = target.split(':');
    await using context = await openDevice({
      address,
      ...(udpPort !== undefined && { port: udpPort }),
    });
    using channel = createEventChannel(context);
    const listenId = channel.createId(PortSpace.UDP);
    listenId.bindAddr({ port: Number(port) });
    listenId.listen();
    announce(listenId.getSrcPort(), context);
    const { id } = await next(channel, CmEventType.CONNECT_REQUEST);
    const cq = context.createCq(16);
    const qp = id.createQp({ sendCq: cq, recvCq: cq });
    const inbox = register({ id: { context, pd: qp.pd } }, GRH_BYTES + BYTES);
    qp.postRecv({ sgList: [inbox.sge] });
    id.accept();
    // A lost datagram is not reported: the receiver needs a timeout.
    const late = sleep(TIMEOUT_SECONDS * 1000, undefined, { ref: false });
    const came = await Promise.race([completed(cq), late]);
    if (!came) throw new Error(`nothing came within ${TIMEOUT_SECONDS} s (ETIMEDOUT)`);
    const text = decode(inbox.memory.subarray(GRH_BYTES, came.byteLen));
    console.log(`${came.byteLen - GRH_BYTES} bytes of queue pair ${came.srcQp}: ${text}`);
  },
  async ({ target, udpPort }) => {
    const [address = '', port = ''] = target.split(':');
    await using context = await openDevice({ port: 0 });
    using channel = createEventChannel(context);
    const id = channel.createId(PortSpace.UDP);
    id.resolveAddr({ address, port: Number(port), ...(udpPort !== undefined && { udpPort }) });
    await next(channel, CmEventType.ADDR_RESOLVED);
    id.resolveRoute();
    await next(channel, CmEventType.ROUTE_RESOLVED);
    const cq = context.createCq(16);
    const qp = id.createQp({ sendCq: cq, recvCq: cq });
    // Which queue pair serves that port, and with which key?
    id.connect();
    const { ud } = await next(channel, CmEventType.ESTABLISHED);
    const outbox = register({ id: { context, pd: qp.pd } }, BYTES);
    outbox.memory.set(encode('a datagram for any reader'));
    const ah = qp.pd.createAh(ud!.ahAttr);
    qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [outbox.sge],
      sendFlags: SendFlag.SIGNALED,
      ud: { ah, remoteQpn: ud!.qpNum, remoteQkey: ud!.qkey },
    });
    // Sent; whether it arrived is unknown: there is no acknowledgement.
    await completed(cq);
    console.log(`sent to queue pair ${ud!.qpNum}`);
  },
);
