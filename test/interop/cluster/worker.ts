/**
 * Loaded before a test file in a cluster worker. The channel to the primary would keep the worker
 * alive for ever. Here it does so only during a query to the primary, so a file ends as it does
 * alone.
 */
import cluster from 'node:cluster';

interface Message {
  readonly act?: string;
  readonly seq?: number;
  readonly ack?: number;
}

const { channel } = process;
if (cluster.isWorker && channel) {
  const asked = new Set<number | undefined>();
  const send = process.send!.bind(process) as (...args: unknown[]) => boolean;
  channel.unref();
  process.send = (message: Message, ...rest: unknown[]): boolean => {
    if (message.act === 'queryServer') {
      asked.add(message.seq);
      channel.ref();
    }
    return send(message, ...rest);
  };
  process.on('internalMessage' as 'message', ({ ack }: Message) => {
    if (asked.delete(ack) && asked.size === 0) channel.unref();
  });
}
