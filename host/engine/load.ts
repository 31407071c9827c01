/** Finds, compiles and instantiates the engine. Compiled once per thread and kind of memory. */
import type { EngineMemory } from './memory.js';
import { fetchModule, moduleBytes, type ModuleName } from './module-bytes.js';

/** The ABI of assembly/engine.ts: numbers only. `now` counts microseconds. */
export interface EngineExports {
  arenaBytes(config: number): number;
  arenaInit(arena: number, config: number): void;
  arenaLocalBytes(): number;
  arenaAttach(local: number, header: number, config: number, slot: number): void;
  arenaBytesFree(arena: number): number;
  arenaModelBytes(config: number): number;
  arenaModelInit(arena: number, model: number, config: number): void;
  arenaRepair(arena: number): void;
  arenaReap(arena: number, slot: number): number;
  allocBlock(context: number, parameters: number): number;
  attachBlock(context: number, parameters: number): number;
  deallocBlock(context: number, address: number): number;
  allocShpd(context: number, parameters: number): number;
  attachShpd(context: number, parameters: number): number;
  contextSize(config: number): number;
  contextInit(context: number, arena: number, config: number, now: number): void;
  allocPd(context: number): number;
  attachPd(context: number, pd: number): number;
  deallocPd(context: number, pd: number): number;
  detachPd(context: number, pd: number): number;
  regMr(context: number, parameters: number): number;
  killMr(context: number, key: number): number;
  mrReleased(context: number, key: number): number;
  killFastMr(context: number, key: number): number;
  mrRevoked(context: number, key: number): number;
  reregMr(context: number, parameters: number): number;
  mrReregistered(context: number, parameters: number): number;
  poolOpen(context: number, parameters: number): number;
  poolClose(context: number, pool: number): number;
  poolAddUser(context: number, parameters: number): number;
  poolRemoveUser(context: number, user: number): number;
  poolLend(context: number, user: number, count: number): void;
  poolAdd(context: number, pool: number, key: number, mark: number): number;
  poolRemove(context: number, pool: number, index: number): number;
  poolTake(context: number, pool: number, user: number, bucket: number, borrowed: number): number;
  poolGive(context: number, pool: number, user: number, bucket: number, index: number): number;
  poolDrain(context: number, pool: number, bucket: number): void;
  poolFree(context: number, pool: number): number;
  mrLayoutBytes(parameters: number): number;
  setMrLayout(context: number, parameters: number): number;
  mrLayoutReleased(context: number, layout: number): number;
  cqBytes(entries: number): number;
  createCq(context: number, ring: number, entries: number): number;
  reqNotifyCq(cq: number, notify: number): void;
  destroyCq(context: number, cq: number): number;
  qpBytes(context: number, parameters: number): number;
  createQp(context: number, parameters: number): number;
  modifyQp(context: number, qp: number, attributes: number, now: number): number;
  postProbe(context: number, qp: number, now: number): number;
  setQpAuth(context: number, qp: number, memory: number): number;
  qpRotateKey(context: number, qp: number): number;
  aeadSeal(
    context: number,
    key: number,
    nonceLow: number,
    nonceHigh: number,
    data: number,
    length: number,
    plain: number,
    tag: number,
  ): void;
  aeadOpen(
    context: number,
    key: number,
    nonceLow: number,
    nonceHigh: number,
    data: number,
    length: number,
    plain: number,
    tag: number,
  ): number;
  qpAttributesMissing(qp: number, to: number, mask: number): number;
  setQpCounters(qp: number, table: number): void;
  setCqIgnoreOverrun(cq: number, ignore: number): void;
  resizeSrq(srq: number, ring: number, entries: number): number;
  resizeCq(cq: number, ring: number, entries: number): number;
  srqBytes(entries: number, sgeMax: number): number;
  createSrq(context: number, pd: number, ring: number, entries: number, sgeMax: number): number;
  setSrqLimit(srq: number, limit: number): void;
  destroySrq(context: number, srq: number): number;
  createAh(context: number, pd: number, attributes: number): number;
  destroyAh(context: number, handle: number): number;
  attachMcast(context: number, qp: number, gid: number): number;
  detachMcast(context: number, qp: number, gid: number): number;
  mrNote(context: number, key: number): number;
  destroyQp(context: number, qp: number): number;
  postSend(context: number, qp: number, now: number): void;
  postRecv(context: number, qp: number, now: number): void;
  postDoorbells(context: number, now: number): number;
  receivePackets(context: number, count: number, now: number): void;
  nextPackets(context: number, buffer: number): number;
  nextFlush(context: number, request: number): number;
  setFlushAnswers(queuePair: number, job: number, serial: number, count: number): void;
  advanceFlush(
    context: number,
    queuePair: number,
    job: number,
    serial: number,
    failed: number,
  ): void;
  advance(context: number, now: number): void;
  nextDeadline(context: number): number;
  nextOwed(context: number): number;
  lookupKey(
    context: number,
    key: number,
    pd: number,
    addressHigh: number,
    addressLow: number,
    length: number,
    access: number,
  ): number;
  parse(context: number, packet: number, length: number, fields: number): number;
  build(context: number, packet: number, fields: number): number;
  icrc(
    context: number,
    family: number,
    source: number,
    target: number,
    sourcePort: number,
    targetPort: number,
    packet: number,
    length: number,
  ): number;
  icrcDoubled(
    context: number,
    family: number,
    source: number,
    target: number,
    sourcePort: number,
    targetPort: number,
    packet: number,
    length: number,
  ): number;
  ipIdOf(context: number, difference: number, length: number): number;
}

/** What another thread needs to run an engine on the same memory; it can be posted to a Worker. */
export interface EngineParts {
  readonly memory: WebAssembly.Memory;
  readonly module: WebAssembly.Module;
}

const modules = new Map<ModuleName, WebAssembly.Module>();

/** Bytes of the engine for unshared or shared memory. */
export function engineFile(shared: boolean): URL {
  return new URL(`../../engine${shared ? '.shared' : ''}.wasm`, import.meta.url);
}

/** `modelled`: the one that counts what an adapter's caches would do, for shared memory only. */
function moduleName(shared: boolean, modelled: boolean): ModuleName {
  if (modelled) return 'engine.modelled';
  return shared ? 'engine.shared' : 'engine';
}

/** To be awaited before the first use: a browser fetches the engine. Rejects as fetchModule. */
export function fetchEngine(shared: boolean, modelled = false): Promise<void> {
  return fetchModule(moduleName(shared, modelled));
}

/** The compiled engine; it can be sent to another thread. */
export function engineModule(shared: boolean, modelled = false): WebAssembly.Module {
  const name = moduleName(shared, modelled);
  let module = modules.get(name);
  if (!module) {
    module = new WebAssembly.Module(moduleBytes(name));
    modules.set(name, module);
  }
  return module;
}

/** One engine over this memory. Any number of engines may work on one memory. */
export function instantiate(memory: EngineMemory, module?: WebAssembly.Module): EngineExports {
  const instance = new WebAssembly.Instance(module ?? engineModule(memory.shared), {
    env: { memory: memory.memory },
  });
  return instance.exports as object as EngineExports;
}
