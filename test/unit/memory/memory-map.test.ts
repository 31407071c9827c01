/** Where the tables of arenas and contexts lie: each has the bytes of its entries, and no more. */
import { test } from 'uvu';
import * as assert from 'uvu/assert';
import {
  ADDRESS_HANDLE_PATH,
  ATTACHMENT_SIZE,
  ArenaConfigLayout,
  ArenaLayout,
  BLOCK_SIZE,
  COMPLETION_QUEUE_SIZE,
  CONTEXT_SLOT_SIZE,
  ContextConfigLayout,
  ContextLayout,
  CountersLayout,
  ENGINE_EVENT_SIZE,
  INBOX_ENTRY_SIZE,
  INBOX_PACKET_SIZE,
  KEY_ENTRY_SIZE,
  KEY_NOTE_SIZE,
  LOCAL_BOUNCE_SIZE,
  LOCAL_ENDPOINT_SIZE,
  LOCAL_MESSAGE_SIZE,
  LOCAL_TARGET_SIZE,
  LOCAL_VALUE_SIZE,
  LocalMessageState,
  MEMBERSHIP_SIZE,
  NULL_PAGE_SIZE,
  PATH_SIZE,
  PATH_STATES,
  PATH_STATE_SIZE,
  POOLS_MAX,
  POOL_LISTS_SIZE,
  POOL_NODE_SIZE,
  POOL_SIZE,
  POOL_USER_SIZE,
  PROTECTION_DOMAIN_SIZE,
  QUEUE_PAIR_SIZE,
  RECEIVE_DESCRIPTOR_SIZE,
  RING_HEADER_SIZE,
  ROOTS_HEADER_SIZE,
  ROOT_SIZE,
  SEND_BUFFER_PACKETS,
  SEND_BUFFER_SIZE,
  SEND_DESCRIPTOR_SIZE,
  SERVICE_SIZE,
  SHARED_CONNECTION_SIZE,
  SHARED_RECEIVE_QUEUE_SIZE,
  STEERING_SIZE,
  WAKES_SIZE,
  WORD_WAIT_SIZE,
  CONNECTIONS_PER_CONTEXT_COUNT,
  ARENA_OFFSET_SIZE,
  LAYOUT_DIMENSIONS_MAX,
  LAYOUT_DIMENSION_SIZE,
  LAYOUT_NESTING_MAX,
  LAYOUT_SOURCE_SIZE,
  LAYOUT_SIZE,
  OPCODE_ROW_SIZE,
  QpType,
  QueuePairLayout,
  QueuePairParametersLayout,
  RANDOM_QPNS,
  READ_CHUNK_SIZE,
  RECEIVE_REQUEST_SIZE,
  RESOURCE_SIZE,
  RESPONSE_JOB_SIZE,
  SEND_REQUEST_SIZE,
  SGE_SIZE,
  WORK_REQUEST_SIZE,
} from '#build/abi.js';
import { Heap } from '../../../host/engine/heap.js';
import { instantiate } from '../../../host/engine/load.js';
import { EngineMemory } from '../../../host/engine/memory.js';
import { structAt } from '../../../host/engine/struct.js';

const LINE = 64;
const MEMORY_BYTES = 64 * 2 ** 20;
/** Above the arena, whatever its configuration. */
const HEAP = 48 * 2 ** 20;
const ARENA = 8192;
/** Of a wheel of six levels of 64 slots (timer-wheel.ts): the time, a bit and a list for each. */
const TIMERS_SIZE = 16 + 6 * 8 + 6 * 64 * 4;

const powerOfTwo = (value: number): number => 2 ** Math.ceil(Math.log2(Math.max(value, 1)));

type Tables = readonly (readonly [name: string, bytes: number])[];

/** Each table begins where the one before it ends, or in the next cache line. */
function assertMap(addresses: Record<string, unknown>, tables: Tables, end: number): void {
  for (const [place, [name, bytes]] of tables.entries()) {
    const at = addresses[name] as number;
    const [next] = tables[place + 1] ?? [];
    const behind = next === undefined ? end : (addresses[next] as number);
    const slack = behind - (at + bytes);
    assert.ok(
      slack >= 0 && slack < LINE,
      `${name}: ${bytes} bytes at ${at}, ${next ?? 'end'} at ${behind}`,
    );
  }
}

class World {
  readonly memory = EngineMemory.create(MEMORY_BYTES, false);
  readonly exports = instantiate(this.memory);
  readonly heap = new Heap(this.memory.bytes, HEAP, MEMORY_BYTES);

  struct<L extends Parameters<typeof structAt>[1]>(layout: L, values: object) {
    const at = this.heap.alloc(layout.size);
    return { at, struct: Object.assign(structAt(this.memory, layout, at), values) };
  }

  arena(config: object) {
    const { at, struct } = this.struct(ArenaConfigLayout, config);
    const size = this.exports.arenaBytes(at);
    this.exports.arenaInit(ARENA, at);
    return { size, config: struct, state: structAt(this.memory, ArenaLayout, ARENA) };
  }
}

const PRIVATE = {
  regionsMax: 100,
  protectionDomainsMax: 3,
  contextsMax: 2,
  blocksMax: 0,
  servicesMax: 0,
  inboxEntries: 0,
  poolUsersMax: 0,
  localEndpointsMax: 0,
  localMessagesMax: 0,
};
const SHARED = {
  regionsMax: 1000,
  protectionDomainsMax: 7,
  contextsMax: 33,
  blocksMax: 9,
  servicesMax: 5,
  inboxEntries: 3,
  poolUsersMax: 3,
  localEndpointsMax: 16,
  localMessagesMax: 8,
};
/** Contexts that begin so that each has domains of others to take part in. */
const SHARES = 8;

for (const [what, limits] of [
  ['of one process', PRIVATE],
  [
    'of one process with pools and a local path',
    { ...SHARED, blocksMax: 0, servicesMax: 0, inboxEntries: 0 },
  ],
  ['of several processes', SHARED],
  [
    'of several processes without a local path',
    { ...SHARED, localEndpointsMax: 0, localMessagesMax: 0, poolUsersMax: 0 },
  ],
] as const) {
  test(`the tables of an arena ${what} follow each other`, () => {
    const { size, state, config } = new World().arena(limits);
    const { contextsMax, protectionDomainsMax, poolUsersMax, blocksMax, localMessagesMax } = limits;
    const keys = powerOfTwo(2 * limits.regionsMax);
    const isShared = blocksMax > 0;
    const attachments = protectionDomainsMax + SHARES * contextsMax;
    const channel = 2 * LINE + localMessagesMax * (LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE);
    const roots = Math.min(8 * contextsMax, 256);
    const tables: Tables = [
      ['contextSlots', contextsMax * CONTEXT_SLOT_SIZE],
      ['protectionDomains', protectionDomainsMax * PROTECTION_DOMAIN_SIZE],
      ['attachments', attachments * ATTACHMENT_SIZE],
      ['opcodeTable', config.opcodeTableSize as number],
      ['icrcTables', config.icrcTablesSize as number],
      ['keys', keys * KEY_ENTRY_SIZE],
      ['keyNotes', keys * KEY_NOTE_SIZE],
      ['pools', poolUsersMax > 0 ? POOLS_MAX * (POOL_SIZE + POOL_LISTS_SIZE) : 0],
      ['poolUsers', poolUsersMax * POOL_USER_SIZE],
      ['poolNodes', poolUsersMax > 0 ? keys * POOL_NODE_SIZE : 0],
      ['nullPages', isShared ? 0 : 2 * NULL_PAGE_SIZE],
      ['blocks', blocksMax * BLOCK_SIZE],
      ['services', limits.servicesMax * SERVICE_SIZE],
      ['steering', isShared ? STEERING_SIZE + 4 * contextsMax : 0],
      ['inboxes', contextsMax * limits.inboxEntries * (INBOX_ENTRY_SIZE + INBOX_PACKET_SIZE)],
      [
        'connections',
        isShared ? contextsMax * CONNECTIONS_PER_CONTEXT_COUNT * SHARED_CONNECTION_SIZE : 0,
      ],
      ['localEndpoints', contextsMax * limits.localEndpointsMax * LOCAL_ENDPOINT_SIZE],
      ['localChannels', localMessagesMax ? contextsMax * (LINE + contextsMax * channel) : 0],
      ['wordWaits', contextsMax * WORD_WAIT_SIZE],
      ['roots', ROOTS_HEADER_SIZE + roots * ROOT_SIZE],
    ];
    assert.is(state.contextSlots, ARENA + Math.ceil(ArenaLayout.size / LINE) * LINE);
    assertMap(state, tables, ARENA + size);
    assert.equal(
      [state.size, state.heapStart, state.keyMask, state.attachmentsMax, state.rootsMax],
      [size, ARENA + size, keys - 1, attachments, roots],
    );
  });
}

for (const [what, limits] of [
  [
    'with one of everything',
    {
      queuePairsMax: 1,
      completionQueuesMax: 1,
      sharedReceiveQueuesMax: 1,
      addressHandlesMax: 1,
      multicastMax: 1,
      eventsMax: 16,
      receivePackets: 1,
      receiveBytes: 8192,
      sendBuffers: 1,
    },
  ],
  [
    'with many',
    {
      queuePairsMax: 100,
      completionQueuesMax: 70,
      sharedReceiveQueuesMax: 5,
      addressHandlesMax: 9,
      multicastMax: 11,
      eventsMax: 256,
      receivePackets: 77,
      receiveBytes: 65536,
      sendBuffers: 3,
    },
  ],
] as const) {
  test(`the tables of a context ${what} follow each other`, () => {
    const world = new World();
    world.arena(PRIVATE);
    const { at } = world.struct(ContextConfigLayout, { ...limits, rdAtomicMax: 1 });
    const size = world.exports.contextSize(at);
    const context = world.heap.alloc(size);
    world.exports.contextInit(context, ARENA, at, 1);
    const state = structAt(world.memory, ContextLayout, context);
    const places = limits.queuePairsMax + 1;
    const tables: Tables = [
      ['pathStates', PATH_STATES * PATH_STATE_SIZE],
      ['timers', TIMERS_SIZE],
      ['queuePairIndex', 4 * powerOfTwo(2 * limits.queuePairsMax)],
      ['queuePairs', places * QUEUE_PAIR_SIZE],
      ['completionQueues', limits.completionQueuesMax * COMPLETION_QUEUE_SIZE],
      ['sharedReceiveQueues', limits.sharedReceiveQueuesMax * SHARED_RECEIVE_QUEUE_SIZE],
      ['addressHandles', limits.addressHandlesMax * (ADDRESS_HANDLE_PATH + PATH_SIZE)],
      ['multicast', limits.multicastMax * MEMBERSHIP_SIZE],
      ['grh', LINE],
      ['strangerPath', PATH_SIZE],
      ['localTarget', LOCAL_TARGET_SIZE],
      ['localMessage', LOCAL_MESSAGE_SIZE],
      ['wakes', WAKES_SIZE],
      ['localBounce', LOCAL_BOUNCE_SIZE],
      ['events', RING_HEADER_SIZE + limits.eventsMax * ENGINE_EVENT_SIZE],
      ['doorbells', RING_HEADER_SIZE + 4 * (powerOfTwo(places) + places)],
      ['receiveDescriptors', limits.receivePackets * RECEIVE_DESCRIPTOR_SIZE],
      ['sendDescriptors', limits.sendBuffers * SEND_BUFFER_PACKETS * SEND_DESCRIPTOR_SIZE],
      ['receiveArea', limits.receiveBytes],
      ['sendArea', limits.sendBuffers * SEND_BUFFER_SIZE],
    ];
    const counters = context + Math.ceil(ContextLayout.size / LINE) * LINE;
    assert.is(state.counters, counters);
    assert.is(state.crcScratch, counters + Math.ceil(CountersLayout.size / LINE) * LINE);
    assertMap(state, tables, context + size);
    assert.is(state.generalServices, state.completionQueues - QUEUE_PAIR_SIZE);
    assert.is(state.size, size);
  });
}

for (const [reorderPackets, flightPackets, sgeMax] of [
  [0, 256, 1],
  [256, 256, 3],
  [1024, 1024, 1],
] as const) {
  test(`the queues of a queue pair that keeps ${reorderPackets} packets follow each other`, () => {
    const world = new World();
    world.arena(PRIVATE);
    const rdAtomic = 16;
    const small = { queuePairsMax: 4, completionQueuesMax: 1, eventsMax: 16, receivePackets: 1 };
    const config = { ...small, rdAtomicMax: rdAtomic, receiveBytes: 8192, sendBuffers: 1 };
    const { at } = world.struct(ContextConfigLayout, {
      ...config,
      windowPackets: flightPackets,
      packetSizeMax: 4160,
    });
    const { exports, heap, memory } = world;
    const context = heap.alloc(exports.contextSize(at));
    exports.contextInit(context, ARENA, at, 1);
    const cq = exports.createCq(context, heap.alloc(RING_HEADER_SIZE + 64), 1);
    const size = QueuePairParametersLayout.size + 4 * RANDOM_QPNS;
    const parameters = heap.alloc(size);
    const [sendEntries, receiveEntries] = [8, 4];
    memory.words.fill(
      77,
      (parameters + QueuePairParametersLayout.fields.random[0]) >> 2,
      (parameters + size) >> 2,
    );
    const struct = Object.assign(structAt(memory, QueuePairParametersLayout, parameters), {
      type: QpType.RC,
      pd: exports.allocPd(context),
      sendCq: cq,
      receiveCq: cq,
      sendEntries,
      receiveEntries,
      sendSgeMax: sgeMax,
      receiveSgeMax: sgeMax,
      inlineMax: 20,
      reorderPackets,
    });
    const bytes = exports.qpBytes(context, parameters);
    struct.memory = heap.alloc(bytes);
    assert.is(exports.createQp(context, parameters), 0);
    const qp = structAt(memory, QueuePairLayout, struct.queuePair);
    const data = Math.ceil(Math.max(sgeMax * SGE_SIZE, 20) / 16) * 16;
    const receive = RECEIVE_REQUEST_SIZE + sgeMax * SGE_SIZE;
    const flight = reorderPackets > 0 ? qp.flightMax : 0;
    const ring = (bits: number): number => Math.max(bits, 64) / 8;
    const tables: Tables = [
      ['sendRing', RING_HEADER_SIZE + sendEntries * (WORK_REQUEST_SIZE + data)],
      ['receiveRing', RING_HEADER_SIZE + receiveEntries * receive],
      ['sendRequests', sendEntries * (SEND_REQUEST_SIZE + data)],
      ['receiveRequest', receive],
      ['resources', rdAtomic * RESOURCE_SIZE],
      ['jobs', qp.chunks - qp.jobs],
      ['chunks', rdAtomic * READ_CHUNK_SIZE],
      ['aheadSlots', reorderPackets * 4],
      ['aheadMap', ring(reorderPackets)],
      ['sentTimes', flight * 4],
      ['arrivedMap', ring(flight)],
      ['lostMap', ring(flight)],
    ];
    assert.is(qp.sendRing, struct.memory);
    assertMap(qp, tables, struct.memory + bytes);
    assert.is((qp.chunks - qp.jobs) % RESPONSE_JOB_SIZE, 0);
    assert.ok(qp.chunks - qp.jobs >= rdAtomic * RESPONSE_JOB_SIZE);
    assert.is(qp.memoryBytes, bytes);
    if (reorderPackets > 0) assert.is(qp.flightMax, flightPackets);
  });
}

test('private parts of a process in a shared arena are contiguous', () => {
  const world = new World();
  const { at } = world.struct(ArenaConfigLayout, { ...SHARED, heapEnd: HEAP });
  world.exports.arenaBytes(at);
  const header = ARENA;
  world.exports.arenaInit(header + ARENA_OFFSET_SIZE, at);
  const bytes = world.exports.arenaLocalBytes();
  const local = world.heap.alloc(bytes);
  world.exports.arenaAttach(local, header, at, 4);
  const state = structAt(world.memory, ArenaLayout, local);
  const { layoutPlaces } = state;
  const tables: Tables = [
    ['opcodeTable', 256 * OPCODE_ROW_SIZE],
    ['icrcTables', state.nullPages - state.icrcTables],
    ['nullPages', 2 * NULL_PAGE_SIZE],
    ['layoutPlaces', local + bytes - layoutPlaces],
  ];
  assert.is(state.opcodeTable, local + Math.ceil(ArenaLayout.size / LINE) * LINE);
  assertMap(state, tables, local + bytes);
  const place = LAYOUT_SIZE + LAYOUT_SOURCE_SIZE + LAYOUT_DIMENSIONS_MAX * LAYOUT_DIMENSION_SIZE;
  assert.is(local + bytes - layoutPlaces, LAYOUT_NESTING_MAX * place);
  const shared = structAt(world.memory, ArenaLayout, header + ARENA_OFFSET_SIZE);
  for (const name of [
    'contextSlots',
    'keys',
    'keyNotes',
    'poolNodes',
    'roots',
    'heapStart',
  ] as const) {
    assert.is(state[name], shared[name], name);
  }
  assert.equal([state.state, state.limit], [header + ARENA_OFFSET_SIZE, BigInt(HEAP)]);
});

test('a context that begins withdraws what its slot had posted, and touches no other channel', () => {
  const world = new World();
  const { state } = world.arena({ ...SHARED, blocksMax: 0, contextsMax: 3 });
  const words = world.memory.words;
  const from = state.localChannels >> 2;
  const until = (ARENA + state.size) >> 2;
  words.fill(LocalMessageState.POSTED, from, until);
  const { at } = world.struct(ContextConfigLayout, {
    slot: 1,
    queuePairsMax: 1,
    completionQueuesMax: 1,
    rdAtomicMax: 1,
    sendBuffers: 1,
    receivePackets: 1,
    receiveBytes: 8192,
    eventsMax: 16,
  });
  world.exports.contextInit(world.heap.alloc(world.exports.contextSize(at)), ARENA, at, 1);
  const entry = LOCAL_MESSAGE_SIZE + LOCAL_VALUE_SIZE;
  const channel = 2 * LINE + SHARED.localMessagesMax * entry;
  const changed = new Set<number>();
  for (let target = 0; target < 3; target++) {
    const source = state.localChannels + target * (LINE + 3 * channel) + LINE + channel;
    for (let index = 0; index < SHARED.localMessagesMax; index++) {
      changed.add((source + 2 * LINE + index * entry) >> 2);
    }
  }
  for (let word = from; word < until; word++) {
    const state = changed.has(word) ? LocalMessageState.WITHDRAWN : LocalMessageState.POSTED;
    assert.is(words[word], state, `word ${word - from}`);
  }
});

test.run();
