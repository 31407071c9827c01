/** The other process of `dgram-offload`: a socket that counts, answers, or blocks its thread. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import dgram from '../../host/dgram/index.js';
import { Partner, partnerTask, tell } from './partner.js';

export interface OffloadTask {
  readonly address: string;
  readonly isOffloaded: boolean;
  /** Sends each datagram back. */
  readonly answers: boolean;
  /** Holds port 4791 without an answer. */
  readonly isSilent?: boolean;
}

export interface OffloadReady {
  readonly port: number;
}

/** Commands: the partner answers with the datagrams so far. */
export type OffloadWord =
  | { readonly word: 'count' }
  | { readonly word: 'block'; readonly millis: number }
  | { readonly word: 'end' };

export function startPartner(task: OffloadTask): Promise<Partner<OffloadReady>> {
  return Partner.start<OffloadReady>(import.meta.url, task);
}

async function serve({ address, isOffloaded, answers, isSilent }: OffloadTask): Promise<void> {
  if (isSilent) {
    const holder = createSocket('udp4');
    holder.bind(4791, address);
    await once(holder, 'listening');
  }
  const socket = isOffloaded ? dgram.createSocket('udp4') : createSocket('udp4');
  let count = 0;
  socket.on('message', (data, from) => {
    count++;
    if (answers) socket.send(data, from.port, from.address);
  });
  socket.bind(0, address);
  await once(socket, 'listening');
  tell({ port: socket.address().port } satisfies OffloadReady);
  process.once('disconnect', () => process.exit());
  process.on('message', (message: OffloadWord) => {
    if (message.word === 'end') process.exit();
    if (message.word === 'block') {
      // After the answer has left.
      setTimeout(() => {
        const end = performance.now() + message.millis;
        while (performance.now() < end);
      }, 20);
    }
    tell(count);
  });
}

const task = partnerTask<OffloadTask>(import.meta.url);
if (task) await serve(task);
