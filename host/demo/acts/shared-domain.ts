/** One protection domain, two contexts of the device: what one registers the other one serves. */
import { AccessFlag, WcStatus } from '../../verbs/enums.js';
import { SHARE_KEY, isRefused, type SharingContext } from '../second-context.js';
import { STAMP_BYTES, stampOf } from '../memory-layout.js';
import type { Act } from './act.js';

const HEX = 16;

export const sharedDomain: Act = {
  id: 'shared-domain',
  title: 'Share between Workers',
  sentence:
    'Shows shared protection domains: this Worker registers memory, a second Worker of the same device ' +
    'has the connection, and the peer WRITEs through it. When the domain ends, so do the rights.',
  async play({ endpoint, session, secondContext }) {
    const { context, kind } = endpoint;
    const pd = context.allocPd();
    const handle = pd.allocShpd(SHARE_KEY);
    const memory = context.alloc(STAMP_BYTES);
    const region = pd.regMr(memory, AccessFlag.LOCAL_WRITE | AccessFlag.REMOTE_WRITE);
    let other: SharingContext | undefined;
    /** Of the domain, in both Workers; `there`: in the second context's. */
    const instances = (there: number): number =>
      there + (other!.isApart ? context.siblings.instancesOf(pd.handle) : 0);
    try {
      const { rkey, addr } = region;
      other = await secondContext({ handle, peer: `${session.peer.gid}`, kind, rkey, addr });
      const first = await other.ask();
      const both = instances(first.instances);
      await session.refresh();
      const line = stampOf(session.view.memory);
      const wrong = memory.filter((byte, index) => byte !== line[index]).length;

      // The instance that registered it ends, and its key with it; the domain does not.
      region.dereg();
      pd.dealloc();
      memory.fill(0);
      const second = await other.ask();
      const left = instances(second.instances);
      const written = memory.filter((byte) => byte !== 0).length;
      const { isKept, isApart } = other;
      other = void (await other.leave());
      const isOver = isRefused(context, handle, SHARE_KEY);
      return {
        sentences: [
          isApart
            ? 'Two Workers, one shared memory.'
            : 'Both contexts are in one Worker: two would need shared memory, which this page has not got.',
          `Handle ${hex(handle)}, ${both} instances. With another key: ${isKept ? 'refused' : 'taken'}.`,
          `The peer WROTE ${STAMP_BYTES} bytes through the second context by the first one’s key ` +
            `0x${rkey.toString(HEX)}; bytes that differ from its line: ${wrong}.`,
          `The first instance has ended, ${left} is left. The same WRITE again: ` +
            `${second.status === WcStatus.SUCCESS ? 'taken' : 'refused'}, bytes changed: ${written}.`,
          `The last one has ended. The handle opens ${isOver ? 'nothing' : 'something'} any more.`,
        ],
        figures: {
          isApart: Number(isApart),
          instances: both,
          left,
          strangers: Number(isKept),
          wrong,
          first: first.status,
          second: second.status,
          written,
          isOver: Number(isOver),
        },
      };
    } finally {
      region[Symbol.dispose]();
      pd[Symbol.dispose]();
      await other?.leave();
      context.free(memory);
    }
  },
};

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(HEX).padStart(2, '0')).join('');
}
