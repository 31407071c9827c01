/**
 * On-demand paging (rdma-core tests/test_odp.py). Before each iteration the pages of the messages
 * are returned to the system, where it supports that: the next access faults them in again.
 */
import { createRequire } from 'node:module';
import * as assert from 'uvu/assert';
import {
  AccessFlag,
  AdviseMrAdvice,
  AdviseMrFlag,
  OdpSupport,
  QpType,
  WrOpcode,
  type MemoryRegion,
  type ProtectionDomain,
} from '../../../host/index.js';
import {
  ALL_ACCESS,
  atomicTraffic,
  createPlayers,
  rdmaTraffic,
  traffic,
  type Player,
  type PlayerOptions,
} from './player.js';
import { everywhere, type World } from './world.js';

const PAGE = 4096;
const ROUNDS = 3;
const MADV_DONTNEED = 4;
const ODP = ALL_ACCESS | AccessFlag.ON_DEMAND;

type Madvise = (start: Uint8Array, length: number, advice: number) => number;

/** The system call, where it is and can be called. */
function loadMadvise(): Madvise | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as {
      load(name: string | null): { func(declaration: string): unknown };
    };
    return koffi.load(null).func('int madvise(void *, size_t, int)') as Madvise;
  } catch {
    return undefined;
  }
}
const madvise = loadMadvise();

/** Whole pages of the process, gone: they read as zeros, or, without the call, are zeroed. */
function dropPages(buffer: Uint8Array): void {
  assert.is(buffer.byteOffset % PAGE, 0);
  buffer.fill(0xee);
  if (!madvise) buffer.fill(0);
  else assert.is(madvise(buffer, buffer.length, MADV_DONTNEED), 0);
  assert.ok(buffer[0] === 0 && buffer[buffer.length - 1] === 0, 'the pages are gone');
}

function register(pd: ProtectionDomain, bytes: number, access: number): MemoryRegion {
  const buf = pd.allocBuf(Math.ceil(bytes / PAGE) * PAGE);
  return pd.regBufMr(buf, buf.addr, buf.bytes.length, access);
}

function registerEx(pd: ProtectionDomain, bytes: number, access: number): MemoryRegion {
  return pd.regMrEx({ buf: pd.allocBuf(Math.ceil(bytes / PAGE) * PAGE), access });
}

const RC: PlayerOptions = { mrAccess: ODP, makeMr: register, msgSize: 2 * PAGE };

async function check(
  world: World,
  options: PlayerOptions,
  conversation: (client: Player, server: Player) => Promise<void>,
): Promise<void> {
  const { client, server } = await createPlayers(world, options);
  const { odpCaps } = client.context.queryDeviceEx();
  assert.ok(odpCaps.rc & OdpSupport.SEND && odpCaps.ud & OdpSupport.RECV);
  for (let round = 0; round < ROUNDS; round++) {
    for (const { mr } of [client, server]) dropPages(mr.buffer);
    await conversation(client, server);
  }
}

const once = { iterations: 1 };
const messages = (client: Player, server: Player): Promise<void> => traffic(client, server, once);

everywhere('odp_rc_traffic', 'messages fault their pages in', (world) =>
  check(world, RC, messages),
);

everywhere('mrex_odp_rc_traffic', 'messages fault pages of regMrEx in', (world) =>
  check(world, { ...RC, makeMr: registerEx }, messages),
);

everywhere('odp_ud_traffic', 'datagrams fault their pages in', (world) =>
  check(world, { ...RC, msgSize: 1024, qpType: QpType.UD }, messages),
);

everywhere('odp_rc_mixed_mr', 'one message from pages on demand and others', (world) =>
  check(world, RC, async (client, server) => {
    const plain = client.pd.regMr(client.context.alloc(512), AccessFlag.LOCAL_WRITE);
    plain.buffer.fill(0x77);
    client.message.fill(0x66, 0, 512);
    server.postRecv();
    client.send(WrOpcode.SEND, {
      sgList: [client.sge(512), { addr: plain.addr, length: 512, lkey: plain.lkey }],
    });
    await client.success();
    assert.is((await server.success()).byteLen, 1024);
    assert.ok(server.message.subarray(0, 512).every((byte) => byte === 0x66));
    assert.ok(server.message.subarray(512, 1024).every((byte) => byte === 0x77));
    plain.dereg();
  }),
);

everywhere('odp_rc_atomic_cmp_and_swp', 'CMP_SWAP faults its page in', (world) =>
  check(world, RC, async (client, server) => {
    const opcode = WrOpcode.ATOMIC_CMP_AND_SWP;
    await atomicTraffic(client, server, opcode, once);
    const met = { receiverValue: 1n, senderValue: 1n };
    await atomicTraffic(client, server, opcode, { ...once, ...met });
  }),
);

everywhere('odp_rc_atomic_fetch_and_add', 'FETCH_ADD faults its page in', (world) =>
  check(world, RC, (client, server) =>
    atomicTraffic(client, server, WrOpcode.ATOMIC_FETCH_AND_ADD, once),
  ),
);

everywhere('odp_rc_rdma_read', 'READ faults pages in at both ends', (world) =>
  check(world, RC, (client, server) =>
    rdmaTraffic(client, server, { ...once, opcode: WrOpcode.RDMA_READ }),
  ),
);

everywhere('odp_rc_rdma_write', 'WRITE faults pages in at both ends', (world) =>
  check(world, RC, (client, server) => rdmaTraffic(client, server, once)),
);

function prefetch(player: Player, advice: number, flags: number): void {
  player.pd.adviseMr(advice, flags, [player.sge()]);
}

const PREFETCH = [AdviseMrAdvice.PREFETCH, AdviseMrAdvice.PREFETCH_WRITE];
const NO_FAULT = [AdviseMrAdvice.PREFETCH_NO_FAULT];
for (const [upstream, name, advices, flags] of [
  ['odp_sync_prefetch_rc_traffic', 'prefetch, then messages', PREFETCH, AdviseMrFlag.FLUSH],
  ['odp_async_prefetch_rc_traffic', 'prefetch without waiting', PREFETCH, 0],
  ['odp_prefetch_sync_no_page_fault_rc_traffic', 'no-fault advice', NO_FAULT, AdviseMrFlag.FLUSH],
  ['odp_prefetch_async_no_page_fault_rc_traffic', 'no-fault advice, no waiting', NO_FAULT, 0],
] as const) {
  everywhere(upstream, name, (world) =>
    check(world, RC, async (client, server) => {
      for (const advice of advices) {
        prefetch(client, advice, flags);
        prefetch(server, advice, flags);
      }
      const { addr, lkey } = client.mr;
      const length = client.mr.length + 1;
      const ask = (sge: { addr: bigint; length: number; lkey: number }) => () =>
        client.pd.adviseMr(advices[0]!, flags, [sge]);
      assert.throws(ask({ addr, length, lkey }), /EINVAL/);
      assert.throws(ask({ addr, length: 8, lkey: (lkey ^ 0x100) >>> 0 }), /ENOENT/);
      assert.throws(() => prefetch(client, 9, flags), /advice/);
      assert.throws(() => prefetch(client, advices[0]!, 2), /flags/);
      await messages(client, server);
    }),
  );
}

everywhere.run();
