/** The steps of `connect` and `listen`, one by one, as with librdmacm. */
import {
  CmEventType,
  SendFlag,
  WrOpcode,
  createEventChannel,
  openDevice,
  type CmEvent,
  type EventChannel,
} from '../index.js';
import { completed } from './end.js';
import { announce, met, play } from './roles.js';
import { decode, encode } from './private-data.js';

async function next(channel: EventChannel, wanted: number): Promise<CmEvent> {
  const event = (await channel.getEvent())!;
  event.ackEvent();
  if (event.event !== wanted) throw new Error(`${event.name} (${event.status}) came instead`);
  console.log(event.name);
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
    const listenId = channel.createId();
    listenId.bindAddr({ address, port: Number(port) });
    listenId.listen();
    announce(listenId.getSrcPort(), context);
    const { id, privateData } = await next(channel, CmEventType.CONNECT_REQUEST);
    met();
    console.log(`asked: ${decode(privateData)}`);
    const cq = context.createCq(16);
    const qp = id.createQp({ sendCq: cq, recvCq: cq });
    const inbox = context.alloc(64);
    const mr = id.regMsgs(inbox);
    qp.postRecv({ sgList: [{ addr: mr.addr, length: 64, lkey: mr.lkey }] });
    id.accept({ privateData: encode('here'), responderResources: 1, initiatorDepth: 1 });
    await next(channel, CmEventType.ESTABLISHED);
    const { byteLen } = await completed(cq);
    console.log(`received ${byteLen} bytes: ${decode(inbox)}`);
    await next(channel, CmEventType.DISCONNECTED);
  },
  async ({ target, udpPort }) => {
    const [address = '', port = ''] = target.split(':');
    await using context = await openDevice({ port: 0 });
    using channel = createEventChannel(context);
    const id = channel.createId();
    id.resolveAddr({ address, port: Number(port), ...(udpPort !== undefined && { udpPort }) });
    await next(channel, CmEventType.ADDR_RESOLVED);
    id.resolveRoute();
    await next(channel, CmEventType.ROUTE_RESOLVED);
    const cq = context.createCq(16);
    const qp = id.createQp({ sendCq: cq, recvCq: cq, cap: { maxInlineData: 64 } });
    id.connect({ privateData: encode('hello, server'), retryCount: 7, rnrRetryCount: 7 });
    const { privateData } = await next(channel, CmEventType.ESTABLISHED);
    console.log(`answered: ${decode(privateData)}`);
    const { INLINE, SIGNALED } = SendFlag;
    const inline = encode('no memory was registered for this');
    qp.postSend({ opcode: WrOpcode.SEND, inline, sendFlags: INLINE | SIGNALED });
    await completed(cq);
    id.disconnect();
    await next(channel, CmEventType.DISCONNECTED);
  },
);
