/** Shared protection domains and memory (seed 000), between real processes. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import type { DeviceReport } from '../../host/device/sharing/device-report.js';
import { Program, cliPath } from '../support/processes.js';
import { Member, MemberError, freshName, withMembers } from '../support/member.js';

const at = (address: string) => ({ name: freshName(), address, memoryBytes: 16 * 2 ** 20 });

async function refusal(work: Promise<unknown>): Promise<MemberError> {
  try {
    await work;
  } catch (error) {
    return error as MemberError;
  }
  throw new Error('it was not refused');
}

test('what one process allocates lies at the same address in the other', async () => {
  await withMembers(2, at('127.1.0.1'), async (a, b) => {
    const place = await a.run(({ context, kept }) => {
      const memory = context.alloc(5000);
      memory.fill(7);
      Object.assign(kept, { memory });
      return [memory.byteOffset, memory.length] as const;
    });
    const seen = await b.run(({ context }, [address, length]) => {
      const memory = context.attach(address, length);
      const before = memory[4999];
      memory[0] = 9;
      return { before, address: memory.byteOffset };
    }, place);
    assert.equal(seen, { before: 7, address: place[0] });
    assert.is(await a.run(({ kept }) => kept.memory[0]), 9);
  });
});

test('memory lives until its last user has released it', async () => {
  await withMembers(2, at('127.1.0.2'), async (a, b) => {
    const [address, length] = await a.run(({ context, kept }) => {
      const memory = context.alloc(1 << 20);
      Object.assign(kept, { memory });
      return [memory.byteOffset, memory.length] as const;
    });
    await b.run(
      ({ context, kept }, at, bytes) => {
        Object.assign(kept, { memory: context.attach(at, bytes) });
      },
      address,
      length,
    );
    const again = (): Promise<number> =>
      a.run(({ context }) => {
        const memory = context.alloc(1 << 20);
        context.free(memory);
        return memory.byteOffset;
      });
    await a.run(({ context, kept }) => context.free(kept.memory));
    assert.is.not(await again(), address, 'B still holds it');
    await b.run(({ context, kept }) => context.free(kept.memory));
    assert.is(await again(), address);
  });
});

test('a domain is shared by handle and key, and the keys of one serve the other', async () => {
  const options = at('127.1.0.3');
  await withMembers(2, options, async (a, b) => {
    const made = await a.run(({ context, verbena, pair, kept }) => {
      const pd = context.allocPd();
      const area = context.alloc(64);
      const shpd = pd.allocShpd(0x1234567890abcdefn, area);
      const memory = context.alloc(4096);
      memory.fill(5);
      const mr = pd.regMr(memory, pair.ALL_ACCESS);
      Object.assign(kept, { pd, memory, mr, verbena });
      return { area: shpd.byteOffset, addr: Number(mr.addr), rkey: mr.rkey, same: shpd === area };
    });
    assert.is(made.same, true);
    // B has no region of its own: its queue pair serves a peer by the key that A registered.
    const server = await b.run(({ context, kept }, area) => {
      const shpd = context.attach(area, 64);
      const pd = context.sharePd(shpd, 0x1234567890abcdefn);
      const cq = context.createCq(16);
      const qp = pd.createQp({ sendCq: cq, recvCq: cq });
      Object.assign(kept, { pd, cq, qp });
      return { qpNum: qp.qpNum, port: context.local.port };
    }, made.area);
    const peer = await Member.open({ address: '127.1.0.4', port: 0 });
    try {
      const client = await peer.run(({ context, pair, verbena, kept }, to) => {
        const pd = context.allocPd();
        const cq = context.createCq(16);
        const qp = pd.createQp({ sendCq: cq, recvCq: cq });
        const memory = context.alloc(4096);
        const mr = pd.regMr(memory, pair.ALL_ACCESS);
        const there = { context: { local: verbena.Endpoint.parse('127.1.0.3', to.port) }, qp: to };
        pair.connect(qp, there as never, 1, 2, { attributes: { timeout: 14 } });
        Object.assign(kept, { cq, qp, memory, mr });
        return { qpNum: qp.qpNum, port: context.local.port };
      }, server);
      await b.run(({ pair, verbena, kept }, to) => {
        const there = { context: { local: verbena.Endpoint.parse('127.1.0.4', to.port) }, qp: to };
        pair.connect(kept.qp, there as never, 2, 1, { attributes: { timeout: 14 } });
      }, client);
      const read = (): Promise<{ status: number; byte: number | undefined }> =>
        peer.run(
          async ({ verbena, kept }, addr, rkey) => {
            const { cq, qp, memory, mr } = kept;
            qp.postSend({
              opcode: verbena.WrOpcode.RDMA_READ,
              sendFlags: verbena.SendFlag.SIGNALED,
              sgList: [{ addr: mr.addr, length: 4096, lkey: mr.lkey }],
              rdma: { remoteAddr: addr, rkey },
            });
            const [completion] = await cq.wait();
            return { status: completion!.status, byte: memory[4095] };
          },
          made.addr,
          made.rkey,
        );
      assert.equal(await read(), { status: 0, byte: 5 });
    } finally {
      await peer.close();
    }
  });
});

test('a wrong key, a wrong handle, a dead domain, another device: the same refusal', async () => {
  const options = at('127.1.0.5');
  await withMembers(2, options, async (a, b) => {
    const shpd = await a.run(({ context, kept }) => {
      const pd = context.allocPd();
      const other = context.allocPd();
      Object.assign(kept, { pd, other });
      return { live: [...pd.allocShpd(77n)], dead: [...other.allocShpd(77n)] };
    });
    await a.run(({ kept }) => kept.other.dealloc());
    const share = (bytes: readonly number[], key: number): Promise<unknown> =>
      b.run(
        ({ context }, handle, shareKey) => {
          context.sharePd(Uint8Array.from(handle), BigInt(shareKey)).dealloc();
        },
        bytes,
        key,
      );
    await share(shpd.live, 77);
    const tries: [readonly number[], number][] = [
      [shpd.live, 78],
      [shpd.dead, 77],
      [new Array<number>(32).fill(0), 77],
      [new Array<number>(32).fill(255), 77],
    ];
    for (let byte = 0; byte < 24; byte++) {
      tries.push([shpd.live.map((value, index) => (index === byte ? value ^ 1 : value)), 77]);
    }
    const messages = new Set<string>();
    for (const [handle, key] of tries) {
      const { code, message } = await refusal(share(handle, key));
      messages.add(`${code} ${message}`);
    }
    assert.is(messages.size, 1, [...messages].join('\n'));
    assert.match([...messages][0]!, 'EINVAL');
    const other = await Member.open(at('127.1.0.6'));
    try {
      const elsewhere = await refusal(
        other.run(({ context }, handle) => {
          context.sharePd(Uint8Array.from(handle), 77n);
        }, shpd.live),
      );
      assert.ok(messages.has(`${elsewhere.code} ${elsewhere.message}`));
    } finally {
      await other.close();
    }
  });
});

test('a domain has one handle, and lives until its last instance is closed', async () => {
  await withMembers(2, at('127.1.0.7'), async (a, b) => {
    const handle = await a.run(({ context, kept }) => {
      const pd = context.allocPd();
      Object.assign(kept, { pd });
      return [...pd.allocShpd(1n)];
    });
    const twice = await refusal(
      a.run(({ kept }) => {
        kept.pd.allocShpd(2n);
      }),
    );
    assert.is(twice.code, 'EBUSY');
    const own = await b.run(({ context, kept, pair }, bytes) => {
      const pd = context.sharePd(Uint8Array.from(bytes), 1n);
      const mr = pd.regMr(context.alloc(64), pair.ALL_ACCESS);
      Object.assign(kept, { pd, mr });
      return mr.handle;
    }, handle);
    // Objects of B end with B's instance, not with A's; they do not block A.
    await a.run(({ kept }) => {
      kept.pd.dealloc();
    });
    const again = await a.run(
      ({ context, kept }, bytes, key) => {
        const pd = context.sharePd(Uint8Array.from(bytes), 1n);
        Object.assign(kept, { pd });
        return pd.importMr(key).lkey;
      },
      handle,
      own,
    );
    assert.is(again, own, 'same key, no second entry');
    const busy = await refusal(
      b.run(({ kept }) => {
        kept.pd.dealloc();
      }),
    );
    assert.is(busy.code, 'EBUSY');
  });
});

test('imported domains: the first dealloc ends it for all, unimport never does', async () => {
  await withMembers(2, at('127.1.0.8'), async (a, b) => {
    const handle = await a.run(({ context, kept }) => {
      const pd = context.allocPd();
      Object.assign(kept, { pd });
      return pd.handle;
    });
    await b.run(({ context }, pd) => context.importPd(pd).unimport(), handle);
    await a.run(({ context, kept, pair }) => {
      kept.pd.regMr(context.alloc(64), pair.ALL_ACCESS).dereg();
    });
    await b.run(({ context }, pd) => context.importPd(pd).dealloc(), handle);
    const gone = await refusal(
      a.run(({ context, kept, pair }) => {
        kept.pd.regMr(context.alloc(64), pair.ALL_ACCESS);
      }),
    );
    assert.is(gone.code, 'EINVAL');
    assert.is((await refusal(b.run(({ context }) => void context.importPd(12345)))).code, 'ENOENT');
  });
});

test('devinfo shows the processes of a device, and their resources', async () => {
  const options = at('127.1.0.9');
  await withMembers(2, options, async (a, b) => {
    const handle = await a.run(({ context, pair, kept, verbena }) => {
      kept.pd = context.allocPd();
      kept.mr = kept.pd.regMr(context.alloc(100_000), pair.ALL_ACCESS);
      const layout = kept.pd.regMr(null, 0, verbena.AccessFlag.ZERO_BASED);
      layout.setLayoutSg(0, [{ addr: kept.mr.addr, length: 8, lkey: kept.mr.lkey }]);
      return [...kept.pd.allocShpd(3n)];
    });
    await b.run(({ context, kept }, bytes) => {
      kept.pd = context.sharePd(Uint8Array.from(bytes), 3n);
    }, handle);
    const json = new Program(process.execPath, [
      cliPath,
      'devinfo',
      '--name',
      options.name,
      '--json',
    ]);
    const { stdout, stderr } = await json.ended;
    const report = JSON.parse(stdout) as DeviceReport;
    assert.is(stderr, '');
    assert.is(report.address, '127.1.0.9:4791');
    assert.equal(
      report.processes.map(({ slot, pid, alive, regions, layouts }) => {
        return { slot, pid, alive, regions, layouts };
      }),
      [
        { slot: 0, pid: a!.pid, alive: true, regions: 1, layouts: 1 },
        { slot: 1, pid: b!.pid, alive: true, regions: 0, layouts: 0 },
      ],
    );
    const [domain] = report.domains;
    assert.is(domain!.shared, true);
    assert.is(domain!.keys, 2);
    assert.equal(domain!.instances.map(({ slot }) => slot).sort(), [0, 1]);
    assert.ok(report.memoryHeldBytes >= 100_000);
  });
  const gone = new Program(process.execPath, [cliPath, 'devinfo', '--name', options.name]);
  const ended = await gone.ended;
  assert.is(ended.code, 1);
  assert.match(ended.stderr, 'ENOENT');
});

test.run();
