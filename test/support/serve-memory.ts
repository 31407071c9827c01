import type { MemberWorld } from './member.js';

/**
 * For `Member.run`: listens, and registers `bytes` of memory for the peer of each connection.
 * `psk`: pre-shared key; empty: connections without authentication.
 */
export async function serveMemory(
  { verbena, context, kept }: MemberWorld,
  address: string,
  port: number,
  bytes: number,
  psk: string,
): Promise<void> {
  kept.memory = context.alloc(bytes);
  const options = psk === '' ? {} : { auth: { psk: Buffer.from(psk) } };
  const listener = await verbena.listen({ address, port }, { context, ...options });
  void (async () => {
    for await (const { qp, pd } of listener.connections()) {
      const { LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ } = verbena.AccessFlag;
      kept.mr = pd.regMr(kept.memory, LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ);
      kept.qp = qp;
    }
  })();
}
