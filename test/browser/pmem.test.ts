/**
 * Persistent memory of a tab: what a peer has flushed outlives the page, and nothing else is said
 * to.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import * as library from '../../host/index.js';
import type * as Verbena from '../../host/browser/index.js';
import { Browser, missingBrowser, type Tab } from '../support/browser.js';
import { releaseDataChannels } from '../support/channel-mesh.js';
import { printed } from '../support/hook.js';
import { eventually } from '../support/receiver.js';
import { NodePeer } from './node-peer.js';
import { PAGE, openTab, type TabState } from './tab-device.js';

interface World {
  browser: Browser;
  peer: NodePeer;
}

interface PmemState extends TabState {
  pmem: Verbena.PersistentMemory;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('pmem in a browser');
const BYTES = 100_000;
const PORT = 7480;

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch();
    world.peer = await NodePeer.open();
  }),
);
test.after(async (world) => {
  await world.browser.close();
  await world.peer.close();
  await releaseDataChannels();
});

const newTab = ({ browser, peer }: World): Promise<Tab> =>
  openTab(browser, peer.site.url(PAGE), {});

/** A region of that name, which the tab keeps. What opening says, or its kind and durability. */
function openRegion(tab: Tab, name: string, bytes?: number): Promise<string> {
  return tab.run(
    async (_verbena, state: PmemState, wanted: { name: string; bytes?: number }) => {
      const { name, ...options } = wanted;
      try {
        state.pmem = await state.context.openPmem(name, options);
        const { kind, durability, length } = state.pmem;
        return `${kind}, ${durability}, ${length}`;
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        return `${code}: ${message}`;
      }
    },
    bytes === undefined ? { name } : { name, bytes },
  );
}

const byteAt = (tab: Tab, offset: number): Promise<number> =>
  tab.run((_verbena, { pmem }: PmemState, at: number) => pmem.buffer[at]!, offset);

/** A Node program's way to the tab's region: WRITE and FLUSH. */
class Writer {
  readonly #connection: library.RdmaConnection;
  readonly #memory: Uint8Array;
  readonly #mr: library.MemoryRegion;
  readonly #remote: bigint;
  readonly #rkey: number;

  private constructor(
    connection: library.RdmaConnection,
    memory: Uint8Array,
    mr: library.MemoryRegion,
  ) {
    const { privateData } = connection;
    const view = new DataView(privateData.buffer, privateData.byteOffset);
    this.#connection = connection;
    this.#memory = memory;
    this.#mr = mr;
    this.#remote = view.getBigUint64(0);
    this.#rkey = view.getUint32(8);
  }

  static async to(tab: Tab, { link, context }: NodePeer): Promise<Writer> {
    await tab.run((_verbena, state: PmemState) => state.link.connect('/signal').then(() => {}));
    const address = await tab.run(
      async (verbena, { context: device, pmem }: PmemState, port: number) => {
        const { LOCAL_WRITE, REMOTE_WRITE, FLUSH_GLOBAL, FLUSH_PERSISTENT } = verbena.AccessFlag;
        const pd = device.allocPd();
        const access = LOCAL_WRITE | REMOTE_WRITE | FLUSH_GLOBAL | FLUSH_PERSISTENT;
        const mr = pd.regMr(pmem.buffer, access);
        const told = new Uint8Array(12);
        const view = new DataView(told.buffer);
        view.setBigUint64(0, BigInt(mr.addr));
        view.setUint32(8, mr.rkey);
        const address = `${device.local.gid}`;
        const listener = await verbena.listen({ address, port }, { context: device });
        void listener.getRequest().then((request) => request!.accept({ pd, privateData: told }));
        return address;
      },
      PORT,
    );
    // The tab's end of the channels may open first.
    await eventually(() => link.peers.some(({ gid }) => `${gid}` === address));
    const pd = context.allocPd();
    const memory = context.alloc(BYTES);
    const mr = pd.regMr(memory, library.AccessFlag.LOCAL_WRITE);
    const connection = await library.connect({ address, port: PORT }, { context, pd });
    return new Writer(connection, memory, mr);
  }

  /** Fills bytes of the region. */
  write(value: number, offset: number, length: number): Promise<number> {
    this.#memory.fill(value, 0, length);
    return this.#post({
      opcode: library.WrOpcode.RDMA_WRITE,
      sgList: [{ addr: this.#mr.addr, length, lkey: this.#mr.lkey }],
      rdma: { remoteAddr: this.#remote + BigInt(offset), rkey: this.#rkey },
      sendFlags: library.SendFlag.SIGNALED,
    });
  }

  /** Makes `length` bytes from `offset` on durable. */
  flush(offset: number, length: number): Promise<number> {
    return this.#post({
      opcode: library.WrOpcode.FLUSH,
      sendFlags: library.SendFlag.SIGNALED,
      flush: {
        remoteAddr: this.#remote + BigInt(offset),
        rkey: this.#rkey,
        length,
        type: library.PlacementType.PERSISTENT,
        level: library.SelectivityLevel.RANGE,
      },
    });
  }

  async #post(request: library.SendWorkRequest): Promise<number> {
    this.#connection.qp.postSend(request);
    const [completion] = await this.#connection.sendCq.wait();
    return completion!.status;
  }
}

test('what a Node program wrote and flushed is there when the page is reloaded', async (world) => {
  const tab = await newTab(world);
  assert.is(await openRegion(tab, 'reload', BYTES), `opfs, browser, ${BYTES}`);
  const writer = await Writer.to(tab, world.peer);
  assert.is(await writer.write(7, 1000, 50_000), library.WcStatus.SUCCESS);
  assert.is(await writer.flush(1000, 50_000), library.WcStatus.SUCCESS);
  // Written, and never flushed: a region that was not mapped does not have it.
  assert.is(await writer.write(9, 60_000, 100), library.WcStatus.SUCCESS);
  assert.is(await byteAt(tab, 60_000), 9);
  await tab.page.reload();
  const next = await newTab(world);
  assert.is(await openRegion(next, 'reload'), `opfs, browser, ${BYTES}`);
  const sum = await next.run((_verbena, { pmem }: PmemState) =>
    pmem.buffer.reduce((a, b) => a + b),
  );
  assert.is(sum, 7 * 50_000, 'all that was flushed, and nothing else');
  assert.is(await byteAt(next, 1000), 7);
  assert.is(await byteAt(next, 50_999), 7);
  assert.equal([...tab.errors, ...next.errors], []);
  await next.page.close();
  await tab.page.close();
});

test('a tab that crashes between two flushes has the first one', async (world) => {
  const tab = await newTab(world);
  await openRegion(tab, 'crash', BYTES);
  const writer = await Writer.to(tab, world.peer);
  await writer.write(1, 0, 4096);
  assert.is(await writer.flush(0, 4096), library.WcStatus.SUCCESS);
  // From now on, under load, until it is gone.
  let acknowledged = 1;
  const writing = (async () => {
    for (let value = 2; ; value = (value % 250) + 1) {
      if ((await writer.write(value, 0, 4096)) !== library.WcStatus.SUCCESS) return;
      if ((await writer.flush(0, 4096)) !== library.WcStatus.SUCCESS) return;
      acknowledged = value;
    }
  })();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await tab.page.goto('chrome://crash').catch(() => {});
  // A crashed page sends no word: the device notices it later, or is disconnected here.
  for (const peer of world.peer.link.peers) world.peer.link.disconnect(peer);
  await writing;
  const next = await newTab(world);
  assert.match(await openRegion(next, 'crash'), /^opfs/);
  const found = await byteAt(next, 0);
  assert.ok(found === acknowledged || found === (acknowledged % 250) + 1, `${found}`);
  const isWhole = await next.run((_verbena, { pmem }: PmemState) =>
    pmem.buffer.subarray(4096).every((byte) => byte === 0),
  );
  assert.ok(isWhole, 'nothing else was touched');
  await next.page.close();
  await tab.page.close();
});

test('a page flushes by itself, and closing makes the rest durable', async (world) => {
  const tab = await newTab(world);
  await openRegion(tab, 'close', BYTES);
  const syncs = await tab.run(async (_verbena, { pmem, context }: PmemState) => {
    pmem.buffer.fill(3, 0, 10);
    await Promise.all([pmem.flush(0, 10), pmem.flush(5, 5), pmem.flush(0, 1)]);
    pmem.buffer[99_999] = 4;
    const { syncs } = pmem;
    await context.close();
    return syncs;
  });
  assert.ok(syncs >= 1 && syncs <= 2, 'those that came together shared one');
  const next = await newTab(world);
  await openRegion(next, 'close', 2 * BYTES);
  assert.is(await next.run((_verbena, { pmem }: PmemState) => pmem.length), 2 * BYTES, 'it grew');
  assert.equal([await byteAt(next, 9), await byteAt(next, 10)], [3, 0]);
  assert.equal([await byteAt(next, 99_999), await byteAt(next, 199_999)], [4, 0]);
  assert.equal([...tab.errors, ...next.errors], []);
  await next.page.close();
  await tab.page.close();
});

test('what is open, foreign, truncated, too large, nameless or not there is refused', async (world) => {
  const tab = await newTab(world);
  const other = await newTab(world);
  await openRegion(tab, 'mine', BYTES);
  assert.match(await openRegion(other, 'mine'), /^EBUSY: mine is open already/);
  await tab.run((_verbena, { pmem }: PmemState) => pmem.close());
  assert.match(await openRegion(other, 'mine'), /^opfs/, 'it can be had once it is closed');
  await other.run(async (_verbena, { pmem }: PmemState) => pmem.close());
  /** Leaves a foreign or damaged file behind. */
  const spoil = (name: string, bytes: number, from = ''): Promise<void> =>
    tab.page.evaluate(`(async () => {
      const root = await navigator.storage.getDirectory();
      const old = ${JSON.stringify(from)} ? await (await root.getFileHandle(${JSON.stringify(from)})).getFile() : undefined;
      const content = old ? await old.slice(0, ${bytes}).arrayBuffer() : new Uint8Array(${bytes}).fill(5);
      const writable = await (await root.getFileHandle(${JSON.stringify(name)}, { create: true })).createWritable();
      await writable.write(content);
      await writable.close();
    })()`);
  await spoil('foreign', 10_000);
  assert.match(await openRegion(tab, 'foreign', BYTES), /^EINVAL: foreign is no persistent memory/);
  await spoil('short', 70_000, 'mine');
  assert.match(await openRegion(tab, 'short'), /^EIO: short is truncated/);
  assert.match(await openRegion(tab, 'nowhere'), /^undefined: bytes: is required to create/);
  assert.match(await openRegion(tab, 'a/b', BYTES), /^undefined: path: must be a name/);
  assert.match(await openRegion(tab, 'large', 2 ** 31), /^(ENOMEM|ENOSPC|EIO): /);
  // A region whose creation was interrupted is removed or completed by the next opening.
  assert.match(await openRegion(tab, 'foreign2', BYTES), /^opfs/);
  assert.equal([...tab.errors, ...other.errors], []);
  await tab.page.close();
  await other.page.close();
});

test('a flush that the browser refuses is never acknowledged, nor is any later one', async (world) => {
  const tab = await newTab(world);
  await openRegion(tab, 'failing', BYTES);
  const writer = await Writer.to(tab, world.peer);
  await writer.write(1, 0, 100);
  assert.is(await writer.flush(0, 100), library.WcStatus.SUCCESS);
  await tab.run(async (_verbena, { pmem }: PmemState) => {
    const { Worker } = globalThis as unknown as { Worker: { prototype: object } };
    const prototype = Worker.prototype as { postMessage(...all: unknown[]): void };
    const post = prototype.postMessage;
    // The region's Worker gets no write requests: writes throw.
    prototype.postMessage = function (this: object, message: unknown) {
      const { id, ranges } = message as { id: number; ranges?: { offset: number }[] };
      const broken = ranges?.map((range) => ({ ...range, bytes: undefined }));
      post.call(this, broken ? { id, ranges: broken } : message);
    };
    const failed = await pmem.flush(0, 10).then(
      () => 'it was acknowledged',
      (error: { code: string }) => error.code,
    );
    prototype.postMessage = post;
    if (failed !== 'EIO') throw new Error(failed);
  });
  await writer.write(2, 0, 100);
  assert.is.not(await writer.flush(0, 100), library.WcStatus.SUCCESS);
  const failure = await tab.run((_verbena, { pmem }: PmemState) => `${pmem.failure?.name}`);
  assert.is(failure, 'SyncError');
  await tab.page.close();
});

/** From now on the tab's regions have a Worker that runs this instead; `URL`: what it would run. */
function replaceWorker(tab: Tab, text: string): Promise<void> {
  return tab.run((_verbena, _state: PmemState, program: string) => {
    const scope = globalThis as unknown as {
      Worker: new (url: URL | string, options: object) => object;
      RealWorker?: new (url: URL | string, options: object) => object;
    };
    const Real = (scope.RealWorker ??= scope.Worker);
    scope.Worker = class {
      constructor(url: URL | string, options: object) {
        const blob = new Blob([program.replace('URL', String(url))], { type: 'text/javascript' });
        return new Real(URL.createObjectURL(blob), options);
      }
    };
  }, text);
}

test('without that file system the page gets an error that names it', async (world) => {
  const tab = await newTab(world);
  const first = (text: string): string => `import 'data:text/javascript,${text}'; import 'URL';`;
  await replaceWorker(tab, first('delete StorageManager.prototype.getDirectory'));
  const said = await openRegion(tab, 'none', BYTES);
  assert.match(said, /^EOPNOTSUPP: .*getDirectory: it takes HTTPS or localhost; .*alloc\(\) works/);
  await replaceWorker(tab, first('delete FileSystemFileHandle.prototype.createSyncAccessHandle'));
  assert.match(await openRegion(tab, 'none', BYTES), /^EOPNOTSUPP: .*FileSystemSyncAccessHandle/);
  const refuse = '() => Promise.reject(new DOMException(`storage is blocked`, `SecurityError`))';
  await replaceWorker(tab, first(`StorageManager.prototype.getDirectory = ${refuse}`));
  const denied = await openRegion(tab, 'none', BYTES);
  assert.match(denied, /^EACCES: .*lets this page keep no files: storage is blocked/);
  const bytes = await tab.run((_verbena, { context }: PmemState) => context.alloc(100).length);
  assert.is(bytes, 100);
  await replaceWorker(tab, "import 'URL.is.not.there';");
  assert.match(await openRegion(tab, 'none', BYTES), /^ENOENT: openPmem: opfs-thread.js/);
  await tab.page.close();
});

test.run();
