/**
 * A device that is removed while the program runs (`verbena run --fault`): its contexts get
 * IBV_EVENT_DEVICE_FATAL, its queue pairs fail, and only verbs that end something succeed.
 */
import { timerMillis } from '../base/timer.js';
import { RefusalError } from '../errors/errors.js';
import { QpState } from '../verbs/enums.js';
import { QueuePair } from '../verbs/queues/queue-pair.js';
import type { Handler, Handlers } from './control-channel.js';
import type { AsyncEvents, BridgeState } from './verb-handlers.js';

/** Verbs that end something: a program ends its objects after the removal, too. */
const ENDS = /^(DEALLOC|DEREG|DESTROY|FREE|CLOSE|DETACH|CM_DESTROY|CM_DISCONNECT|CM_LEAVE|FAIL)/;

/** `handlers` until `afterMillis` after the first context is opened, and refusals from then on. */
export function removedAfter(
  afterMillis: number,
  handlers: Handlers,
  { objects }: BridgeState,
  events: AsyncEvents,
): Handlers {
  let isRemoved = false;
  let timer: NodeJS.Timeout | undefined;
  const remove = (): void => {
    isRemoved = true;
    for (const qp of objects.all(QueuePair)) {
      // Those of ids have ended with them.
      if (!qp.destroyed && qp.state !== QpState.RESET) qp.modify({ qpState: QpState.ERR });
    }
    events.fail();
  };
  const checked = Object.entries<Handler>(handlers).map(([name, handle]) => {
    const guarded: Handler = (...words) => {
      if (isRemoved && !ENDS.test(name)) {
        throw new RefusalError(
          'EIO',
          `${name}: a rule of --fault removed the device; start the program again`,
        );
      }
      if (name === 'OPEN_CONTEXT') timer ??= setTimeout(remove, timerMillis(afterMillis));
      return handle(...words);
    };
    return [name, guarded] as const;
  });
  return Object.fromEntries(checked) as Handlers;
}
