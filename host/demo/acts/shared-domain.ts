/** One protection domain, two contexts of the device: what one registers the other one serves. */
import type { RdmaConnection } from '../../cm/connect.js';
import { RefusalError } from '../../errors/errors.js';
import type { Context } from '../../verbs/context.js';
import { SendFlag, WcStatus, WrOpcode } from '../../verbs/enums.js';
import type { ProtectionDomain } from '../../verbs/protection-domain.js';
import { STAMP_BYTES, stampOf } from '../memory-layout.js';
import { MESSAGE_BYTES } from '../messages.js';
import { check } from '../end.js';
import type { Act } from './act.js';

/** Who knows it may take part; a stranger is told that there is no such domain. */
const SHARE_KEY = 0x5eed_0000n;
const HEX = 16;

export const sharedDomain: Act = {
  id: 'shared-domain',
  title: 'Shared domain',
  sentence:
    'Two contexts of this pane’s device take part in one protection domain, by a handle of 32 bytes and ' +
    'its key. One registers memory, the other one has the queue pair: the peer WRITEs through it by ' +
    'a key that it never registered. Both contexts are in one Worker: in two they would need shared ' +
    'memory, which this page does without.',
  async play({ station, session }) {
    const { context } = station;
    const other = context.openDevice();
    try {
      const pd = context.allocPd();
      const handle = pd.allocShpd(SHARE_KEY);
      const strangers = refused(other, handle, SHARE_KEY + 1n);
      const shared = other.sharePd(handle, SHARE_KEY);
      const instances = count(context, pd);
      const memory = context.alloc(STAMP_BYTES);
      const { registered, connection } = await station.stamped(
        session.peer,
        other,
        pd,
        shared,
        memory,
      );
      const first = await ask(connection, context, shared);
      await session.refresh();
      const line = stampOf(session.view.memory);
      const wrong = memory.filter((byte, index) => byte !== line[index]).length;

      // The instance that registered it ends, and its key with it; the domain does not.
      registered.dereg();
      pd.dealloc();
      const left = count(context, shared);
      memory.fill(0);
      const second = await ask(connection, context, shared);
      const written = memory.filter((byte) => byte !== 0).length;
      await connection.close();
      shared.dealloc();
      const isOver = refused(other, handle, SHARE_KEY);
      context.free(memory);
      return {
        sentences: [
          `Handle ${hex(handle)}, ${instances} instances. With another key: ${strangers ? 'refused' : 'taken'}.`,
          `The peer WROTE ${STAMP_BYTES} bytes through the second context by the first one’s key ` +
            `0x${registered.rkey.toString(HEX)}; bytes that differ from its line: ${wrong}.`,
          `The first instance has ended, ${left} is left. The same WRITE again: ` +
            `${second === WcStatus.SUCCESS ? 'taken' : 'refused'}, bytes changed: ${written}.`,
          `The last one has ended. The handle opens ${isOver ? 'nothing' : 'something'} any more.`,
        ],
        figures: {
          instances,
          left,
          strangers: strangers ? 1 : 0,
          wrong,
          first,
          second,
          written,
          isOver: isOver ? 1 : 0,
        },
      };
    } finally {
      await other.close();
    }
  },
};

/** Instances of a domain in this thread. */
function count({ siblings }: Context, { handle }: ProtectionDomain): number {
  return siblings.instancesOf(handle);
}

/** Is taking part refused? */
function refused(context: Context, handle: Uint8Array, key: bigint): boolean {
  try {
    context.sharePd(handle, key).dealloc();
    return false;
  } catch (error) {
    if (error instanceof RefusalError) return true;
    throw error;
  }
}

/** Has the peer WRITE its line; the status of what comes of it here. */
async function ask(
  { qp, sendCq, recvCq }: RdmaConnection,
  context: Context,
  pd: ProtectionDomain,
): Promise<number> {
  const message = context.alloc(MESSAGE_BYTES);
  const region = pd.regMr(message, 0);
  try {
    const { addr, lkey } = region;
    qp.postSend({
      opcode: WrOpcode.SEND,
      sgList: [{ addr, length: MESSAGE_BYTES, lkey }],
      sendFlags: SendFlag.SIGNALED,
    });
    check(await sendCq.wait());
    // Its WRITE comes with an immediate value, or kills the queue pair.
    const [completion] = await recvCq.wait();
    return completion?.status ?? WcStatus.WR_FLUSH_ERR;
  } finally {
    region.dereg();
    context.free(message);
  }
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(HEX).padStart(2, '0')).join('');
}
