/** The replacement of as-bind in a page. */
import { readFileSync } from 'node:fs';
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import { textModule as ofNode } from '../../../host/engine/text-module.js';
import { textModule as ofPage } from '../../../host/engine/text-module.browser.js';
import { root } from '../../support/paths.js';

type Text = Readonly<Record<string, (...args: readonly unknown[]) => string>>;

const bytes = new Uint8Array(readFileSync(new URL('build/explain.wasm', root)));

test('a page explains as Node does: the same functions, and the same text from each', () => {
  const node = ofNode<Text>(bytes);
  const page = ofPage<Text>(bytes);
  const cases: readonly (readonly [string, ...unknown[]])[] = [
    ['explainPacket', Uint8Array.of(4, 0, 255, 255, 0, 0, 0, 25, 0, 0, 1, 0, 97, 0, 0, 0)],
    ['explainPacket', new Uint8Array()],
    ['explainFields', Uint8Array.of(1, 2, 3)],
    ...Array.from({ length: 24 }, (_, status) => ['explainWcStatus', status, 0] as const),
    ['explainSyndrome', 0x60],
    ['explainPacketStatus', 3],
    ['explainAsyncEvent', 1],
    ['explainErrno', 22],
    ['parseConfig', 'heap=64k, name=\u{1f600}ä\ufeff'],
    ['parseConfig', ''],
    ['parseConfig', 'x'.repeat(100_000)],
  ];
  const named = new Set(cases.map(([name]) => name));
  for (const name of named) assert.type(page[name], 'function', name);
  for (const [name, ...args] of cases) {
    assert.is(page[name]!(...args), node[name]!(...args), `${name} ${String(args).slice(0, 40)}`);
  }
});

test('the memory of the text module of a page does not grow with the packets', () => {
  const { Instance } = WebAssembly;
  const memories: WebAssembly.Memory[] = [];
  WebAssembly.Instance = new Proxy(Instance, {
    construct(target, args: ConstructorParameters<typeof Instance>) {
      const instance = new target<{ memory: WebAssembly.Memory }>(...args);
      memories.push(instance.exports.memory);
      return instance;
    },
  });
  try {
    const { explainPacket } = ofPage<Text>(bytes);
    const explain = (count: number): number => {
      for (let call = 0; call < count; call++) explainPacket!(new Uint8Array(1040).fill(call));
      return memories[0]!.buffer.byteLength;
    };
    assert.is(explain(1000), explain(10_000));
  } finally {
    WebAssembly.Instance = Instance;
  }
});

test.run();
