/**
 * A GPU buffer is filled from registered memory by one call, and registered memory from a GPU
 * buffer: one tab writes numbers into another one's memory, whose GPU squares them. By Chromium's
 * software adapter.
 */
import { suite } from 'uvu';
import * as assert from 'uvu/assert';
import { PAGE, openTab, type TabState } from './tab-device.js';
import { Browser, Site, missingBrowser, type Tab } from '../support/browser.js';
import { printed } from '../support/hook.js';

/** Of WebGPU what this test uses; the types of TypeScript for browsers lack it. */
interface GpuBuffer {
  mapAsync(mode: number): Promise<void>;
  getMappedRange(): ArrayBuffer;
  unmap(): void;
}

interface GpuPipeline {
  getBindGroupLayout(index: number): unknown;
}

interface GpuPass {
  setPipeline(pipeline: GpuPipeline): void;
  setBindGroup(index: number, group: unknown): void;
  dispatchWorkgroups(count: number): void;
  end(): void;
}

interface GpuDevice {
  readonly queue: {
    writeBuffer(buffer: GpuBuffer, offset: number, data: Uint8Array): void;
    submit(commands: readonly unknown[]): void;
  };
  createBuffer(options: { size: number; usage: number }): GpuBuffer;
  createShaderModule(options: { code: string }): unknown;
  createComputePipeline(options: object): GpuPipeline;
  createBindGroup(options: object): unknown;
  createCommandEncoder(): {
    beginComputePass(): GpuPass;
    copyBufferToBuffer(from: GpuBuffer, a: number, to: GpuBuffer, b: number, size: number): void;
    finish(): unknown;
  };
  destroy(): void;
}

interface Gpu {
  requestAdapter(): Promise<{ requestDevice(): Promise<GpuDevice> } | null>;
}

const FLAGS = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
const COUNT = 1024;

interface World {
  browser: Browser;
}

const missing = missingBrowser();
if (missing) throw new Error(missing);
const test = suite<World>('webgpu');

test.before(
  printed(async (world) => {
    world.browser = await Browser.launch(FLAGS);
  }),
);
test.after(({ browser }) => browser.close());

type Named = Readonly<Record<string, Uint8Array>>;
interface Remote {
  readonly memory: Readonly<
    Record<
      string,
      {
        write(at: number, bytes: Uint8Array): Promise<void>;
        read(at: number, length: number): Promise<Uint8Array>;
      }
    >
  >;
}

/** State of the Workers: what one shares, and what the other one sees. */
type GpuState = TabState & { shared: Named; remote: Remote };

/** Returns the address of the memory. */
const shareMemory = (tab: Tab): Promise<string> =>
  tab.run(async (verbena, state: GpuState, count: number) => {
    const { context } = state;
    const here = `rdma://[${context.local.gid}]:7471` as const;
    const sizes = { numbers: 4 * count, squares: 4 * count };
    const { url, memory } = await verbena.share(here, sizes, { context });
    state.shared = memory;
    return url;
  }, COUNT);

const writeNumbers = (tab: Tab, url: string): Promise<void> =>
  tab.run(
    async (verbena, state: GpuState, { at, count }: { at: string; count: number }) => {
      const { context, link } = state;
      while (link.peers.length === 0) await link.nextPeerEvent();
      state.remote = (await verbena.connect(new URL(at), { context })) as unknown as Remote;
      const numbers = Uint32Array.from({ length: count }, (_, index) => index);
      await state.remote.memory['numbers']!.write(0, new Uint8Array(numbers.buffer));
    },
    { at: url, count: COUNT },
  );

/** Returns the name of the type of the memory's buffer. */
const square = (tab: Tab): Promise<string> =>
  tab.run(async (_verbena, { shared }: GpuState, count: number) => {
    const { numbers, squares } = shared as { numbers: Uint8Array; squares: Uint8Array };
    const { gpu } = (globalThis as unknown as { navigator: { gpu: Gpu } }).navigator;
    const gpuDevice = await (await gpu.requestAdapter())!.requestDevice();
    const size = 4 * count;
    // Of GPUBufferUsage: STORAGE | COPY_DST | COPY_SRC, and COPY_DST | MAP_READ.
    const work = gpuDevice.createBuffer({ size, usage: 0x80 | 0x8 | 0x4 });
    const result = gpuDevice.createBuffer({ size, usage: 0x8 | 0x1 });
    gpuDevice.queue.writeBuffer(work, 0, numbers);
    const code = `
      @group(0) @binding(0) var<storage, read_write> data: array<u32>;
      @compute @workgroup_size(64) fn square(@builtin(global_invocation_id) id: vec3u) {
        data[id.x] = data[id.x] * data[id.x];
      }`;
    const module = gpuDevice.createShaderModule({ code });
    const pipeline = gpuDevice.createComputePipeline({ layout: 'auto', compute: { module } });
    const encoder = gpuDevice.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    const entries = [{ binding: 0, resource: { buffer: work } }];
    const layout = pipeline.getBindGroupLayout(0);
    pass.setBindGroup(0, gpuDevice.createBindGroup({ layout, entries }));
    pass.dispatchWorkgroups(count / 64);
    pass.end();
    encoder.copyBufferToBuffer(work, 0, result, 0, size);
    gpuDevice.queue.submit([encoder.finish()]);
    await result.mapAsync(1);
    squares.set(new Uint8Array(result.getMappedRange()));
    result.unmap();
    gpuDevice.destroy();
    return numbers.buffer.constructor.name;
  }, COUNT);

/** Index of the first number whose square is wrong; -1: none. */
const wrongSquare = (tab: Tab): Promise<number> =>
  tab.run(async (_verbena, { remote }: GpuState, count: number) => {
    const bytes = await remote.memory['squares']!.read(0, 4 * count);
    const squares = new Uint32Array(bytes.slice().buffer);
    return squares.findIndex((value, index) => value !== index * index);
  }, COUNT);

for (const isShared of [false, true]) {
  const memory = isShared ? 'shared memory' : 'memory that is not shared';
  test(`a GPU computes with what another tab wrote, in ${memory}`, async ({ browser }) => {
    const site = await Site.open({ isolated: isShared });
    try {
      const options = { room: `gpu ${memory}`, sharedArrayBuffer: isShared };
      const a = await openTab(browser, site.url(PAGE), options);
      const b = await openTab(browser, site.url(PAGE), options);
      await writeNumbers(b, await shareMemory(a));
      assert.is(await square(a), isShared ? 'SharedArrayBuffer' : 'ArrayBuffer');
      assert.is(await wrongSquare(b), -1);
      for (const tab of [a, b]) {
        await tab.run((_verbena, { context }: TabState) => context.close());
        assert.equal(tab.errors, [], 'nothing on the console');
        await tab.page.close();
      }
    } finally {
      await site.close();
    }
  });
}

test.run();
