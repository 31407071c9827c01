/** A WRITE with an invalid key. */
import { SendFlag, WcStatusName, WrOpcode } from '../../verbs/enums.js';
import { at } from '../private-data.js';
import { TARGET, TARGET_BYTES } from '../memory-layout.js';
import type { Act } from './act.js';

/** Keys are 24 random bits and a low byte: this one differs in its random bits. */
const WRONG = 0x5a5a5a00;

export const wrongKey: Act = {
  id: 'wrong-key',
  title: 'Try a wrong key',
  sentence:
    'Shows protection: a WRITE to the right address with a wrong key, on a connection of its own. ' +
    'The peer’s adapter refuses it, and no byte changes.',
  async play({ endpoint, session, explainStatus }) {
    await session.refresh();
    const target = (): Uint8Array => session.view.memory.slice(TARGET, TARGET + TARGET_BYTES);
    const before = target();
    const end = await endpoint.spare(session.peer);
    const region = endpoint.scratch(TARGET_BYTES);
    region.buffer.fill(0xff);
    const { remoteAddr, rkey } = at(end, TARGET);
    end.connection.qp.postSend({
      opcode: WrOpcode.RDMA_WRITE,
      sgList: [{ addr: region.addr, length: TARGET_BYTES, lkey: region.lkey }],
      rdma: { remoteAddr, rkey: (rkey ^ WRONG) >>> 0 },
      sendFlags: SendFlag.SIGNALED,
    });
    const [completion] = await end.connection.sendCq.wait();
    await end.connection.close();
    region.dereg();
    endpoint.context.free(region.buffer);
    await session.refresh();
    const after = target();
    const changed = after.filter((byte, index) => byte !== before[index]).length;
    const status = completion?.status ?? -1;
    return {
      sentences: [
        `${WcStatusName[status] ?? 'no completion'}: ${await explainStatus(status)}`.replace(
          / (?=(Likely|Try): )/g,
          '\n',
        ),
        `Bytes of the peer’s memory that changed: ${changed}.`,
      ],
      figures: { status, changed },
    };
  },
};
