/**
 * A process that shares memory, or uses it, and prints what happens:
 *
 *     node remote-peer.js share ADDRESS [PORT UDP-PORT]
 *     node remote-peer.js connect URL idle|busy|reconnect
 */
import { connect, share, type RdmaUrl } from '../../host/index.js';

const BYTES = 65536;
/** Detection takes half as long as by default. */
const OPTIONS = { keepAliveMillis: 2000 };

async function serve(address: string, port = '0', udp?: string): Promise<void> {
  const url: RdmaUrl = `rdma://${address}:${port}${udp === undefined ? '' : `?udp=${udp}`}`;
  const server = await share(url, { table: BYTES }, OPTIONS);
  console.log(`url ${server.url}`);
  for await (const client of server) {
    console.log('client connected');
    void client.closed.then((reason) => console.log(`client closed: ${reason?.code ?? 'orderly'}`));
  }
}

async function use(url: RdmaUrl, how: string): Promise<void> {
  const reconnect = how === 'reconnect' && {
    onReconnect: () => console.log('connected again'),
  };
  const remote = await connect(url, { ...OPTIONS, timeout: 20_000, reconnect });
  const { table } = remote.memory;
  console.log('connected');
  void remote.closed.then((reason) => {
    console.log(`closed: ${reason ? reason.message : 'orderly'}`);
    void remote.close();
  });
  if (how === 'idle') return;
  const work = async (): Promise<void> => {
    for (;;) {
      await table!.fetchAdd(0, 1n);
      await table!.read(0, 8192);
    }
  };
  // A call in flight rejects when the connection is lost; one that begins then waits for the next.
  const workAgain = async (): Promise<void> => {
    for (;;) await work().catch(() => console.log('a call rejected'));
  };
  const ends = await Promise.allSettled(
    Array.from({ length: 8 }, how === 'reconnect' ? workAgain : work),
  );
  console.log(`all ${ends.filter(({ status }) => status === 'rejected').length} rejected`);
}

const [, , role, where, ...rest] = process.argv;
if (role === 'share') await serve(where!, ...rest);
else await use(where as RdmaUrl, rest[0] ?? 'idle');
